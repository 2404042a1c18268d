/** A shop's events, and questions about them: how an agent asks, and what the events themselves say. */
import { seededRandom } from '../../support/field-oracle.ts';

export const APP_NAME = 'Camping shop';
const DAY = 86_400_000;
const JANUARY = Date.UTC(2026, 0, 1);

export interface ShopEvent {
  readonly typeName: string;
  readonly createdAt: string;
  readonly payload: Payload;
}

interface Payload {
  readonly country: string;
  readonly plan: string;
  readonly user: { readonly id: string };
  readonly path?: string;
  readonly amount?: number;
  readonly coupon?: string;
  readonly error?: { readonly code: string };
  readonly ms?: number;
}

/** What an owner has declared: other paths are not counted. */
export const DECLARED = [
  { path: 'country', kind: 'value' },
  { path: 'amount', kind: 'number' },
  { path: 'amount', kind: 'number', by: 'country' },
  { path: 'user.id', kind: 'distinct' },
];

/** Thirty days of January 2026, 1,500 events, the same in each run; on the 20th payments fail. */
export function eventsOfShop(): readonly ShopEvent[] {
  const whole = seededRandom(20_260_101);
  const random = (): number => whole(1_000_000) / 1_000_000;
  const pick = <T>(list: readonly [T, ...T[]]): T => list[Math.floor(random() * list.length)] ?? list[0];
  return Array.from({ length: 1_500 }, (_, index): ShopEvent => {
    const at = JANUARY + Math.floor((index / 1_500) * 30) * DAY + Math.floor(random() * DAY);
    const common = {
      country: pick(['DE', 'DE', 'DE', 'FR', 'FR', 'US', 'NL']),
      plan: pick(['free', 'free', 'pro']),
      user: { id: `u${Math.floor(random() * 120)}` },
    };
    const isBadDay = Math.floor((at - JANUARY) / DAY) === 19;
    const [typeName, payload] = ((): [string, Payload] => {
      const part = random();
      if (part < (isBadDay ? 0.4 : 0.05))
        return ['payment failed', { ...common, error: { code: pick(['declined', 'timeout', 'expired']) } }];
      if (part < 0.45) {
        const amount = Math.floor(random() * 20_000) / 100;
        return [
          'order placed',
          { ...common, amount, ...(random() < 0.25 && { coupon: pick(['SPRING', 'VIP']) }) },
        ];
      }
      return [
        'page viewed',
        { ...common, path: pick(['/', '/', '/tents', '/sale', '/cart']), ms: Math.floor(random() * 900) },
      ];
    })();
    return { typeName, createdAt: new Date(at).toISOString(), payload };
  });
}

export type Answer = Record<string, unknown>;
export type Tool = (name: string, args?: object) => Promise<Answer>;

export interface Question {
  readonly question: string;
  /** What a model would call, and what it would read in the answers. */
  readonly ask: (tool: Tool, appId: string) => Promise<unknown>;
  /** The same from the events themselves. */
  readonly expected: (events: readonly ShopEvent[]) => unknown;
}

const MONTH = { from: '2026-01-01', to: '2026-02-01' };
const DAY_20 = { from: '2026-01-20', to: '2026-01-21' };

type Of = (event: ShopEvent) => boolean;
const ofType =
  (name: string): Of =>
  ({ typeName }) =>
    typeName === name;
const onDay =
  (day: number): Of =>
  ({ createdAt }) =>
    Number(createdAt.slice(8, 10)) === day;
const orders = ofType('order placed');
const failures = ofType('payment failed');
const views = ofType('page viewed');
const and =
  (...all: readonly Of[]): Of =>
  (event) =>
    all.every((one) => one(event));
const inCountry =
  (country: string): Of =>
  ({ payload }) =>
    payload.country === country;
const count =
  (of: Of) =>
  (events: readonly ShopEvent[]): number =>
    events.filter(of).length;
const cents = (events: readonly ShopEvent[], of: Of): number =>
  Math.round(events.filter(of).reduce((sum, { payload }) => sum + (payload.amount ?? 0) * 100, 0));
const different = (events: readonly ShopEvent[], of: Of): number =>
  new Set(events.filter(of).map(({ payload }) => payload.user.id)).size;

