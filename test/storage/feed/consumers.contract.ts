/** Consumers on an engine: commit order, leases, and what a consumer costs that stops. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { deliveryFacts, deliveryFindings } from '../../../src/cli/doctor/delivery-facts.ts';
import type { Sql } from '../../../src/storage/database/connect.ts';
import { ENGINES } from '../../../src/storage/engines/engines.ts';
import { type CommittedEvent, textOf } from '../../../src/storage/feed/committed-events.ts';
import { decodePosition, encodePosition, type FeedPosition } from '../../../src/storage/feed/position.ts';
import { RowBuffer } from '../../../src/storage/read/copied-rows.ts';
import { openStorage } from '../../../src/storage/storage.ts';
import { availableEngines, testDatabase } from '../../support/database.ts';
import { seededRandom } from '../../support/field-oracle.ts';
import { first } from '../../support/fuzz.ts';
import { ConsumerWorld, drain, HOUR_MS, idsOf, type OpenCommit, sorted } from './consumer-world.ts';

/** Payloads, and what their times have beyond whole seconds. */
const AWKWARD: readonly (readonly [payload: string, fraction: string])[] = [
  ['{"a":\n 1,\r\n\t"b" : 2}', ''],
  ['{"ü":"😀 \\u0000 \\ud800","☃":"é"}', '.1'],
  ['[1, 2, {"x": []}, null]', '.12'],
  ['{}', '.123456'],
  ['{"s":"\\"quoted\\" \\\\ "}', '.000001'],
  ['"a text"', '.99999'],
  [`{"long":"${'ü'.repeat(60_000)}"}`, '.00001'],
  ['  {"n": 1e400}  ', '.0999'],
];
/** Of a type: the text of its events is much longer than their rows. */
const LONG_NAME = `a "quoted" \\ type${'☃'.repeat(1_500)}`;
/** At least as many as the payload of an event has that has no type any more. */
const GONE_BYTES = 20;

