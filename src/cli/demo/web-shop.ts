/** The events of a fictitious web shop: realistic, and the same in each run. */
import { DAY_MS, MINUTE_MS } from '../../base/time-units.ts';

export interface DemoEvent {
  readonly typeName: string;
  readonly at: number;
  readonly payload: Readonly<Record<string, unknown>>;
}

/** Visits in an average minute of the first day. */
const VISITS_PER_MINUTE = 3;
/** The shop grows by this share of its first day, each day. */
const GROWTH_PER_DAY = 0.008;
/** How long a bad deployment stays. */
const INCIDENT_MS = 38 * MINUTE_MS;
/** Days before the last one on which the bad deployment was. */
const INCIDENT_DAYS_AGO = 6;

const COUNTRIES = ['DE', 'DE', 'DE', 'DE', 'FR', 'FR', 'NL', 'AT', 'US', 'US', 'GB', 'PL'] as const;
const PRODUCTS = [
  ['tent', 189],
  ['sleeping bag', 129.95],
  ['stove', 64.5],
  ['headlamp', 39.9],
  ['water filter', 34.9],
  ['mug', 12.5],
] as const;
const PATHS = ['/', '/', '/tents', '/tents/two', '/stoves', '/sale', '/cart', '/help'] as const;

/** The shop over some days that end with the one of `until`. */
export class WebShop {
  readonly #firstDay: number;
  /** When the deployment went out that broke the payments. */
  readonly incidentAt: number;

  constructor(until: number, days: number) {
    const lastDay = Math.floor(until / DAY_MS);
    this.#firstDay = lastDay - days;
    this.incidentAt = (lastDay - INCIDENT_DAYS_AGO) * DAY_MS + 14 * 60 * MINUTE_MS + 5 * MINUTE_MS;
  }

  /** The events of `[from, until)`, in order of time. */
  *events(from: number, until: number): Generator<DemoEvent> {
    for (let minute = Math.floor(from / MINUTE_MS); minute * MINUTE_MS < until; minute += 1) {
      const events = [...this.#ofMinute(minute)].sort((a, b) => a.at - b.at);
      for (const event of events) if (event.at >= from && event.at < until) yield event;
    }
  }

  *#ofMinute(minute: number): Generator<DemoEvent> {
    const random = randomOf(minute);
    const start = minute * MINUTE_MS;
    yield* this.#deployment(start);
    const expected = VISITS_PER_MINUTE * this.#demand(start);
    let visits = Math.floor(expected);
    if (random() < expected - visits) visits += 1;
    for (; visits > 0; visits -= 1) yield* this.#visit(start, random);
  }

  /** How busy the shop is: evenings and weekends are, nights are not. */
  #demand(at: number): number {
    const hour = (at % DAY_MS) / (60 * MINUTE_MS);
    const day = Math.floor(at / DAY_MS);
    const daily = 0.25 + 0.75 * (0.5 - 0.5 * Math.cos((2 * Math.PI * (hour - 3)) / 24)) ** 1.5 * 1.8;
    const weekday = (day + 4) % 7;
    const weekly = weekday === 0 || weekday === 6 ? 1.35 : 1;
    return daily * weekly * (1 + GROWTH_PER_DAY * (day - this.#firstDay));
  }

  #isBroken(at: number): boolean {
    return at >= this.incidentAt && at < this.incidentAt + INCIDENT_MS;
  }

  /** On Tuesdays and Thursdays at ten, and around the incident. */
  *#deployment(start: number): Generator<DemoEvent> {
    const day = Math.floor(start / DAY_MS);
    const isRegular = [2, 4].includes((day + 4) % 7) && start % DAY_MS === 10 * 60 * MINUTE_MS;
    const isRollback = start === this.incidentAt + INCIDENT_MS;
    if (!isRegular && !isRollback && start !== this.incidentAt) return;
    const number = 100 + Math.floor((day - this.#firstDay) / 3.5) + (start === this.incidentAt ? 1 : 0);
    const payload = { version: `1.${number}.0`, service: 'checkout', rollback: isRollback };
    yield { typeName: 'deployment', at: start, payload };
  }

  *#visit(start: number, random: () => number): Generator<DemoEvent> {
    let at = start + Math.floor(random() * MINUTE_MS);
    const person = { user: `u_${Math.floor(random() * 40_000)}`, country: pick(COUNTRIES, random) };
    const device = random() < 0.62 ? 'phone' : 'desktop';
    const pages = 1 + Math.floor(random() ** 2 * 6);
    for (let page = 0; page < pages; page += 1) {
      const duration = Math.round(40 + 60 * -Math.log(1 - random()) * (this.#isBroken(at) ? 6 : 1));
      const payload = { ...person, device, path: pick(PATHS, random), duration_ms: duration };
      yield { typeName: 'page viewed', at, payload };
      at += 2_000 + Math.floor(random() * 9_000);
    }
    if (random() < (this.#isBroken(at) ? 0.2 : 0.006))
      yield {
        typeName: 'error',
        at,
        payload: { status: this.#isBroken(at) ? 502 : 500, path: '/api/pay', country: person.country },
      };
    if (random() < 0.24) yield* this.#purchase(at, person, random);
  }

  *#purchase(
    at: number,
    person: { readonly user: string; readonly country: string },
    random: () => number,
  ): Generator<DemoEvent> {
    const [product, price] = pick(PRODUCTS, random);
    yield { typeName: 'product added', at, payload: { ...person, product, price } };
    if (random() > 0.4) return;
    const quantity = random() < 0.8 ? 1 : 2;
    const total = Math.round(quantity * price * 100) / 100;
    const order = `o_${Math.floor(at / 1_000).toString(36)}${Math.floor(random() * 1_296).toString(36)}`;
    const failed = random() < (this.#isBroken(at) ? 0.7 : 0.03);
    yield failed
      ? {
          typeName: 'payment failed',
          at: at + 4_000,
          payload: { ...person, order, total, reason: 'declined' },
        }
      : { typeName: 'order placed', at: at + 4_000, payload: { ...person, order, product, quantity, total } };
  }
}

function pick<T>(values: readonly T[], random: () => number): T {
  return values[Math.floor(random() * values.length)] as T;
}

/** Numbers from 0 to 1 by chance, the same for the same seed: mulberry32 by Tommy Ettinger (public domain). */
function randomOf(seed: number): () => number {
  let state = Math.imul(seed, 0x9e3779b1) | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
