/** The time of the service, as far as its answers have told it. */

/** A correction holds this long. If it is still needed then, the service says so again. */
const VALID_MS = 3_600_000;
/** A difference of the wall clock to the steady one from which on somebody has set it: what was known of it is void. */
const SET_BY_MS = 1_000;

interface Correction {
  /** How far the clock of this machine is ahead of the service's at least and at most, in milliseconds. */
  readonly least: number;
  readonly most: number;
  /** Both clocks of this machine when the service said so. */
  readonly wall: number;
  readonly steady: number;
}

/** The clock of this machine, corrected by what the service has said of its own. All times are milliseconds since 1970. */
export class ServiceClock {
  #correction: Correction | null = null;

  /** How far this machine's clock is ahead of the service's at least; 0 as long as nothing is known of it. */
  get aheadMs(): number {
    return this.#current()?.least ?? 0;
  }

  /**
   * Learns that this machine's clock is ahead from a response with the time of the service, which was read between the two times of
   * this machine.
   */
  correct(serverTime: number, sentAt: number, receivedAt: number): void {
    const least = Math.max(0, sentAt - serverTime);
    const most = Math.max(least, receivedAt - serverTime);
    this.#correction = { least, most, wall: Date.now(), steady: performance.now() };
  }

  /**
   * The service's time of a moment of this machine. Later than the moment by what the request of {@link correct} took to the service,
   * but never in the future when it arrives there.
   * @param moment by this machine's clock, not later than now
   */
  timeOf(moment: number): number {
    const correction = this.#current();
    if (correction === null) return moment;
    return Math.min(moment - correction.least, Date.now() - correction.most);
  }

  #current(): Correction | null {
    if (this.#correction === null) return null;
    const { wall, steady } = this.#correction;
    const passed = performance.now() - steady;
    const isSet = Math.abs(Date.now() - wall - passed) > SET_BY_MS;
    if (passed > VALID_MS || isSet) this.#correction = null;
    return this.#correction;
  }
}
