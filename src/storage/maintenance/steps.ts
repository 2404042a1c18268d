/**
 * The steps of maintenance: one list for all engines. An engine supplies where its tables lie, how old rows are dropped, and the steps
 * that it alone has.
 */
import { PrefixSumBuilder } from '../counts/daily-prefix-sums.ts';
import { HOUR_MS } from '../counts/levels.ts';
import type { Sql, Transaction } from '../database/connect.ts';
import { ConsumerUpkeep } from '../feed/upkeep.ts';
import type { FieldStats } from '../fields/upkeep.ts';
import { moveAppBoundaries } from '../retention.ts';
import { type AppRemoval, removeDeletedApps } from './deleted-apps.ts';
import type { NameOf } from './erasing.ts';
import { ExpiredRows, REMOVE_ROWS_MS, type RemoveExpired } from './expired-rows.ts';
import { type MaintenanceTasks, REMOVE_APPS_MS, runSteps } from './loop.ts';

/** Tables that lie together: those of one server, or the shards of some apps on their node. */
export interface Place {
  /** A pool on their server. */
  readonly sql: Sql;
  readonly nameOf: NameOf;
  /** Runs a transaction there. @returns null where the tables are just being moved */
  change<T>(work: (tx: Transaction) => Promise<T>): Promise<T | null>;
  /** Runs one under the lock of counts. @returns null also where the lock is not free within so many milliseconds */
  changeCounts<T>(waitMs: number, work: (tx: Transaction) => Promise<T>): Promise<T | null>;
}

/**
 * Works at every place that can be reached: on each server at one after the other, until the work returns false there.
 * @returns whether it never did
 */
export type EveryPlace = (sql: Sql, work: (place: Place) => Promise<boolean>) => Promise<boolean>;

export interface Step {
  /** A failure is logged with it. */
  readonly name: string;
  readonly every: 'second' | 'ten minutes';
  /** @param oldestSnapshotSeconds age of the oldest snapshot in use */
  readonly run: (oldestSnapshotSeconds: number) => Promise<unknown>;
}

/** What maintenance is given, whatever the engine is: a pool of one connection, and clocks of milliseconds since 1970. */
export interface MaintenanceOptions {
  readonly sql: Sql;
  readonly settings: { readonly RETENTION_DAYS: number; readonly CONSUMER_REACH_HOURS: number };
  readonly now: () => number;
  /** By which time passes for what is destroyed. */
  readonly judged: () => number;
}

/** What an engine supplies. */
export interface EngineSteps {
  readonly prepare: () => Promise<void>;
  readonly fields: FieldStats & {
    everySecond(oldestSnapshotSeconds: number): Promise<void>;
    everyTenMinutes(): Promise<void>;
  };
  readonly everyPlace: EveryPlace;
  /** The pool of one connection for an app, where it is another one. */
  readonly poolOf?: (appId: number) => Promise<Sql>;
  readonly removal: AppRemoval;
  readonly removeExpired: RemoveExpired;
  /** Moves the retention boundary, and drops what an earlier call has made unreadable. @returns names of partitions or chunks */
  readonly dropOld: () => Promise<readonly string[]>;
  /** Drops what the retention of apps has left empty, likewise. */
  readonly dropEmpty: () => Promise<readonly string[]>;
  /** Removes rows, unless somebody works who would be in the way. Absent: nobody is. */
  readonly alone?: (work: () => Promise<unknown>) => Promise<unknown>;
  /** Does what needs all servers; null while one is away. Absent: there is one. */
  readonly withAll?: <T>(work: () => Promise<T>) => Promise<T | null>;
  /** Steps before the common ones, and after them. */
  readonly first: readonly Step[];
  readonly last?: readonly Step[];
}

/** The tasks of an engine. */
export function maintenanceTasks(
  { sql, settings, now, judged }: MaintenanceOptions,
  engine: EngineSteps,
): MaintenanceTasks {
  const { fields, everyPlace, poolOf, alone = (work) => work(), withAll = (work) => work() } = engine;
  const profiler = new PrefixSumBuilder(sql, now, poolOf);
  const reachMs = settings.CONSUMER_REACH_HOURS * HOUR_MS;
  const consumers = new ConsumerUpkeep(sql, reachMs, now, judged, async (prune) => {
    await everyPlace(sql, async ({ nameOf, change }) => {
      await change((tx) => prune(tx, nameOf));
      return true;
    });
  });
  const expiredRows = new ExpiredRows(
    sql,
    async (_, part, isOver) => engine.removeExpired((await poolOf?.(part.appId)) ?? sql, part, isOver),
    now,
  );
  const removeExpired = async (ms: number): Promise<void> => {
    if (expiredRows.hasSome) await alone(() => expiredRows.removeSome(now() + ms));
  };
  let dropped: string[] = [];
  const drop = async (some: () => Promise<readonly string[]>): Promise<void> =>
    void dropped.push(...((await withAll(some)) ?? []));
  const deletedApps = (): Promise<unknown> =>
    removeDeletedApps(sql, engine.removal, now, now() + REMOVE_APPS_MS, judged());
  const steps: readonly Step[] = [
    ...engine.first,
    { name: 'profiles', every: 'second', run: () => profiler.profileSome() },
    { name: 'fields', every: 'second', run: (oldestSnapshot) => fields.everySecond(oldestSnapshot) },
    { name: 'consumers', every: 'second', run: () => withAll(() => consumers.look()) },
    { name: 'expired rows', every: 'second', run: () => removeExpired(REMOVE_ROWS_MS) },
    { name: 'profiles', every: 'ten minutes', run: () => withAll(() => profiler.look()) },
    { name: 'deleted apps', every: 'ten minutes', run: () => alone(deletedApps) },
    { name: 'retention', every: 'ten minutes', run: () => drop(engine.dropOld) },
    {
      name: 'retention of apps',
      every: 'ten minutes',
      run: async () => {
        await withAll(async () => {
          await moveAppBoundaries(sql, judged());
          await expiredRows.look();
        });
        await removeExpired(REMOVE_APPS_MS);
        await drop(engine.dropEmpty);
      },
    },
    { name: 'fields', every: 'ten minutes', run: () => fields.everyTenMinutes() },
    ...(engine.last ?? []),
  ];
  const runEvery = (period: Step['every'], oldestSnapshotSeconds = 0): Promise<void> => {
    const due = steps.filter(({ every }) => every === period);
    return runSteps(Object.fromEntries(due.map(({ name, run }) => [name, () => run(oldestSnapshotSeconds)])));
  };
  return {
    fields,
    consumers,
    prepare: engine.prepare,
    everySecond: (oldestSnapshotSeconds) => runEvery('second', oldestSnapshotSeconds),
    everyTenMinutes: async () => {
      dropped = [];
      await runEvery('ten minutes');
      return dropped;
    },
  };
}
