/** The state of past days: which are closed, until when, and what is counted and logged of it. */
import pg from 'pg';
import { expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { PastWriter, startOfCurrentDay } from '../../../src/ingest/queue/past-writer.ts';
import { ConnectionLost, type WriteConnection } from '../../../src/storage/database/copy-connection.ts';
import { oneServer } from '../../../src/storage/database/nodes.ts';
import { ENGINES } from '../../../src/storage/engines/engines.ts';
import type { AcceptedEvent } from '../../../src/storage/write/accepted-event.ts';
import { REFUSING_PAST } from '../../../src/storage/write/failures.ts';
import { captured } from '../../support/service.ts';
import { SOURCE } from '../../support/source.ts';

const DAY_MS = 86_400_000;
const LOCKED = sqlError('55P03');
/** No partition, and none can be made. */
const DETACHED = [sqlError('23514'), sqlError('42P17')] as const;

function sqlError(code: string): pg.DatabaseError {
  return Object.assign(new pg.DatabaseError(code, 0, 'error'), { code });
}

/** A writer whose database answers as the test says. */
function setUp() {
  /** What COPY and any other statement fail with. */
  const database: { copy: Error | null; query: Error | null } = { copy: null, query: null };
  const clock = { ms: 0 };
  const lines: Record<string, unknown>[] = [];
  const kept: { readonly ids: readonly string[]; readonly reason: string }[] = [];
  let copies = 0;
  const connection: WriteConnection = {
    hasLeft: false,
    copy: async ({ release }) => {
      copies += 1;
      release();
      if (database.copy !== null) throw database.copy;
    },
    query: async () => {
      if (database.query !== null) throw database.query;
      return { rows: [], rowCount: 0, command: '', oid: 0, fields: [] };
    },
    close: async () => undefined,
  };
  const nodes = oneServer(() => connection);
  const past = new PastWriter({
    nodes,
    engine: ENGINES.postgres.writes,
    connections: 1,
    timeouts: { ...REFUSING_PAST, unreachableMs: 0, retryMs: 0 },
    keep: async (group, { reason }) => {
      kept.push({ ids: group.map(({ id }) => id), reason });
      return group.map(() => null);
    },
    log: captured(lines),
    now: () => clock.ms,
  });
  const messages = (): unknown[] => lines.flatMap(({ msg, day }) => (day === undefined ? [] : [msg]));
  const writer = { write: past.writeAt(nodes.home), past };
  return { writer, database, clock, kept, messages, copies: () => copies };
}

function event(day: number, id = `day ${day}`): AcceptedEvent {
  return { id, appId: 1, typeId: 1, createdAt: day * DAY_MS, payload: '{}', source: SOURCE };
}

const CLOSED = 'write: past day not writable';
const OPEN = 'write: past day writable again';

test('a locked day is closed for a second, for twice as long each time, and for a minute at most', async () => {
  const { writer, database, clock } = setUp();
  database.copy = LOCKED;
  const waits: unknown[] = [];
  for (let round = 0; round < 9; round += 1) {
    const [outcome] = await writer.write([event(1)]);
    if (!(outcome instanceof Rejection)) throw new Error('The event was not refused.');
    const wait = Number(outcome.headers['Retry-After']);
    waits.push(wait);
    clock.ms += wait * 1_000 - 1;
    expect(writer.past.refusalOf(event(1).createdAt)).toBe(outcome);
    clock.ms += 1;
    expect(writer.past.refusalOf(event(1).createdAt)).toBeNull();
  }
  expect(waits).toEqual([1, 2, 4, 8, 16, 32, 60, 60, 60]);
  // Ten minutes without events later it starts again.
  clock.ms += 600_000;
  expect(await writer.write([event(1)])).toMatchObject([{ headers: { 'Retry-After': '1' } }]);
});

test('events of a closed day are refused without a statement, those of other days of the group are stored', async () => {
  const { writer, database, copies } = setUp();
  database.copy = LOCKED;
  await writer.write([event(2)]);
  database.copy = null;
  const before = copies();
  const outcomes = await writer.write([event(1), event(2, 'a'), event(2, 'b'), event(3)]);
  expect(outcomes.map((outcome) => outcome === null)).toEqual([true, false, false, true]);
  expect(copies()).toBe(before + 1);
  expect(await writer.write([event(2)])).toMatchObject([{ reason: 'unavailable' }]);
  expect(copies()).toBe(before + 1);
  // The one that found it, and three that came later.
  expect(writer.past.refused).toEqual({ blocked: 4, 'no-partition': 0 });
});

test('a day whose partition cannot be made is closed for another reason, which its events are told', async () => {
  const { writer, database } = setUp();
  [database.copy, database.query] = DETACHED;
  expect(await writer.write([event(1), event(1, 'b')])).toMatchObject([
    { reason: 'invalidBody' },
    { reason: 'invalidBody' },
  ]);
  [database.copy, database.query] = [LOCKED, null];
  await writer.write([event(2)]);
  expect([writer.past.closedDays('blocked'), writer.past.closedDays('no-partition')]).toEqual([1, 1]);
  expect(writer.past.refused).toEqual({ blocked: 1, 'no-partition': 2 });
});

test('a day is logged when it is closed and when it takes events again, however often it is retried', async () => {
  const { writer, database, clock, messages } = setUp();
  database.copy = LOCKED;
  for (let round = 0; round < 3; round += 1) {
    await writer.write([event(1)]);
    clock.ms += 60_000;
  }
  expect(writer.past.closedDays('blocked')).toBe(0);
  expect(messages()).toEqual([CLOSED]);
  database.copy = null;
  expect(await writer.write([event(1)])).toEqual([null]);
  expect(messages()).toEqual([CLOSED, OPEN]);
  // It is forgotten: the next back-off is the first one again.
  database.copy = LOCKED;
  expect(await writer.write([event(1)])).toMatchObject([{ headers: { 'Retry-After': '1' } }]);
  expect(messages()).toEqual([CLOSED, OPEN, CLOSED]);
});

test('a database that is away, or whose commit is uncertain, closes no day: its events go where others of an outage go', async () => {
  const { writer, database, kept } = setUp();
  for (const sent of [false, true]) {
    database.copy = new ConnectionLost(new Error('cut'), sent);
    database.query = new ConnectionLost(new Error('cut'), sent);
    expect(await writer.write([event(1)])).toEqual([null]);
  }
  expect(kept.map(({ reason }) => reason)).toEqual(['unavailable', 'outcomeUnknown']);
  expect(writer.past.closedDays('blocked') + writer.past.closedDays('no-partition')).toBe(0);
});

test('until an hour after midnight the day before is of now', () => {
  const midnight = 20_000 * DAY_MS;
  expect(startOfCurrentDay(midnight + 3_600_000 - 1)).toBe(midnight - DAY_MS);
  expect(startOfCurrentDay(midnight + 3_600_000)).toBe(midnight);
});
