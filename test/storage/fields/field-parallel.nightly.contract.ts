/** Reads of declared fields are exact in every snapshot while writers, imports, replays, folds, backfills, retention and the removal of an app run beside them. */
import { EventEmitter, once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { declareField, listFields } from '../../../src/apps/fields.ts';
import { DAY_MS, HOUR_MS, LEVELS, MINUTE_MS } from '../../../src/storage/counts/levels.ts';
import type { Sql, Transaction } from '../../../src/storage/database/connect.ts';
import { readInstallation } from '../../../src/storage/database/installation-id.ts';
import { ENGINES } from '../../../src/storage/engines/engines.ts';
import type { FieldKind } from '../../../src/storage/fields/payload-values.ts';
import { markAppDeleted, removeDeletedApps } from '../../../src/storage/maintenance/deleted-apps.ts';
import { createReader } from '../../../src/storage/read/event-reader.ts';
import { SNAPSHOT_LOCK } from '../../../src/storage/read/snapshot.ts';
import { moveBoundary } from '../../../src/storage/retention.ts';
import type { EventRow } from '../../../src/storage/write/accepted-event.ts';
import { ImportWriter } from '../../../src/storage/write/import-writer.ts';
import { ReplayWriter } from '../../../src/storage/write/replay-writer.ts';
import { availableEngines } from '../../support/database.ts';
import {
  type FieldDatabase,
  type FieldEvent,
  fieldDatabase,
  type OpenFieldDatabase,
} from '../../support/field-database.ts';
import {
  expectPages,
  expectSeries,
  type FieldRead,
  type Random,
  randomPayload,
  seededRandom,
  within,
} from '../../support/field-oracle.ts';

const TODAY = Math.floor(Date.now() / DAY_MS) * DAY_MS;
const NOW = TODAY + 12 * HOUR_MS;
/** Snapshots whose reads are compared, each while everything else runs. */
const ROUNDS = 20;
/** In this one all fields are declared: it begins when their past is counted. */
const COMPLETE = 14;
/** From this one on days leave by retention. */
const LAST_ROUNDS = 16;
/** In this one another app is removed. */
const REMOVED = 8;
/** How often each of the others works beside a snapshot: what is stored must not outgrow the reads. */
const TURNS = 4;

const DECLARED = [
  { path: ['country'], kind: 'value', typeName: null, backfill: true },
  { path: ['total'], kind: 'number', typeName: null, backfill: true },
  { path: ['status'], kind: 'value', typeName: null, backfill: false },
  { path: ['user', 'id'], kind: 'value', typeName: 'type1', backfill: true },
  { path: ['user', 'id'], kind: 'number', typeName: 'type1', backfill: true },
] as const;

function fieldsInParallel(open: OpenFieldDatabase): void {
  let fields: FieldDatabase;
  let importer: ImportWriter<EventRow>;
  let replayer: ReplayWriter;
  /** Of the events of another app, which is removed. */
  let writing: Promise<void> = Promise.resolve();
  let isRemoving = false;
  /** At first longer than any event is old. */
  let retainedDays = 4;
  beforeAll(async () => {
    fields = await open({ now: NOW, from: NOW - 4 * DAY_MS, until: NOW + DAY_MS });
    const { sql, database } = fields;
    const engine = ENGINES[database.engine].writes;
    const about = { database: sql.pool.database, engine, appId: 1, boundary: 0, timeoutMs: 60_000 };
    importer = new ImportWriter(about);
    const { identity } = await readInstallation(sql);
    const log = { warn: () => undefined, error: () => undefined };
    const now = (): number => performance.now();
    replayer = new ReplayWriter({
      ...{ nodes: fields.nodes, engine, identity, log, now },
    });
    for (const field of DECLARED.slice(0, 2)) await declareField(sql, { appId: 2, ...field });
  });
  afterAll(async () => {
    await importer.close();
    await replayer.close();
    await fields.close();
  });

  /** @param kinds of ages */
  function newRows(random: Random, count: number, kinds = 3): FieldEvent[] {
    return Array.from({ length: count }, () => {
      const ago = [random(20 * MINUTE_MS), random(3 * HOUR_MS), random(3 * DAY_MS)][random(kinds)] ?? 0;
      const at = fields.clock.now - ago;
      return { id: fields.newId(at), at, typeId: 1 + random(2), payload: randomPayload(random) };
    });
  }

  /** Everything that runs beside the reads, each as often as it can. */
  function others(onUpkeep: () => void): readonly (() => Promise<unknown>)[] {
    const { sql, alone, upkeep, database, clock } = fields;
    const second = fields.writer(1);
    const [first, other, third, fourth, fifth] = [1, 2, 3, 4, 5].map((seed) =>
      seededRandom(20_261_122 + seed),
    ) as [Random, Random, Random, Random, Random];
    return [
      // Dated back: what is older than the boundary is refused.
      async () => {
        const events = newRows(fourth, 1 + fourth(8)).map((row) => ({ ...row, appId: 1, createdAt: row.at }));
        const { imported, refused } = await importer.write(events.toSorted((a, b) => a.at - b.at));
        expect(imported + refused.length).toBe(events.length);
      },
      async () => {
        const events = newRows(fifth, 1 + fifth(3), 2).map(({ at, typeId, ...row }) => {
          const source = { appId: 'app1', typeId: `type${typeId}`, typeName: `type${typeId}` };
          return { ...row, createdAt: at, source };
        });
        expect(new Set(await replayer.write(events))).toEqual(new Set(['stored']));
      },
      async () => {
        if (isRemoving) await removeDeletedApps(alone, ENGINES[database.engine].removal, () => 0, 1);
        else writing = fields.write(newRows(fifth, 5).map((row) => ({ ...row, typeId: row.typeId + 2 })));
        await writing;
      },
      () => fields.write(newRows(first, 1 + first(30))),
      () => fields.write(newRows(other, 1 + other(10), 1), second),
      async () => {
        await fields.store(newRows(third, 1 + third(2), 1));
        clock.now += third(MINUTE_MS);
      },
      async () => {
        await upkeep.everySecond(third(2) * 30);
        onUpkeep();
      },
      () => fields.settle(),
      async () => {
        await new Promise(setImmediate);
      },
      async () => {
        await moveBoundary(sql, { days: retainedDays, now: NOW });
        await upkeep.everyTenMinutes();
      },
    ];
  }

  /** Compares reads with all rows, in one snapshot. @param answers takes note of the reads that the counts could answer */
  async function expectExact(random: Random, answers: Answers): Promise<void> {
    return await fields.counts.begin('isolation level repeatable read read only', async (tx) => {
      const isOneServer = fields.nodes.names.length === 0;
      if (isOneServer) await tx`LOCK TABLE ${tx(SNAPSHOT_LOCK)} IN ACCESS SHARE MODE`;
      const events = await tx<FieldEvent[]>`
        SELECT id, (extract(epoch FROM created_at) * 1000)::float8 AS at, type_id AS "typeId", payload::text AS payload
          FROM events WHERE app_id = 1 AND created_at >= (SELECT readable_from FROM retention)`;
      const counts = inSnapshotOf(tx, fields.sql);
      const declared = await tx<CountedField[]>`
        SELECT path, kind, type_id AS "typeId", (extract(epoch FROM complete_from) * 1000)::float8 AS "completeFrom"
          FROM declared_fields WHERE app_id = 1 AND complete_from IS NOT NULL`;
      const onRead = (read: FieldRead, isAnswered: boolean): void => {
        if (!declared.some((field) => isCounted(field, read, events))) return;
        answers.possible += 1;
        if (isAnswered) answers.given += 1;
      };
      const oracle = { counts, reader: createReader(counts), events, random, now: fields.clock.now, onRead };
      const boundary = await tx<
        { at: Date | number }[]
      >`SELECT greatest(readable_from, 'epoch') AS at FROM retention`;
      const hasAll = Number(boundary[0]?.at) < TODAY - 3 * DAY_MS;
      // Of what is before the boundary, series have counts, and the test no rows.
      await expectPages(oracle);
      if (hasAll) await expectSeries(oracle);
    });
  }

  async function removeOther(): Promise<void> {
    isRemoving = true;
    await writing;
    await fields.sql.begin(async (tx) => {
      await tx`DELETE FROM apps WHERE id = 2`;
      await markAppDeleted(tx, 2);
    });
  }

  /** Nothing is counted of the app that was removed. */
  async function expectRemoved(): Promise<void> {
    const { sql, alone, database } = fields;
    const { removal } = ENGINES[database.engine];
    while (!(await removeDeletedApps(alone, removal, () => 0, 1)));
    const tables = LEVELS.map(({ name }) => `field_${name}_counts`);
    for (const table of [...tables, 'field_month_counts', 'uncounted_minutes']) {
      expect(await sql`SELECT FROM ${sql(table)} WHERE app_id = 2 LIMIT 1`, table).toHaveLength(0);
    }
  }

  async function arePastsLeft(): Promise<boolean> {
    const declared = await listFields(fields.sql, 1);
    return declared.some(({ completeFrom, backfill }) => completeFrom === null || backfill);
  }

  test(`${ROUNDS} snapshots agree with their rows`, async () => {
    const random = seededRandom(7);
    let isOver = false;
    const rounds = new EventEmitter().setMaxListeners(0);
    let round = 0;
    const loop = async (work: () => Promise<unknown>): Promise<void> => {
      while (!isOver) {
        const begun = round;
        for (let turn = 0; turn < TURNS && !isOver; turn += 1) await work();
        if (!isOver && round === begun) await once(rounds, 'next');
      }
    };
    let upkeeps = 0;
    const onUpkeep = (): void => {
      upkeeps += 1;
      rounds.emit('upkeep');
    };
    const running = Promise.all(others(onUpkeep).map(loop));
    // A failure of what runs beside ends the test.
    const failed = running.then(
      () => undefined,
      (error: unknown) => error,
    );
    const answers = { possible: 0, given: 0 };
    try {
      for (; round < ROUNDS; round += 1) {
        const field = round % 3 === 1 ? DECLARED[(round - 1) / 3] : undefined;
        if (field !== undefined) await declareField(fields.sql, { appId: 1, ...field });
        if (round === REMOVED) await removeOther();
        if (round === LAST_ROUNDS) retainedDays = 2;
        while (round === COMPLETE && (await arePastsLeft())) {
          rounds.emit('next');
          await Promise.race([once(rounds, 'upkeep'), running]);
        }
        const compared = expectExact(random, answers);
        rounds.emit('next');
        await compared;
        // Where upkeep takes longer than reads, these wait for it now and then.
        while (upkeeps < round) await Promise.race([once(rounds, 'upkeep'), running]);
      }
    } finally {
      isOver = true;
      rounds.emit('next');
    }
    expect(await failed).toBeUndefined();
    expect(await listFields(fields.sql, 1)).toHaveLength(DECLARED.length);
    await expectRemoved();
    expect(answers.possible).toBeGreaterThan(20);
    expect(answers.given / answers.possible).toBeGreaterThan(0.9);
  });
}

/** How many reads the counts could answer, and have answered. */
interface Answers {
  possible: number;
  given: number;
}

interface CountedField {
  /** As JSON. */
  readonly path: string;
  readonly kind: FieldKind;
  readonly typeId: number | null;
  /** Milliseconds since 1970. */
  readonly completeFrom: number;
}

/** Whether a field is counted for all events that a read asks for. */
function isCounted(
  { path, kind, typeId, completeFrom }: CountedField,
  read: FieldRead,
  events: readonly FieldEvent[],
): boolean {
  if (path !== JSON.stringify(read.path) || kind !== read.kind) return false;
  if (typeId !== null && (read.typeIds?.length !== 1 || read.typeIds[0] !== typeId)) return false;
  return !events.some((event) => within(read, event) && event.at < completeFrom);
}

/** Reads that open a snapshot get that of a transaction. */
function inSnapshotOf(tx: Transaction, { pool }: Sql): Sql {
  const begin = (_options: string, run: (own: Transaction) => Promise<unknown>): Promise<unknown> => run(tx);
  // Of a pool, reads use nothing else.
  return Object.assign((...given: Parameters<Sql>) => tx(...given), { begin, pool }) as unknown as Sql;
}

describe.each(availableEngines())('on %s', (engine) =>
  fieldsInParallel((time) => fieldDatabase(engine, time)),
);