/** Numbers of events by a text, without a tie among the first. */
function tally(
  events: readonly ShopEvent[],
  of: Of,
  by: (event: ShopEvent) => string | undefined,
): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const event of events.filter(of)) {
    const key = by(event);
    if (key !== undefined) counts[key] = (counts[key] ?? 0) + 1;
  }
  return counts;
}
const most = (counts: Record<string, number>): string | undefined =>
  Object.entries(counts).toSorted(([, a], [, b]) => b - a)[0]?.[0];

interface Group {
  readonly by?: Readonly<Record<string, unknown>>;
  readonly typeName?: string;
  readonly other?: true;
  readonly count: number;
  readonly share: number;
  readonly of?: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly series?: readonly { readonly start: string; readonly count: number }[];
}
const groupsOf = (answer: Answer): readonly Group[] => answer.groups as readonly Group[];
const named = (answer: Answer): readonly Group[] => groupsOf(answer).filter(({ other }) => other !== true);
/** Groups as one object, by their only path. */
const byOnly = (answer: Answer): Record<string, number> =>
  Object.fromEntries(
    named(answer).map(({ by = {}, count: events }) => [String(Object.values(by)[0]), events]),
  );
interface Line {
  readonly typeName?: string;
  readonly value?: unknown;
  readonly total: number;
  readonly points: readonly (readonly [string, ...number[]])[];
}
const linesOf = (answer: Answer): readonly Line[] => answer.lines as readonly Line[];
const pointsOf = (answer: Answer): Line['points'] => linesOf(answer)[0]?.points ?? [];
const busiest = (points: Line['points']): string | undefined =>
  points.toSorted(([, a = 0], [, b = 0]) => b - a)[0]?.[0].slice(0, 10);
const centsOf = (amount: unknown): number => Math.round(Number(amount) * 100);
interface Found {
  readonly id: string;
  readonly typeName: string;
  readonly createdAt: string;
  readonly payload: string;
}
const found = (answer: Answer): readonly Found[] => answer.events as readonly Found[];
const newest = (events: readonly ShopEvent[], of: Of): ShopEvent | undefined =>
  events.filter(of).toSorted((a, b) => (a.createdAt < b.createdAt ? 1 : -1))[0];
const first = (answer: Answer, path: string, stat: string): unknown =>
  groupsOf(answer)[0]?.of?.[path]?.[stat];

/** Asks with one call and reads its answer. */
function once(name: string, args: object, read: (answer: Answer) => unknown): Question['ask'] {
  return async (tool, appId) => read(await tool(name, { appId, ...args }));
}