/** Consumers of a world that each engine opens. */
function consumersInOrder(open: () => Promise<ConsumerWorld>): void {
  let world: ConsumerWorld;
  let name = 'consumer 0';
  let number = 0;
  beforeAll(async () => {
    world = await open();
  });
  afterAll(() => world.close());
  beforeEach(() => {
    number += 1;
    name = `consumer ${number}`;
  });
  const add = (from: 'now' | 'start' | Date = 'now'): Promise<boolean> =>
    world.store.add(1, { name, kind: 'consumer', types: [], filter: [], from });

  test('a consumer gets what is committed after it began, in commit order, once', async () => {
    const before = await world.add(3);
    expect(await add()).toBe(true);
    expect(await add()).toBe(false);
    // The later commit is dated earlier.
    const first = await world.add(4);
    const second = await world.add(2, 30_000);
    const third = await world.add(1, 2 * HOUR_MS);
    expect(await drain(world, name)).toEqual([]);
    await world.round();
    const events = await drain(world, name);
    expect(idsOf(events)).not.toContain(before[0]);
    expect(idsOf(events.slice(0, 4)).sort()).toEqual(sorted(first));
    expect(idsOf(events.slice(4, 6)).sort()).toEqual(sorted(second));
    expect(idsOf(events.slice(6))).toEqual(third);
    expect(events[0]?.payload).toMatch(/^\{"n": \d\}$/);
    expect(events[0]?.typeName).toMatch(/^type \d$/);
    await world.round();
    expect(await drain(world, name)).toEqual([]);
  });

  test('another one that begins, or goes on elsewhere, between a commit and its tick takes nothing away', async () => {
    await add();
    const other = `${name} other`;
    const expected: string[] = [];
    for (const change of [
      () => world.store.add(1, { name: other, kind: 'consumer', types: [], filter: [], from: 'now' }),
      () => world.store.seek(1, other, 'now'),
    ]) {
      expected.push(...(await world.add(3)));
      expect(await change()).toBe(true);
      // It has nothing to wait for.
      expect(
        (await world.store.list(1, 'consumer')).find((one) => one.name === other)?.waitingSince,
      ).toBeNull();
      expect(await drain(world, name)).toEqual([]);
      const later = await world.add(2);
      expected.push(...later);
      await world.round();
      expect(sorted(idsOf(await drain(world, other)))).toEqual(sorted(later));
      expect(sorted(idsOf(await drain(world, name)))).toEqual(sorted(expected.splice(0)));
    }
  });

  test('a transaction that commits late comes when it has committed, after those that began after it', async () => {
    await add();
    const late = await world.open(3);
    const quick = await world.add(2);
    await world.round();
    expect(sorted(idsOf(await drain(world, name)))).toEqual(sorted(quick));
    await late.commit();
    const last = await world.add(1);
    await world.round();
    const events = idsOf(await drain(world, name));
    expect(sorted(events.slice(0, 3))).toEqual(sorted(late.ids));
    expect(events.slice(3)).toEqual(last);
  });

  test('a consumer that stopped gets the same order as one that went along', async () => {
    await add();
    const along = `${name} along`;
    await world.store.add(1, { name: along, kind: 'consumer', types: [], filter: [], from: 'now' });
    const seen: string[] = [];
    for (let step = 0; step < 6; step += 1) {
      const late = await world.open(2);
      await world.add(3, step * 60_000);
      await world.round();
      seen.push(...idsOf(await drain(world, along)));
      await late.commit();
      if (step % 2 === 0) await world.round();
    }
    await world.round();
    seen.push(...idsOf(await drain(world, along)));
    expect(new Set(seen).size).toBe(30);
    expect(seen.length).toBe(30);
    expect(idsOf(await drain(world, name))).toEqual(seen);
  });

  test.each([1, 2, 3, 7])('pages of %i are parts of the same order', async (limit) => {
    await add();
    const whole = `${name} whole`;
    await world.store.add(1, { name: whole, kind: 'consumer', types: [], filter: [], from: 'now' });
    await world.add(5);
    await world.add(4, 61_000);
    await world.round();
    await world.add(3);
    await world.round();
    const expected = idsOf(await drain(world, whole));
    expect(expected.length).toBe(12);
    expect(idsOf(await drain(world, name, limit))).toEqual(expected);
  });

  test('what is rolled back never comes', async () => {
    await add();
    const gone = await world.open(2);
    await world.add(1);
    await gone.rollback();
    await world.round();
    expect((await drain(world, name)).length).toBe(1);
  });

  test('counts that were settled by a command hide nothing', async () => {
    await add();
    const ids = [...(await world.add(3)), ...(await world.add(2, 26 * HOUR_MS))];
    await world.settle();
    await world.round();
    expect(sorted(idsOf(await drain(world, name)))).toEqual(sorted(ids));
  });

  test('from the start: what was stored before in order of time, then what is committed', async () => {
    const before = await world.add(2, 5 * HOUR_MS);
    await add('start');
    const after = await world.add(2, 6 * HOUR_MS);
    await world.round();
    const events = await drain(world, name, 5);
    const ids = idsOf(events);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids).toEqual(expect.arrayContaining([...before, ...after]));
    expect(sorted(ids.slice(-2))).toEqual(sorted(after));
    const times = events.slice(0, -2).map(({ createdAt }) => createdAt);
    expect(times).toEqual([...times].sort());
    const [row] = await world.sql<{ count: number }[]>`SELECT count(*)::integer AS count FROM events`;
    expect(ids.length).toBe(row?.count);
  });

  test('a lease is one client’s, until its time is over', async () => {
    await add();
    const ids = await world.add(2);
    await world.round();
    const first = await world.store.lease(1, name, 50);
    if (typeof first === 'string' || 'leasedForSeconds' in first) throw new Error('no lease');
    const other = await world.store.lease(1, name, 1_000);
    if (typeof other === 'object' && 'leasedForSeconds' in other) expect(other.leasedForSeconds).toBe(1);
    await world.sql`UPDATE consumers SET leased_until = now() WHERE name = ${name}`;
    const second = await world.store.lease(1, name, 30_000);
    if (typeof second === 'string' || 'leasedForSeconds' in second) throw new Error('no lease');
    const batch = await world.store.read(1, second.position, { limit: 10, maxBytes: 1e6 });
    expect(sorted(idsOf(batch.events))).toEqual(sorted(ids));
    const { position } = batch;
    expect(await world.store.acknowledge(1, name, { epoch: first.epoch, position, events: 2 })).toBe('old');
    expect(await world.store.acknowledge(1, name, { epoch: second.epoch, position, events: 2 })).toBe('done');
    expect(await world.store.acknowledge(1, name, { epoch: second.epoch, position, events: 2 })).toBe('old');
    expect(await drain(world, name)).toEqual([]);
    expect(await world.store.release(1, 'nobody', 1)).toBe('unknown');
  });

  test('a released batch, and one acknowledged in part, come again from there', async () => {
    await add();
    await world.add(3);
    await world.round();
    const lease = await world.store.lease(1, name, 30_000);
    if (typeof lease === 'string' || 'leasedForSeconds' in lease) throw new Error('no lease');
    const { events } = await world.store.read(1, lease.position, { limit: 10, maxBytes: 1e6 });
    expect(await world.store.release(1, name, lease.epoch)).toBe('done');
    const again = await world.store.lease(1, name, 30_000);
    if (typeof again === 'string' || 'leasedForSeconds' in again) throw new Error('no lease');
    const [one] = events;
    if (one === undefined) throw new Error('no event');
    const partly = { epoch: again.epoch, position: one.position, events: 1 };
    expect(await world.store.acknowledge(1, name, partly)).toBe('done');
    expect(idsOf(await drain(world, name))).toEqual(idsOf(events.slice(1)));
  });

  test('a batch ends at the limit of bytes, and has one event at least', async () => {
    await add();
    await world.add(3);
    await world.round();
    const lease = await world.store.lease(1, name, 1_000);
    if (typeof lease === 'string' || 'leasedForSeconds' in lease) throw new Error('no lease');
    const read = await world.store.read(1, lease.position, { limit: 10, maxBytes: 1 });
    expect(read.events.length).toBe(1);
    expect(read.hasMore).toBe(true);
  });

  test('from the start: a page ends at the limit of bytes, or of events, and hides none', async () => {
    const before = await world.add(4, 7 * HOUR_MS);
    await add('start');
    await world.round();
    const pages = async (most: { limit: number; maxBytes: number }): Promise<readonly string[]> => {
      const ids: string[] = [];
      for (let position = await firstPosition(); position.after?.by === 'history'; ) {
        const { events, ...read } = await world.store.read(1, position, most);
        expect(events.length).toBeLessThanOrEqual(most.limit);
        ids.push(...idsOf(events));
        position = read.position;
      }
      return ids;
    };
    const whole = await pages({ limit: 1_000, maxBytes: 1e6 });
    expect(whole).toEqual(expect.arrayContaining([...before]));
    expect(await pages({ limit: 3, maxBytes: 1e6 })).toEqual(whole);
    expect(await pages({ limit: 1_000, maxBytes: 1 })).toEqual(whole);
    // Two payloads of eight bytes fit.
    expect(await pages({ limit: 1_000, maxBytes: 17 })).toEqual(whole);
  });

  test.each(['now', 'start'] as const)(
    'from %s: an answer has the bytes of its events, page by page, whatever they contain',
    async (from) => {
      const pool = await ENGINES[world.storage.engine].routes(world.sql).at(1);
      await world.sql`
        INSERT INTO event_types (public_id, app_id, name) VALUES ('typ_odd', 1, ${LONG_NAME}) ON CONFLICT DO NOTHING`;
      const [type] = await world.sql<
        { id: number }[]
      >`SELECT id FROM event_types WHERE public_id = 'typ_odd'`;
      if (from === 'now') await add('now');
      const ids = await world.add(AWKWARD.length);
      const times = await pool<{ id: string; second: string }[]>`
        SELECT id, to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') AS second FROM events WHERE app_id = 1`;
      const seconds = new Map(times.map(({ id, second }) => [id, second]));
      for (const [index, [payload, fraction]] of AWKWARD.entries())
        await pool`
          UPDATE events SET payload = ${payload}::text::json, type_id = ${index % 2 === 0 ? 1 : (type?.id ?? 0)},
                 created_at = ${`${seconds.get(ids[index] ?? '')}${fraction}Z`}::text::timestamptz
           WHERE app_id = 1 AND id = ${ids[index] ?? ''}`;
      const many = await world.add(600);
      await pool`UPDATE events SET type_id = ${type?.id ?? 0} WHERE app_id = 1 AND id = ANY(${many.slice(0, 500)}::uuid[])`;
      const [gone = ''] = await world.add(1);
      await pool`UPDATE events SET type_id = 999999 WHERE app_id = 1 AND id = ${gone}`;
      if (from === 'start') await add('start');
      await world.round();
      const texts = await expectedTexts(pool);
      const start = await firstPosition();
      const all = await expectPages(start, texts, { limit: 10_000, maxBytes: 1e8 });
      expect(all).toEqual(expect.arrayContaining([...ids, ...many]));
      expect(all).not.toContain(gone);
      const bytes = texts.sizes(all.slice(0, 300));
      for (const limits of [
        { limit: 200, maxBytes: 1e8 },
        { limit: 1_000, maxBytes: bytes },
        { limit: 1_000, maxBytes: bytes - 1 },
        { limit: 300, maxBytes: 100_000 },
      ])
        expect(await expectPages(start, texts, limits), JSON.stringify(limits)).toEqual(all);
      const pages = await Promise.all(
        [bytes, bytes - 1].map((maxBytes) => world.store.read(1, start, { limit: 1_000, maxBytes })),
      );
      expect(pages.map(({ events }) => events.length)).toEqual([300, 299]);
    },
  );

  interface Expected {
    /** The text of an event, with its position. */
    text(event: CommittedEvent): string;
    sizes(ids: readonly string[]): number;
  }

  async function expectedTexts(pool: Sql): Promise<Expected> {
    const rows = await pool<{ id: string; typeId: number; payload: string; at: string; iso: string }[]>`
      SELECT id, type_id AS "typeId", payload::text AS payload, created_at::text AS at,
             to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.') ||
             lpad((extract(microseconds FROM created_at)::integer % 1000000 / 1000)::text, 3, '0') || 'Z' AS iso
        FROM events WHERE app_id = 1`;
    const types = await world.sql<{ id: number; typeId: string; name: string }[]>`
      SELECT id, public_id AS "typeId", name FROM event_types`;
    const byId = new Map(rows.map((row) => [row.id, row]));
    return {
      text: ({ id, position: { tick, after } }) => {
        const row = byId.get(id);
        const type = types.find((one) => one.id === row?.typeId);
        if (row === undefined || type === undefined) throw new Error('an event that is not there');
        const key = JSON.stringify([tick, after?.by, row.at, id]);
        const position = Buffer.from(key.padEnd(Math.ceil(key.length / 3) * 3)).toString('base64url');
        return (
          `{"id":"${id}","typeId":"${type.typeId}","typeName":${JSON.stringify(type.name)},"payload":${row.payload},` +
          `"createdAt":"${row.iso}","position":"${position}"}`
        );
      },
      sizes: (some) => some.reduce((sum, id) => sum + Buffer.byteLength(byId.get(id)?.payload ?? ''), 0),
    };
  }

  /** Reads on from a position, as objects and as an answer. @returns the ids of all events */
  async function expectPages(
    start: FeedPosition,
    expected: Expected,
    limits: { readonly limit: number; readonly maxBytes: number },
  ): Promise<readonly string[]> {
    const ids: string[] = [];
    /** A page that ended at a limit. */
    let full: readonly string[] | null = null;
    for (let position = start; ; ) {
      const { events, ...rest } = await world.store.read(1, position, limits);
      const answer = new RowBuffer();
      answer.add(Buffer.from('['));
      expect(await world.store.write(1, position, limits, answer)).toEqual({
        ...rest,
        length: events.length,
      });
      expect(answer.bytes.toString()).toBe(`[${events.map(expected.text).join()}`);
      expect(events.map(textOf)).toEqual(events.map(expected.text));
      const page = idsOf(events);
      if (page.length > 1) expect(expected.sizes(page)).toBeLessThanOrEqual(limits.maxBytes);
      expect(page.length).toBeLessThanOrEqual(limits.limit);
      // The event whose type is gone has its place, too.
      if (full !== null && page.length > 0)
        expect(
          full.length + 1 >= limits.limit ||
            expected.sizes([...full, ...page.slice(0, 1)]) + GONE_BYTES > limits.maxBytes,
        ).toBe(true);
      ids.push(...page);
      const { after } = rest.position;
      full = after === null || after.id === '' ? null : page;
      if (!rest.hasMore || (position.after === null && page.length === 0)) return ids;
      position = rest.position;
    }
  }

  test('a consumer that stops lags, then is lost, and goes on where it is told to', async () => {
    await add();
    await world.add(2);
    await world.round();
    world.tasks.consumers.takeNotices();
    world.ahead += 100 * HOUR_MS;
    await world.round();
    const states = (): unknown => world.tasks.consumers.takeNotices().find((one) => one.name === name)?.state;
    expect(states()).toBe('lagging');
    expect(world.tasks.consumers.lagSeconds).toBeGreaterThan(300_000);
    world.ahead += 100 * HOUR_MS;
    await world.round();
    expect(states()).toBe('lost');
    expect(await world.store.lease(1, name, 1_000)).toBe('lost');
    const events = (await openStorage(world.sql)).reader(world.sql);
    expect(deliveryFindings({ deliveries: await deliveryFacts(world.sql, events) })).toContainEqual(
      expect.objectContaining({ level: 'problem', found: expect.stringContaining(`consumer "${name}" of `) }),
    );
    expect(await world.store.seek(1, name, 'now')).toBe(true);
    const ids = await world.add(1);
    await world.round();
    expect(idsOf(await drain(world, name))).toEqual(ids);
    world.ahead = 0;
  });

  test('ticks go when every consumer has passed them', async () => {
    for (const { name: other } of await world.store.list(1, 'consumer'))
      if (other !== name) await world.store.remove(1, other);
    await add();
    for (let step = 0; step < 3; step += 1) {
      await world.add(1);
      await world.round();
    }
    await drain(world, name);
    world.ahead += 120_000;
    await world.round();
    const [row] = await world.sql<{ count: number }[]>`SELECT count(*)::integer AS count FROM feed_ticks`;
    expect(row?.count).toBe(1);
    await world.store.remove(1, name);
    world.ahead += 120_000;
    await world.round();
    expect(await world.sql`SELECT FROM feed_ticks`).toHaveLength(0);
    await world.add(1);
    await world.round();
    expect(await world.sql`SELECT FROM feed_ticks`).toHaveLength(0);
  });

  test.each(first([1, 2, 3]))(
    'transactions that commit up to a minute late, in any order: none missed, none again, none overtaken (%i)',
    async (seed) => {
      await add();
      const random = seededRandom(seed);
      const seen: string[] = [];
      const begun: { readonly step: number; readonly ids: readonly string[]; committedAt: number }[] = [];
      const due: { readonly at: number; readonly open: OpenCommit; readonly of: (typeof begun)[number] }[] =
        [];
      const MOST_OPEN = 5;
      // A round is six seconds later than the one before.
      for (let step = 0; step < 40 || due.length > 0; step += 1) {
        for (const one of due.filter(({ at }) => at <= step)) {
          due.splice(due.indexOf(one), 1);
          if (random(10) === 0) await one.open.rollback();
          else {
            await one.open.commit();
            one.of.committedAt = step;
          }
        }
        if (step < 40 && due.length < MOST_OPEN && random(3) > 0) {
          const open = await world.open(1 + random(4), random(3) * 40_000);
          const of = { step, ids: open.ids, committedAt: Number.POSITIVE_INFINITY };
          begun.push(of);
          due.push({ at: step + random(11), open, of });
        }
        if (random(4) > 0) await world.round();
        if (random(3) === 0) seen.push(...idsOf(await drain(world, name, 1 + random(5))));
      }
      await world.round();
      seen.push(...idsOf(await drain(world, name)));
      const committed = begun.filter(({ committedAt }) => Number.isFinite(committedAt));
      expect(sorted(seen)).toEqual(sorted(committed.flatMap(({ ids }) => ids)));
      const place = new Map(seen.map((id, index) => [id, index]));
      const placesOf = (ids: readonly string[]): number[] => ids.map((id) => place.get(id) ?? Number.NaN);
      for (const before of committed)
        for (const after of committed)
          if (before.committedAt < after.step)
            expect(Math.max(...placesOf(before.ids))).toBeLessThan(Math.min(...placesOf(after.ids)));
    },
  );

  test('events that are deleted between two pages are left out, and hide no other', async () => {
    await add();
    await world.add(3);
    await world.add(3);
    await world.round();
    const whole = await firstPage(6);
    const [first, second, third] = whole;
    if (first === undefined) throw new Error('no event');
    expect(idsOf(await firstPage(1))).toEqual(idsOf(whole.slice(0, 1)));
    await world.sql`DELETE FROM events WHERE app_id = 1 AND id = ANY(${[second?.id ?? '', third?.id ?? '']}::uuid[])`;
    // The keys of all six are known.
    const { events } = await world.store.read(1, first.position, { limit: 10, maxBytes: 1e6 });
    expect(events).toEqual(whole.slice(3));
    expect(idsOf(await drain(world, name, 1))).toEqual(idsOf([...whole.slice(0, 1), ...whole.slice(3)]));
  });

  async function firstPosition(): Promise<FeedPosition> {
    const lease = await world.store.lease(1, name, 30_000);
    if (typeof lease === 'string' || 'leasedForSeconds' in lease) throw new Error('no lease');
    await world.store.release(1, name, lease.epoch);
    return lease.position;
  }

  /** Reads without an acknowledgment. */
  async function firstPage(limit: number): Promise<readonly CommittedEvent[]> {
    const lease = await world.store.lease(1, name, 30_000);
    if (typeof lease === 'string' || 'leasedForSeconds' in lease) throw new Error('no lease');
    const { events } = await world.store.read(1, lease.position, { limit, maxBytes: 1e6 });
    await world.store.release(1, name, lease.epoch);
    return events;
  }
}

describe.each(availableEngines())('consumers on %s', (engine) =>
  consumersInOrder(async () => ConsumerWorld.create(await testDatabase(engine))),
);

test('a position is an opaque text that only its own form is read from', () => {
  const after = {
    by: 12,
    createdAt: '2026-11-24 08:00:00.123+00',
    id: '019c132c-5bbb-777b-84d1-f2b892d3c667',
  };
  const position = { tick: '4711', after } as const;
  expect(decodePosition(encodePosition(position))).toEqual(position);
  expect(decodePosition(encodePosition({ tick: '4711', after: null }))).toEqual({
    tick: '4711',
    after: null,
  });
  const history = { tick: '-12', after: { ...after, by: 'history', id: '' } } as const;
  expect(decodePosition(encodePosition(history))).toEqual(history);
  // As earlier releases wrote it.
  expect(decodePosition(btoa(JSON.stringify(['4711', 12, after.createdAt, after.id])))).toEqual(position);
  for (const bad of [
    '',
    'x',
    btoa('{}'),
    btoa('[]'),
    btoa('["1","2"]'),
    btoa('["x"]'),
    btoa('["1",-1,"x","y"]'),
  ])
    expect(decodePosition(bad)).toBeNull();
});
