/**
 * What the link of a share reaches: its answer, and the check of its password. There are no parameters, so that there is one
 * answer, which is made at most once a second, whoever asks.
 */
import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf } from '../../accounts/routes/body.ts';
import { throttled } from '../../accounts/sign-in/backoff.ts';
import type { Passwords } from '../../accounts/sign-in/passwords.ts';
import type { SignInChallenges } from '../../accounts/sign-in/sign-in-challenge.ts';
import type { SharedSignInLimits } from '../../accounts/sign-in/sign-in-limits.ts';
import type { SharedData, ShareKey } from '../../api-types/answers.ts';
import { numberTypes } from '../../apps/event-types.ts';
import { FRESH_MS, type Share, type Shares } from '../../apps/shares.ts';
import { parseRange } from '../../base/ranges.ts';
import { Ending } from '../../base/slots.ts';
import { DAY_MS } from '../../base/time-units.ts';
import { deadline } from '../../base/timeout.ts';
import { digestOf } from '../../base/token-text.ts';
import { asksForHidden, OWN_RANGES, parseChartView, shownToStrangers } from '../../base/view.ts';
import { LookupCache } from '../../cache/lookup-cache.ts';
import { Rejection } from '../../errors.ts';
import { ACCEPT_ENCODING, compressedAnswer, takesCoding } from '../../http/compressed-answer.ts';
import { done } from '../../http/data.ts';
import { type Exchange, type Outcome, TOO_MANY_UNSENT } from '../../http/exchange.ts';
import type { ReadPlace, ReadSlots, ReadWaiter } from '../../http/read-slots.ts';
import type { Route } from '../../http/route.ts';
import { intervalsOf, questionsOf, readBoardCharts } from '../charts/board-route.ts';
import { type BoardQuestion, checkChart, conditionsOf } from '../charts/chart-query.ts';
import { readEventPage } from '../events/events-read.ts';
import { parseFilters } from '../filter/payload-filter.ts';

export interface SharedRoutesOptions {
  readonly api: Api;
  readonly shares: Shares;
  readonly passwords: Passwords;
  readonly limits: SharedSignInLimits;
  /** Signs that the password of a share was right. */
  readonly keys: SignInChallenges;
  readonly slots: ReadSlots;
  /** Longest time that an answer is worked on, in milliseconds. */
  readonly timeoutMs: number;
  readonly now: () => number;
  readonly monotonic: () => number;
}

// Not a failure in the authentication log: a page may embed it long after its end, and nobody guesses 256 bits.
const NO_SHARE = new Rejection('shareNotFound', 'It was revoked, has ended, or the link is not complete.');
const PASSWORD_REQUIRED = new Rejection('passwordRequired', 'The link needs a password too.');
const WRONG = new Rejection('wrongPassword', 'The password of the link is wrong.');
const PASSWORD = bodyOf({ password: { type: 'string', maxLength: 1_000 }, keep: { type: 'boolean' } }, [
  'password',
]);
/** How long a screen that keeps its key does not ask for the password again. */
const KEPT_MS = 30 * DAY_MS;

const NOT_BROKEN_DOWN =
  'This chart has no lines: its field is not counted for them. Whoever shared it sees more on the page of the app.';
const NO_LIST = 'The events cannot be listed. Whoever shared them sees the reason on the page of the app.';
const NOT_SEARCHED = new Rejection('invalidParameters', NO_LIST);
const NO_CHART = 'This chart cannot be shown. Whoever shared it sees the reason on the page of the app.';

/** The request header with what {@link ShareKey} is. */
const KEY_HEADER = 'x-share-key';

/** Bars of a chart that is one of several, and of one that is alone; as the dashboard's own pages have them. */
const BARS = { several: 60, alone: 100 } as const;
const LINES = 12;
/** The newest events of a view. */
const LISTED = {
  ...{ typeName: [], type: [], cursor: null, limit: 50 },
  ...({ order: 'desc', total: 'none' } as const),
};
/** Payload bytes after which the list ends. */
const LISTED_BYTES = 65_536;
/** What a list that has to be searched for may look at, once a second. */
const LIST_BUDGET = { rows: 20_000, ms: 100 } as const;

