/**
 * POST /v1/apps/:appId/query: one question about events, whether or not something is declared for it. Counts answer it where they can.
 * Otherwise the rows are read from the newest on, and the answer so far is sent every half second.
 */
import type { Logger } from 'pino';
import type { QueryLine } from '../../api-types/answers.ts';
import { type SearchedBy, searchedByBoth } from '../../base/searched-by.ts';
import { inSlices, TimeSlice } from '../../base/time-slice.ts';
import { invalidField, Rejection } from '../../errors.ts';
import type { Outcome } from '../../http/exchange.ts';
import { Query } from '../../http/query.ts';
import type { ReadPlace, ReadSlots, ReadTurn } from '../../http/read-slots.ts';
import type { SeriesRequest } from '../../storage/counts/series.ts';
import { EventGroups } from '../../storage/fields/event-groups.ts';
import { partsFor } from '../../storage/fields/number-summary.ts';
import type { EventSearch } from '../../storage/read/event-search.ts';
import type { Position } from '../../storage/read/positions.ts';
import { type AppRead, appReadByParts, type ReadCall } from '../app-read.ts';
import { shownBuckets, timestamp, tooManyBuckets } from '../charts/series-rows.ts';
import { type Admitted, type Exports, ExportWaiter } from '../export/exports.ts';
import { payloadFilter } from '../filter/payload-filter.ts';
import { findScopedTypes } from '../scope-query.ts';
import { answerOfCounts, type CountedAnswer, declarationsFor } from './counted-query.ts';
import {
  type AnsweredGroup,
  type AnswerFrame,
  answeredGroup,
  headOf,
  QUERY_LINE,
  shownGroup,
} from './query-answer.ts';
import { MAX_ROWS, parseQueryBody, QUERY_BODY, type QueryBody } from './query-body.ts';
import type { QueryBudget, Spending } from './query-budget.ts';

const MAX_BODY_BYTES = 65_536;
/** Memory of the groups of one query. */
const MAX_MEMORY_BYTES = 64 * 1_048_576;
/** Buckets where the width is chosen by the service. */
const AUTO_BUCKETS = 200;
/** The first answer comes sooner than the following ones. */
const FIRST_PART_MS = 200;
const PART_MS = 500;
/** Rows of one step. */
const STEP_ROWS = 16_384;
/** Rows of a line that is not the last. */
const MAX_PARTIAL_ROWS = 1_000;
/** Characters of a line that are sent at once. */
const CHUNK = 262_144;

export const QUERY = {
  path: '/query',
  maxBodyBytes: MAX_BODY_BYTES,
  query: new Query({}),
  operation: {
    id: 'queryEvents',
    summary: 'Ask one question about events, by up to three paths of their payloads.',
    description:
      'Counts answer what is declared. Otherwise events are read from the newest on, and every half second a line tells what is known so far. ' +
      'The last line has `"complete":true`. Reading has a budget of seconds in any 60 (`QUERY_SECONDS_PER_MINUTE`).',
    body: {
      description: 'The question. Without any field: how many events there are.',
      content: { 'application/json': { schema: QUERY_BODY } },
    },
    answers: {
      200: {
        description: 'The answer so far, a line each time: described as an array of lines.',
        content: { 'application/x-ndjson': { schema: { type: 'array', items: QUERY_LINE } } },
      },
    },
    refusals: ['eventTypeNotFound', 'rateLimitExceeded', 'tooManyQueries'],
  },
} as const;

export interface QueryReadOptions {
  /** Answers to queries that are being sent. */
  readonly queries: Exports;
  readonly budget: QueryBudget;
  readonly stats: QueryStats;
  readonly log: Logger;
  /** Whether the caller may still read the app: checked before each line. */
  readonly mayRead: (call: ReadCall) => Promise<boolean>;
  readonly now: () => number;
  readonly monotonic: () => number;
  /** For tests; by default 64 MB. */
  readonly maxMemoryBytes?: number;
  /** For tests: events of one step. */
  readonly stepRows?: number;
}

