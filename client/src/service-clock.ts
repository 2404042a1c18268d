/** The time of the service, as far as its answers have told it. */

/** A correction holds this long. If it is still needed then, the service says so again. */
const VALID_MS = 3_600_000;
/** A difference of the wall clock to the steady one from which on somebody has set it: what was known of it is void. */
const SET_BY_MS = 1_000;

/** How old the header Date may be: it has whole seconds, and servers renew it once a second. */
const DATE_MS = 2_000;

interface Correction {
  /** How far the clock of this machine is ahead of the service's at least and at most, in milliseconds; behind it, less than 0. */
  readonly least: number;
  readonly most: number;
  /** Both clocks of this machine when the service said so. */
  readonly wall: number;
  readonly steady: number;
}

/** The clock of this machine, corrected by what the service has said of its own. All times are milliseconds since 1970. */
export class ServiceClock {
  #correction: Correction | null = null;

  /** Whether the service has said its time, and this machine's clock was not set since. */
  get isKnown(): boolean {
    return this.#current() !== null;
  }

  /** How far this machine's clock is ahead of the service's at least, less than 0 behind it; 0 as long as nothing is known of it. */
  get aheadMs(): number {
    return this.#current()?.least ?? 0;
  }

  /**
   * Learns from a refusal with the time of the service, which was read between the two times of this machine, that its clock is ahead.
   */
  correct(serverTime: number, sentAt: number, receivedAt: number): void {
    const least = Math.max(0, sentAt - serverTime);
    this.#learn(least, Math.max(least, receivedAt - serverTime));
  }

  /**
   * Learns from the header Date of a response whether this machine's clock is right. It is taken for right where it may be, so that
   * most times stay as they were.
   * @param date null: there is none that can be read, and this machine's clock is taken for right
   */
  compare(date: string | null, sentAt: number, receivedAt: number): void {
    const serverTime = Date.parse(date ?? '');
    const [least, most] = [sentAt - serverTime - DATE_MS, receivedAt - serverTime];
    if (Number.isNaN(serverTime) || (least <= 0 && most >= 0)) this.#learn(0, 0);
    // Not later than the service's time, which would refuse the event.
    else this.#learn(sentAt - serverTime, most);
  }

  #learn(least: number, most: number): void {
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