/** Characters of a digest in hexadecimal. */
const DIGEST_CHARACTERS = 64;
/** Answers that are remembered, for a second each. */
const MAX_ANSWERS = 100;

export function sharedRoutes(options: SharedRoutesOptions): readonly Route[] {
  const { api, shares, passwords, limits, keys } = options;
  const answers = new LookupCache<SharedAnswer>({
    load: async (key) => {
      const share = await shares.find(key.slice(0, DIGEST_CHARACTERS));
      return share === null ? null : await answerOf(options, share);
    },
    max: MAX_ANSWERS,
    maxNegatives: MAX_ANSWERS,
    ttlMs: FRESH_MS,
    now: options.monotonic,
  });
  return [
    api.read(
      '/api/shared/:token',
      'public',
      async ({ exchange, parameters }) => {
        const digest = digestOfLink(parameters);
        const share = await shares.find(digest);
        if (share === null) return NO_SHARE;
        if (!mayRead(keys, share, exchange)) return PASSWORD_REQUIRED;
        const answer = await answers.get(keyOf(digest, share, options.monotonic()));
        if (answer === null) return NO_SHARE;
        return exchange.hasRoomForLargeAnswer ? await answer.for(exchange) : TOO_MANY_UNSENT;
      },
      [KEY_HEADER, ACCEPT_ENCODING],
    ),
    api.change(
      'POST',
      '/api/shared/:token/key',
      'public',
      PASSWORD,
      async (call, { password, keep = false }) => {
        const { client, parameters, note } = call;
        const share = await shares.find(digestOfLink(parameters));
        if (share === null) return NO_SHARE;
        const { shareId, passwordHash } = share;
        // As if the share were an account: its guessers are those of sign-ins.
        const attempt = await limits.admit({ text: shareId, key: shareId }, client.networks);
        if (typeof attempt === 'number') return throttled(attempt);
        const { isKnown, failures } = attempt;
        const matches = await passwords.matches(password, passwordHash, { ...client, isKnown, failures });
        if (matches instanceof Rejection) {
          await attempt.notChecked();
          return matches;
        }
        if (!matches || passwordHash === null) {
          note('share.failure', { shareId, reason: WRONG.code });
          return WRONG;
        }
        await attempt.succeeded();
        return done<ShareKey>({ key: keys.create(shareId, passwordHash, keep ? KEPT_MS : undefined) });
      },
    ),
  ];
}

/** The sites that may show the page of a link in a frame. */
export async function embeddersOf(shares: Shares, token: string): Promise<readonly string[]> {
  return (await shares.find(digestOf(token).toString('hex')))?.origins ?? [];
}

/**
 * No answer is given again that an erasure has made false. While one runs, an answer is that of a second by the clock: it ends a second
 * after its rows are gone at the earliest.
 */
function keyOf(digest: string, { erasures: [finished, running] }: Share, now: number): string {
  return `${digest} ${finished}${running === 0 ? '' : ` ${Math.floor(now / FRESH_MS)}`}`;
}

function digestOfLink([token = '']: readonly string[]): string {
  return digestOf(token).toString('hex');
}

function mayRead(keys: SignInChallenges, { shareId, passwordHash }: Share, exchange: Exchange): boolean {
  if (passwordHash === null) return true;
  const claim = keys.read(exchange.header(KEY_HEADER));
  return claim !== null && claim.id === shareId && claim.isOf(passwordHash);
}

/** An answer, compressed at most once in each way; or why there is none. */
class SharedAnswer {
  readonly #outcome: Outcome;
  readonly #coded = new Map<string, Promise<Outcome>>();

  constructor(outcome: Outcome) {
    this.#outcome = outcome;
  }