/** For metrics. */
export interface QueryStats {
  /** Answered by counts. */
  counted: number;
  /** Answered by events. */
  scanned: number;
  /** Events that were looked at. */
  events: number;
  truncated: number;
}

export function queryRead(options: QueryReadOptions): AppRead {
  const { queries, budget } = options;
  return appReadByParts(QUERY, async (call, _parameters, slots) => {
    const query = parseQueryBody(call.text);
    if (query instanceof Rejection) return query;
    const spending = await budget.begin(call.holder, call.turns);
    if (spending instanceof Rejection) return spending;
    const waiter = new ExportWaiter(call.exchange);
    const turn = { kind: 'query', turns: call.turns, waiter } as const;
    const admitted = await queries.admit(call.turns, () =>
      slots.run(turn, (place) => begun(options, place, call.app.id, query)),
    );
    if (admitted instanceof Rejection) return admitted;
    return streamed(options, { call, query, spending, slots, turn, waiter }, admitted);
  });
}

/** What is found before the answer begins: what is refused then has a status that says so. */
interface Begun {
  readonly frame: AnswerFrame;
  readonly counted: CountedAnswer | null;
  readonly search: EventSearch;
}

async function begun(
  { now }: QueryReadOptions,
  { sql, events }: ReadPlace,
  appId: number,
  query: QueryBody,
): Promise<Begun | Rejection> {
  const types = await findScopedTypes(sql, appId, query);
  if (types instanceof Rejection) return types;
  const { typeIds, exceptTypes } = types;
  const { from, to, timezone, buckets } = query;
  const request: SeriesRequest = {
    appId,
    typeIds,
    from,
    // The current millisecond is part of the present.
    until: to ?? Math.max(now(), from ?? 0) + 1,
    timezone,
    buckets: buckets === null ? 1 : buckets === 'auto' ? AUTO_BUCKETS : buckets,
    exactEnds: 'both',
  };
  const frame = await events.frame(request);
  if (frame === 'too fine')
    return invalidField('interval', 'must be 15m or wider: the range reaches to where only counts are kept');
  if (typeof frame === 'string') {
    const { param, problem } = await tooManyBuckets(events, request);
    return invalidField(param, problem);
  }
  const refused = buckets === null ? null : tooManyRows(query, frame.starts.length);
  if (refused !== null) return refused;
  const { interval } = frame;
  return {
    frame: { ...frame, isOpen: to === null },
    counted: await answerOfCounts(events, request, query),
    search: events.search(
      { appId, typeIds, exceptTypes, ...interval, order: 'desc', after: null },
      payloadFilter(query.filter, query),
    ),
  };
}

function tooManyRows({ limit, by }: QueryBody, buckets: number): Rejection | null {
  if (by.length === 0 || limit * buckets <= MAX_ROWS) return null;
  return invalidField(
    'limit',
    `must be at most ${Math.floor(MAX_ROWS / buckets)} with ${buckets} buckets: an answer has at most 100,000 rows. Or choose a wider interval`,
  );
}

interface Asked {
  readonly call: ReadCall;
  readonly query: QueryBody;
  readonly spending: Spending;
  readonly slots: ReadSlots;
  readonly turn: ReadTurn;
  readonly waiter: ExportWaiter;
}

function streamed(
  options: QueryReadOptions,
  asked: Asked,
  { admission, prepared }: Admitted<Begun>,
): Outcome {
  const { queries, mayRead } = options;
  const { call, waiter } = asked;
  return {
    status: 200,
    contentType: 'application/x-ndjson',
    // nginx would keep the lines until the end.
    headers: { 'X-Accel-Buffering': 'no' },
    filler: '',
    isFinite: true,
    open: (stream) => {
      waiter.begin(stream);
      void queries.send(admission, stream, linesOf(options, asked, prepared), () => mayRead(call));
    },
  };
}