export const QUESTIONS: readonly Question[] = [
  {
    question: 'Which apps can you see?',
    ask: async (tool) => ((await tool('apps')).apps as { name: string }[]).map(({ name }) => name),
    expected: () => [APP_NAME],
  },
  {
    question: 'How many orders has the camping shop had in all, starting from nothing?',
    ask: async (tool) => {
      const { apps } = (await tool('apps')) as { apps: { appId: string }[] };
      const { types } = await tool('describe', { appId: apps[0]?.appId });
      return (types as { typeName: string; events: number }[]).find((one) => one.typeName === 'order placed')
        ?.events;
    },
    expected: count(orders),
  },
  {
    question: 'Which event types are there, most events first?',
    ask: once('describe', {}, ({ types }) =>
      (types as { typeName: string }[]).map(({ typeName }) => typeName).slice(0, 3),
    ),
    expected: (events) =>
      Object.entries(
        tally(
          events,
          () => true,
          (event) => event.typeName,
        ),
      )
        .toSorted(([, a], [, b]) => b - a)
        .map(([name]) => name),
  },
  {
    question: 'Which fields do orders have?',
    ask: once('describe', { typeName: 'order placed' }, ({ fields }) =>
      (fields as { path: string }[]).map(({ path }) => path).toSorted(),
    ),
    expected: () => ['amount', 'country', 'coupon', 'plan', 'user', 'user.id'],
  },
  {
    question: 'Which fields are counted?',
    ask: once('describe', { typeName: 'order placed' }, ({ fields }) =>
      (fields as { path: string; counted?: unknown }[])
        .filter(({ counted }) => counted !== undefined)
        .map(({ path }) => path)
        .toSorted(),
    ),
    expected: () => ['amount', 'country', 'user.id'],
  },
  {
    question: 'When was the first event?',
    ask: once('search', { order: 'asc', limit: 1 }, (answer) => found(answer)[0]?.createdAt),
    expected: (events) => events.map(({ createdAt }) => createdAt).toSorted()[0],
  },
  {
    question: 'On which day did most payments fail?',
    ask: once('series', { ...MONTH, typeName: 'payment failed', interval: '1d' }, (answer) =>
      busiest(pointsOf(answer)),
    ),
    expected: (events) => most(tally(events, failures, ({ createdAt }) => createdAt.slice(0, 10))),
  },
  {
    question: 'Which share of events are failed payments?',
    ask: once(
      'breakdown',
      { by: 'type', ...MONTH },
      (answer) => groupsOf(answer).find(({ typeName }) => typeName === 'payment failed')?.share,
    ),
    expected: (events) => Number((count(failures)(events) / events.length).toPrecision(4)),
  },
  {
    question: 'How many orders used a coupon?',
    ask: once('query', { typeName: 'order placed', filter: 'coupon:*' }, ({ events }) => events),
    expected: count(({ payload }) => payload.coupon !== undefined),
  },
  {
    question: 'How often was each coupon used?',
    ask: once('breakdown', { by: 'coupon', typeName: 'order placed' }, byOnly),
    expected: (events) => tally(events, orders, ({ payload }) => payload.coupon),
  },
  {
    question: 'What is the revenue of each country?',
    ask: once(
      'breakdown',
      { by: 'country', of: 'amount', stat: 'sum', typeName: 'order placed', ...MONTH },
      (answer) =>
        Object.fromEntries(named(answer).map(({ by, of }) => [by?.country, centsOf(of?.amount?.sum)])),
    ),
    expected: (events) =>
      Object.fromEntries(
        ['DE', 'FR', 'US', 'NL'].map((country) => [country, cents(events, inCountry(country))]),
      ),
  },
  {
    question: 'Who placed the largest order?',
    ask: async (tool, appId) => {
      const asked = { appId, typeName: 'order placed' };
      const answer = await tool('query', { ...asked, stats: [{ of: 'amount', stat: 'max' }] });
      const filter = `amount>=${first(answer, 'amount', 'max')}`;
      return JSON.parse(found(await tool('search', { ...asked, filter }))[0]?.payload ?? '{}').user.id;
    },
    expected: (events) =>
      events.filter(orders).toSorted((a, b) => (b.payload.amount ?? 0) - (a.payload.amount ?? 0))[0]?.payload
        .user.id,
  },
  {
    question: 'What is the average order in Germany, to the cent?',
    ask: once('breakdown', { by: 'country', of: 'amount', stat: 'avg', typeName: 'order placed' }, (answer) =>
      centsOf(named(answer).find(({ by }) => by?.country === 'DE')?.of?.amount?.avg),
    ),
    expected: (events) => {
      const own = and(orders, inCountry('DE'));
      return Math.round(cents(events, own) / count(own)(events));
    },
  },
  {
    question: 'How many users had a payment fail on 20 January?',
    ask: once(
      'distinct',
      { path: 'user.id', typeName: 'payment failed', ...DAY_20 },
      ({ distinct }) => distinct,
    ),
    expected: (events) => different(events, and(failures, onDay(20))),
  },
  {
    question: 'Which values had the field plan in the first ten days?',
    ask: once('values', { path: 'plan', from: '2026-01-01', to: '2026-01-11' }, ({ values }) =>
      Object.fromEntries(
        (values as { value: string; events: number }[]).map(({ value, events }) => [value, events]),
      ),
    ),
    expected: (events) =>
      tally(
        events,
        ({ createdAt }) => createdAt < '2026-01-11',
        ({ payload }) => payload.plan,
      ),
  },
  {
    question: 'Which countries are there, by the counts?',
    ask: once('values', { path: 'country', ...MONTH }, ({ values, exact, sample }) => ({
      ...{ exact, sample },
      values: (values as { value: string }[]).map(({ value }) => value).toSorted(),
    })),
    expected: () => ({ exact: true, sample: undefined, values: ['DE', 'FR', 'NL', 'US'] }),
  },
  {
    question: 'Why did payments fail on the worst day?',
    ask: async (tool, appId) => {
      const asked = { appId, typeName: 'payment failed' };
      const day = busiest(pointsOf(await tool('series', { ...asked, ...MONTH, interval: '1d' }))) ?? '';
      const to = new Date(Date.parse(day) + DAY).toISOString();
      return byOnly(await tool('breakdown', { ...asked, by: 'error.code', from: day, to }));
    },
    expected: (events) => tally(events, and(failures, onDay(20)), ({ payload }) => payload.error?.code),
  },
  {
    question: 'What was in the last failed payment?',
    ask: async (tool, appId) => {
      const [last] = found(await tool('search', { appId, typeName: 'payment failed', limit: 1 }));
      const { payload } = await tool('event', { appId, eventId: last?.id });
      return JSON.parse(String(payload));
    },
    expected: (events) => newest(events, failures)?.payload,
  },
  {
    question: 'How many orders by plan and country together?',
    ask: once('breakdown', { by: ['plan', 'country'], typeName: 'order placed' }, (answer) =>
      Object.fromEntries(
        named(answer).map(({ by, count: events }) => [`${by?.plan} ${by?.country}`, events]),
      ),
    ),
    expected: (events) => tally(events, orders, ({ payload }) => `${payload.plan} ${payload.country}`),
  },
  {
    question: 'How many events mention SPRING?',
    ask: once('query', { q: 'SPRING' }, ({ events }) => events),
    expected: count((event) => JSON.stringify(event.payload).includes('SPRING')),
  },
  {
    question: 'How did orders from France go week by week?',
    ask: once(
      'series',
      { ...MONTH, typeName: 'order placed', filter: 'country:FR', interval: '7d' },
      (answer) => pointsOf(answer).map(([, orderCount]) => orderCount),
    ),
    expected: (events) => {
      // Weeks begin on Monday: 29 December, 5, 12, 19 and 26 January.
      const weekOf = ({ createdAt }: ShopEvent): number =>
        Math.floor((Number(createdAt.slice(8, 10)) + 2) / 7);
      const own = events.filter(and(orders, inCountry('FR')));
      return [0, 1, 2, 3, 4].map((week) => own.filter((event) => weekOf(event) === week).length);
    },
  },
  {
    question: 'How slow are the slowest 5 % of page views, within 1 %?',
    ask: once('query', { typeName: 'page viewed', stats: [{ of: 'ms', stat: 'p95' }] }, (answer) => {
      const p95 = Number(first(answer, 'ms', 'p95'));
      return { exact: answer.exact, tens: Math.round(p95 / 30) };
    }),
    expected: (events) => {
      const sorted = events
        .filter(views)
        .map(({ payload }) => payload.ms ?? 0)
        .toSorted((a, b) => a - b);
      return { exact: false, tens: Math.round((sorted[Math.ceil(0.95 * sorted.length) - 1] ?? 0) / 30) };
    },
  },
  {
    question: 'How many orders were placed on 10 January in Berlin time?',
    ask: once(
      'series',
      {
        ...{ from: '2026-01-10T00:00+01:00', to: '2026-01-11T00:00+01:00', typeName: 'order placed' },
        ...{ timezone: 'Europe/Berlin', interval: '1d' },
      },
      (answer) => pointsOf(answer).map(([, events]) => events),
    ),
    expected: (events) => [
      count(
        and(
          orders,
          ({ createdAt }) =>
            createdAt >= '2026-01-09T23:00:00.000Z' && createdAt < '2026-01-10T23:00:00.000Z',
        ),
      )(events),
    ],
  },
  {
    question: 'Of which interval is the number of all orders, and is it exact?',
    ask: once('query', { typeName: 'order placed', ...MONTH }, ({ exact, interval }) => ({
      exact,
      interval,
    })),
    expected: () => ({
      exact: true,
      interval: { from: '2026-01-01T00:00:00.000Z', to: '2026-02-01T00:00:00.000Z' },
    }),
  },
  {
    question: 'Show the three newest page views of January.',
    ask: once('search', { ...MONTH, typeName: 'page viewed', limit: 3 }, (answer) =>
      found(answer).map(({ createdAt }) => createdAt),
    ),
    expected: (events) =>
      events
        .filter(views)
        .map(({ createdAt }) => createdAt)
        .toSorted()
        .toReversed()
        .slice(0, 3),
  },
];