  async for(exchange: Exchange): Promise<Outcome> {
    const coding = (['br', 'gzip'] as const).find((one) => takesCoding(exchange, one)) ?? '';
    let coded = this.#coded.get(coding);
    if (coded === undefined) {
      coded = compressedAnswer({ header: () => coding, settled: false }, this.#outcome);
      this.#coded.set(coding, coded);
    }
    return await coded;
  }
}

/** Makes the answer of a share, in the turns of its maker's account. It is worked on for all who wait, so none of them ends it. */
async function answerOf(options: SharedRoutesOptions, share: Share): Promise<SharedAnswer> {
  const waiter = new Deadline(options.timeoutMs);
  try {
    const turn = { kind: 'share', turns: share.turns, waiter } as const;
    return new SharedAnswer(await options.slots.run(turn, (place) => readShare(options, place, share)));
  } finally {
    waiter.clear();
  }
}

async function readShare(options: SharedRoutesOptions, place: ReadPlace, share: Share): Promise<Outcome> {
  const { app, name, views, list } = share;
  const now = options.now();
  const shared = questionOf(share, now);
  const problem = checkChart(shared);
  if (problem !== null) return new Rejection('invalidParameters', problem);
  const asked = { views, shared: [shared] };
  const [charts = []] = await readBoardCharts({ ...options, now: () => now }, place, app, asked);
  const [view] = views;
  const found =
    list === 'none' || view === undefined ? null : await readList(options, place, share, view.search);
  const isListed = found !== null && !(found instanceof Rejection);
  return done<SharedData>({
    ...{ name, range: share.range, timezone: share.timezone },
    // The conditions of a view, and why they have no chart or list, may say more than its numbers: each member is named.
    charts: charts.map(
      ({ viewId, name: title, search, series, part, partType, numbers, range, problem: why }) => ({
        ...{ viewId, name: title, series, part, partType, range },
        search: shownToStrangers(search, series?.lines.map(({ key }) => key) ?? []),
        numbers: numbers && { ...numbers, notBy: null },
        problem: why && (series === null ? NO_CHART : NOT_BROKEN_DOWN),
      }),
    ),
    problem: found instanceof Rejection ? NO_LIST : null,
    ...(isListed ? found : { types: {}, events: [] }),
  });
}

/** What all charts of a share have in common. */
function questionOf({ range: text, timezone, filters, views }: Share, now: number): BoardQuestion {
  const isOwn = text === OWN_RANGES;
  return {
    ...(isOwn ? NO_INTERVALS : intervalsOf(parseRange(text) ?? { kind: 'all' }, now, timezone)),
    ...{ ranges: isOwn ? OWN_RANGES : 'board', timezone, lines: LINES, filter: filters },
    buckets: views.length === 1 ? BARS.alone : BARS.several,
  };
}

const NO_INTERVALS = { from: null, to: null, compareFrom: null, compareTo: null };

/** The latest events of a view. */
async function readList(
  { now, monotonic }: SharedRoutesOptions,
  place: ReadPlace,
  share: Share,
  search: string,
): Promise<Pick<SharedData, 'types' | 'events'> | Rejection> {
  const view = parseChartView(new URLSearchParams(search));
  const asked = questionsOf(view, questionOf(share, now()));
  if (asked instanceof Rejection) return asked;
  const filter = parseFilters(asked.chart.filter);
  const { rows } = conditionsOf(asked.chart);
  if (typeof filter === 'string' || rows instanceof Rejection) return NOT_SEARCHED;
  const page = await readEventPage(
    { maxPageBytes: LISTED_BYTES, monotonic, searchBudget: LIST_BUDGET },
    { app: share.app, ...place },
    { ...asked.chart, ...LISTED, filter, hidden: asksForHidden(view) ? 'include' : 'exclude' },
  );
  if (page instanceof Rejection) return page;
  const { events } = page;
  const types = await numberTypes(place.sql, share.app.id, [...new Set(events.map(({ typeId }) => typeId))]);
  return {
    types: Object.fromEntries([...types].map(([id, { name }]) => [id, name])),
    events: events.map(({ id, typeId, createdAt, payload }) => ({
      ...{ id, typeId, createdAt: createdAt.toISOString() },
      ...(share.list === 'payloads' && { payload }),
    })),
  };
}

/** A wait for a read that nobody but its deadline ends. */
class Deadline extends Ending implements ReadWaiter {
  readonly hasRoomForLargeAnswer = true;
  readonly clear: () => void;

  constructor(ms: number) {
    super();
    this.clear = deadline(ms, () => this.settle());
  }
}