async function* linesOf(options: QueryReadOptions, asked: Asked, begun: Begun): AsyncGenerator<Buffer> {
  const { stats } = options;
  const { counted, frame } = begun;
  if (counted === null) {
    stats.scanned += 1;
    yield* new RowsAnswer(options, asked, begun).lines();
    return;
  }
  stats.counted += 1;
  const { query, call } = asked;
  const events = counted.groups.reduce((sum, { count }) => sum + count, 0);
  const line = {
    complete: true,
    counted: true,
    scannedFrom: timestamp(frame.interval.from),
    events,
    looked: 0,
    ...headOf(query, frame),
    ...leftOutOf(query, counted.leftOut),
  };
  yield* written(line, counted.groups, { query, frame, slices: new TimeSlice(call.turns) });
}

function leftOutOf(
  { measures }: QueryBody,
  leftOut: CountedAnswer['leftOut'],
): Pick<QueryLine, 'leftOut'> | undefined {
  const some = leftOut.flatMap(({ several, unrepresentable }, index) =>
    several + unrepresentable === 0
      ? []
      : [[measures[index]?.sent ?? '', { several, unrepresentable }] as const],
  );
  return some.length === 0 ? undefined : { leftOut: Object.fromEntries(some) };
}

interface Writing {
  readonly query: QueryBody;
  readonly frame: AnswerFrame;
  readonly slices: TimeSlice;
}

/** A line, in parts where it is long. */
async function* written(
  line: Omit<QueryLine, 'groups'>,
  groups: readonly AnsweredGroup[],
  { query, frame, slices }: Writing,
): AsyncGenerator<Buffer> {
  const buckets = query.buckets === null ? null : shownBuckets(frame);
  let text = `${JSON.stringify(line).slice(0, -1)},"groups":[`;
  for (const [index, group] of groups.entries()) {
    if (index > 0) text += ',';
    text += JSON.stringify(shownGroup(query, buckets, group));
    if (text.length >= CHUNK) {
      yield Buffer.from(text);
      text = '';
    }
    if (slices.isOverAfterStep) await slices.next();
  }
  yield Buffer.from(`${text}]}\n`);
}

/** An answer that is read from rows. */
class RowsAnswer {
  readonly #options: QueryReadOptions;
  readonly #asked: Asked;
  readonly #begun: Begun;
  readonly #groups: EventGroups;
  readonly #slices: TimeSlice;
  #looked = 0;
  #position: Position | null = null;
  #searchedBy: SearchedBy | null = null;
  #isAtEnd = false;
  #stopped: Pick<QueryLine, 'stopped' | 'retryAfterSeconds'> | null = null;

