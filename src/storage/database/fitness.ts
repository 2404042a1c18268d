/**
 * Whether a server would keep what is written to it. It can run, answer and take rows and lose them nevertheless: without the
 * library of its engine rows go into a table that is never read again, without the unique key retries are stored twice.
 */
import { OperatorError } from '../../errors.ts';
import type { Sql } from './connect.ts';
import type { Engine } from './engine.ts';

/** Why a server would lose or double rows, and what its operator does about it. */
export interface Unfitness {
  readonly why: string;
  readonly advice: string;
}

/** What an engine needs to be loaded: its extension, and a setting that only its library defines. */
const LIBRARIES: Readonly<Record<Engine, { readonly extension: string; readonly setting: string } | null>> = {
  postgres: null,
  // Not the loader's, which is there also where it has not loaded the library (timescaledb.disable_load).
  timescale: { extension: 'timescaledb', setting: 'timescaledb.restoring' },
  citus: { extension: 'citus', setting: 'citus.shard_count' },
};

/** Settings without which a crash loses commits. Whoever runs without them from the start has chosen that. */
const DURABLE = ['fsync', 'full_page_writes'];

/** Tables whose loss is that of acknowledged events, beside partitions, chunks and shards of `events`. */
const KEPT = [
  'events',
  'apps',
  'event_types',
  'idempotency_keys',
  'count_deltas',
  'grouped_deltas',
  'stale_buckets',
];

const list = (names: readonly string[]): string => names.map((name) => `'${name}'`).join(', ');

const SETTINGS = [
  ...Object.values(LIBRARIES).flatMap((library) => (library === null ? [] : [library.setting])),
  'session_replication_role',
  ...DURABLE,
];

/**
 * The question to a session: one row of extensions, settings, unlogged tables and whether the unique key is there, as texts. A setting
 * that the configuration names and no library defines is not in pg_settings, and current_setting() would show it.
 */
export const FITNESS = `
  SELECT (SELECT string_agg(extname, ' ') FROM pg_extension WHERE extname IN ('citus', 'timescaledb')) AS extensions,
         (SELECT string_agg(name || '=' || setting, ' ') FROM pg_settings WHERE name IN (${list(SETTINGS)})) AS settings,
         (SELECT string_agg(oid::regclass::text, ', ')
            FROM (SELECT oid FROM pg_class
                   WHERE relpersistence = 'u'
                     AND (oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass('events'))
                       OR (relnamespace = to_regnamespace(current_schema())
                           AND (relname IN (${list(KEPT)}) OR (relispartition AND relname LIKE 'events\\_%'))))
                   ORDER BY oid LIMIT 3) AS lost) AS unlogged,
         (to_regclass('events') IS NULL OR EXISTS (
           SELECT FROM pg_index
            WHERE indrelid = to_regclass('events') AND indisunique AND indisvalid AND indisready AND indimmediate
              AND indpred IS NULL))::text AS has_key`;

/**
 * Keeps a session out of the state in which a restore leaves rows in the root table: a reload of the configuration reaches sessions that
 * were judged before.
 */
export const STAY_FIT =
  "SELECT set_config('timescaledb.restoring', 'off', false) FROM pg_extension WHERE extname = 'timescaledb'";

/** The answer to {@link FITNESS}. */
export type FitnessRow = readonly (string | null)[];

/** The durable settings that are on. */
export function durableSettings(row: FitnessRow): readonly string[] {
  const settings = settingsOf(row);
  return DURABLE.filter((name) => settings.get(name) === 'on');
}

/**
 * Judges the answer of a server.
 * @param durable the durable settings that were on before; none if it was not known before
 * @returns null if it is fit
 */
export function unfitness(row: FitnessRow, engine: Engine, durable: readonly string[]): Unfitness | null {
  const [extensions, , unlogged, hasKey] = row;
  const settings = settingsOf(row);
  const library = LIBRARIES[engine];
  if (library !== null && !(extensions ?? '').split(' ').includes(library.extension))
    return {
      why: `the extension ${library.extension} is gone from the database`,
      advice: 'restore a backup; what is written now would be lost',
    };
  if (library !== null && !settings.has(library.setting))
    return {
      why: `the library ${library.extension} is not loaded: rows would go where they are never read again`,
      advice: `set shared_preload_libraries = '${library.extension}' in postgresql.conf and restart PostgreSQL`,
    };
  if (engine === 'timescale' && settings.get('timescaledb.restoring') !== 'off')
    return {
      why: 'timescaledb.restoring is on: rows would go where they are never read again',
      advice: 'run SELECT timescaledb_post_restore(), or remove the setting and reload',
    };
  if (settings.get('session_replication_role') === 'replica')
    return {
      why: 'session_replication_role is replica: triggers and foreign keys do not work',
      advice: 'remove the setting from the role, the database or postgresql.conf',
    };
  if (unlogged !== null && unlogged !== undefined)
    return {
      why: `a crash would empty what is not logged: ${unlogged}`,
      advice: 'run ALTER TABLE … SET LOGGED',
    };
  if (hasKey === 'false')
    return {
      why: 'the unique key of events is gone or invalid: retries would be stored twice',
      advice: 'add it again: ALTER TABLE events ADD CONSTRAINT events_key UNIQUE (app_id, created_at, id)',
    };
  const lost = durable.find((name) => settings.get(name) === 'off');
  if (lost === undefined) return null;
  return {
    why: `${lost} was switched off: a crash would lose acknowledged events`,
    advice: `switch it on and reload; restart Tidemark to go on without it`,
  };
}

function settingsOf([, settings]: FitnessRow): ReadonlyMap<string, string> {
  return new Map(
    (settings ?? '').split(' ').map((text): [string, string] => {
      const [name = '', value = ''] = text.split('=');
      return [name, value];
    }),
  );
}

/**
 * Asks the server of a pool.
 * @param who the beginning of a sentence
 * @throws OperatorError where it is not fit
 */
export async function refuseUnfit(sql: Sql, engine: Engine, who = 'the database'): Promise<void> {
  const [row] = await sql.unsafe<Record<string, string | null>[]>(FITNESS);
  const unfit = row === undefined ? null : unfitness(Object.values(row), engine, []);
  if (unfit !== null) throw new OperatorError(`${who} would lose events: ${unfit.why}; ${unfit.advice}`);
}