  constructor(options: QueryReadOptions, asked: Asked, begun: Begun) {
    this.#options = options;
    this.#asked = asked;
    this.#begun = begun;
    const { by, measures, buckets } = asked.query;
    this.#groups = new EventGroups({
      by: by.map(({ path }) => path),
      measures: measures.map(({ path, kind, stats }) => ({
        path,
        kind,
        parts: partsFor(stats),
      })),
      starts: buckets === null ? [] : begun.frame.starts,
      maxBytes: options.maxMemoryBytes ?? MAX_MEMORY_BYTES,
    });
    this.#slices = new TimeSlice(asked.call.turns);
  }

  async *lines(): AsyncGenerator<Buffer> {
    const { slots, turn } = this.#asked;
    for (let ms = FIRST_PART_MS; !this.#isAtEnd && this.#stopped === null; ms = PART_MS) {
      const refused = await slots.run(turn, (place) => this.#readPart(place, ms));
      if (refused instanceof Rejection)
        this.#stopped = {
          stopped: 'busy',
          retryAfterSeconds: Number(refused.headers['Retry-After'] ?? 1),
        };
      if (!this.#isAtEnd && this.#stopped === null) yield* this.#partialLine();
    }
    this.#note();
    yield* this.#lastLine();
  }

  #note(): void {
    const { log, stats } = this.#options;
    const { isTruncated: truncated, events } = this.#groups;
    if (truncated) stats.truncated += 1;
    const { call, spending } = this.#asked;
    const { stopped } = this.#stopped ?? {};
    const fields = { appId: call.app.appId, holder: call.turns, looked: this.#looked, events, truncated };
    const line = { ...fields, readingMs: Math.round(spending.spentMs), ...(stopped && { stopped }) };
    if (stopped !== undefined || truncated) log.info(line, 'query: not answered in full');
    else log.debug(line, 'query: answered by reading');
  }

  /** @returns null, unlike a turn that it has not been given */
  async #readPart({ pass }: ReadPlace, ms: number): Promise<null> {
    const { monotonic, stats, stepRows = STEP_ROWS } = this.#options;
    const { spending, waiter, call } = this.#asked;
    const groups = this.#groups;
    const deadline = monotonic() + ms;
    for (;;) {
      const startedAt = monotonic();
      const { looked, position, searchedBy } = await this.#begun.search.visit(
        stepRows,
        (event) => groups.add(event),
        call.turns,
        () => waiter.settled,
      );
      this.#looked += looked;
      stats.events += looked;
      this.#position = position;
      if (searchedBy !== null) this.#searchedBy = searchedByBoth(this.#searchedBy, searchedBy);
      this.#isAtEnd = position === null;
      const wait = await spending.spend(monotonic() - startedAt);
      if (this.#isAtEnd) return null;
      if (groups.isFull) this.#stopped = { stopped: 'memory' };
      else if (wait !== null) this.#stopped = { stopped: 'budget', retryAfterSeconds: wait };
      if (this.#stopped !== null || monotonic() >= deadline || !(await pass())) return null;
    }
  }

  get #head(): Omit<QueryLine, 'groups' | 'complete'> {
    const { frame } = this.#begun;
    return {
      counted: false,
      scannedFrom: timestamp(
        this.#isAtEnd ? frame.interval.from : (this.#position?.at ?? frame.interval.until),
      ),
      events: this.#groups.events,
      looked: this.#looked,
      ...(this.#searchedBy !== null && { searchedBy: this.#searchedBy }),
      ...(this.#groups.isTruncated && { truncated: true }),
      ...headOf(this.#asked.query, frame),
    };
  }

  get #writing(): Writing {
    return { query: this.#asked.query, frame: this.#begun.frame, slices: this.#slices };
  }

  async *#partialLine(): AsyncGenerator<Buffer> {
    const most = Math.min(this.#asked.query.limit, MAX_PARTIAL_ROWS);
    const top = await inSlices(this.#groups.top(most), this.#slices);
    let rows = 0;
    const shown = top.filter(({ buckets }, index) => {
      rows += Math.max(1, buckets.size);
      return index === 0 || rows <= MAX_PARTIAL_ROWS;
    });
    const groups = shown.map((group) => answeredGroup(group, false));
    const rest = this.#groups.events - shown.reduce((sum, { count }) => sum + count, 0);
    const other = { values: [], isOther: true, count: rest, stats: [], buckets: [], missing: 0 };
    yield* written({ complete: false, ...this.#head }, rest > 0 ? [...groups, other] : groups, this.#writing);
  }

  async *#lastLine(): AsyncGenerator<Buffer> {
    const { query } = this.#asked;
    const top = await inSlices(this.#groups.top(query.limit), this.#slices);
    const rest = await inSlices(this.#groups.others(top), this.#slices);
    const groups = top.map((group) => answeredGroup(group, false));
    const declare = declarationsFor(query);
    const line = {
      complete: this.#isAtEnd,
      ...this.#head,
      ...leftOutOf(query, this.#groups.leftOut([...top, rest])),
      ...(declare.length > 0 && { declare }),
      ...this.#stopped,
    };
    const all = rest.count > 0 ? [...groups, answeredGroup(rest, true)] : groups;
    yield* written(line, all, this.#writing);
  }
}
