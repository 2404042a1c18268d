/**
 * The shards of a node that hold the same apps, as a database of its own: a schema of the node has views of them with the names that
 * the tables have on one server, and views as there. So whatever counts and reads declared fields is the same SQL for both, and
 * needs no other node. Rows are changed through these views, too.
 *
 * The views of a shard go with it when it is moved. On its new node they are made when they are missed.
 */
import {
  errorCode,
  SQLSTATE,
  type Sql,
  type Transaction,
  type Transactions,
  unlessLocked,
} from '../../database/connect.ts';
import { SHARE_LOCK, type ShardGroup, shardGroups } from './shards.ts';

/** To be raised when a migration changes one of the tables or views. */
const VERSION = 126;
const PREFIX = 'tidemark_shards_';

/** What the node has under another name than one server, where that is the coordinator's. */
const OTHER_NAMES: Readonly<Record<string, string>> = { field_states: 'declared_fields' };

/** Columns of tables that have more than those of one server. */
const COLUMNS: Readonly<Record<string, string>> = {
  field_series: 'id, field_id, type_id, value, by_value, is_complete',
};

/** The views that are made of the tables, each after those that it needs. */
const VIEWS = [
  'new_counts',
  ...['minute', 'quarter_hour', 'hour', 'day', 'month'].map((level) => `events_per_${level}`),
  'settled_day_counts',
  'settled_quarter_hour_counts',
  'ready_profiles',
  'stale_buckets',
  'pending_marks',
  'stamped_minutes',
  'outlived_counts',
  'next_fold',
  ...['minute', 'quarter_hour', 'hour', 'day', 'month'].map((level) => `fields_per_${level}`),
];
/** Made last: where it is, all others are. */
const LAST_VIEW = VIEWS.at(-1) ?? '';

/**
 * For the lock of the shards, which comes after the snapshot: whoever moves them keeps it until they have left, so that waiting for it
 * would be followed by work on what is no longer used. Should that happen nevertheless, the work changes nothing else.
 */
const SHARD_LOCK_MS = 20;

/** The shards are not on this node, or no longer. */
export class ShardsElsewhere extends Error {
  constructor() {
    super('The shards have been moved to another node of the cluster');
  }
}

/** The schema is not there yet, or no longer: {@link makeShardSchema} makes it. */
export class NoShardSchema extends Error {
  constructor(cause?: unknown) {
    super('The shards have no schema on their node', { cause });
  }
}

/** @param shard of `events` */
function schemaOf(shard: string): string {
  return `${PREFIX}${shard}_${VERSION}`;
}

/**
 * The shards of a group as a database that takes transactions and nothing else.
 * @param pool  on their node
 * @param shard of `events`
 */
export function shardsAsDatabase(pool: Sql, shard: string): Transactions {
  const begin = async <T>(mode: string, work: (tx: Transaction) => Promise<T>): Promise<T> => {
    try {
      return await pool.begin(mode, async (tx) => {
        await enter(tx, mode, shard);
        return await work(tx);
      });
    } catch (error) {
      // The views, or the shards, were dropped.
      if (MISSING.has(errorCode(error))) throw new NoShardSchema(error);
      throw error;
    }
  };
  return { begin: begin as Sql['begin'], pool: pool.pool };
}

const MISSING: ReadonlySet<string> = new Set([SQLSTATE.undefinedTable, SQLSTATE.invalidSchemaName]);

async function enter(tx: Transaction, mode: string, shard: string): Promise<void> {
  const schema = schemaOf(shard);
  if (!mode.includes('read only')) await enterToWrite(tx, mode, shard);
  const [found] = await tx<{ isHere: boolean; hasViews: boolean }[]>`
    SELECT set_config('search_path', ${schema}, true), to_regclass(${`${schema}.${LAST_VIEW}`}) IS NOT NULL AS "hasViews",
           EXISTS (SELECT FROM pg_dist_placement
                    WHERE shardid = ${shard}::text::bigint AND groupid = (SELECT groupid FROM pg_dist_local_group)) AS "isHere"`;
  if (found?.isHere !== true) throw new ShardsElsewhere();
  if (!found.hasViews) throw new NoShardSchema();
}

async function enterToWrite(tx: Transaction, mode: string, shard: string): Promise<void> {
  // Before the snapshot, which the first SELECT takes: see withFieldsLocked().
  const lock = mode.includes('repeatable read')
    ? `LOCK TABLE ${schemaOf(shard)}.field_folds IN EXCLUSIVE MODE NOWAIT;`
    : '';
  await tx.unsafe(`
    SET LOCAL citus.enable_manual_changes_to_shards = on;
    ${lock}
    SET LOCAL lock_timeout = ${SHARD_LOCK_MS}`);
  // The shard of events is enough: the others are moved together with it.
  await tx`SELECT lock_shard_metadata(${SHARE_LOCK}, ARRAY[${shard}::text::bigint])`;
  await tx`SET LOCAL lock_timeout = DEFAULT`;
}

/** The number of a group's shard of `events`. */
export function shardOf({ nameOf }: ShardGroup): string {
  return nameOf('events').slice('events_'.length);
}

/**
 * Makes the schema of a group of shards, if the group is on the node.
 * @param sql  on the coordinator
 * @param pool on the node
 * @throws lock_not_available while others make or read it
 */
export async function makeShardSchema(sql: Sql, pool: Sql, shard: string): Promise<void> {
  const group = (await shardGroups(pool)).find((one) => shardOf(one) === shard);
  if (group === undefined) throw new ShardsElsewhere();
  const definitions = await sql<{ name: string; text: string }[]>`
    SELECT relname AS name, pg_get_viewdef(pg_class.oid) AS text
      FROM pg_class JOIN unnest(${VIEWS}::text[]) WITH ORDINALITY AS wanted (name, place) ON relname = wanted.name
     WHERE relnamespace = current_schema()::regnamespace AND relkind = 'v' ORDER BY place`;
  await pool.begin('isolation level read committed', async (tx) => {
    await tx.unsafe(FOR_DDL);
    await tx`SELECT pg_advisory_xact_lock(hashtext('tidemark shards'))`;
    const [{ tables } = { tables: '' }] = await tx<{ tables: string }[]>`SELECT current_schema() AS tables`;
    await tx.unsafe(schemaText(group, shard, tables, definitions));
  });
}

function schemaText(
  { nameOf, names }: ShardGroup,
  shard: string,
  tables: string,
  definitions: readonly { readonly name: string; readonly text: string }[],
): string {
  const schema = schemaOf(shard);
  const shardNamed = (name: string): string => `"${tables}".${nameOf(name)}`;
  return [
    `CREATE SCHEMA IF NOT EXISTS ${schema}`,
    ...names.map(
      (name) =>
        `CREATE OR REPLACE VIEW ${schema}.${OTHER_NAMES[name] ?? name} AS SELECT ${COLUMNS[name] ?? '*'} FROM ${shardNamed(name)}`,
    ),
    // One server has a sequence for the ids, and no column for the app.
    `CREATE OR REPLACE FUNCTION ${schema}.add_series() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
       NEW.id := (SELECT coalesce(max(id), 0) + 1 FROM ${shardNamed('field_series')});
       INSERT INTO ${shardNamed('field_series')} (app_id, id, field_id, type_id, value, by_value, is_complete)
       SELECT app_id, NEW.id, NEW.field_id, NEW.type_id, NEW.value, NEW.by_value, NEW.is_complete
         FROM ${shardNamed('field_states')} WHERE id = NEW.field_id;
       RETURN NEW;
     END $$`,
    `CREATE OR REPLACE TRIGGER add_series INSTEAD OF INSERT ON ${schema}.field_series
       FOR EACH ROW EXECUTE FUNCTION ${schema}.add_series()`,
    `SET LOCAL search_path = ${schema}`,
    ...definitions.map(({ name, text }) => `CREATE OR REPLACE VIEW ${schema}.${name} AS ${text}`),
  ].join(';\n');
}

/**
 * Settings of DDL on this node alone. Whoever waits for a lock on views keeps all new readers of them waiting: what does not get it soon is done
 * at another time.
 */
const FOR_DDL = "SET LOCAL citus.enable_ddl_propagation = off; SET LOCAL lock_timeout = '500ms'";

/** Drops the schemas of shards that have left a node, and those of earlier releases. One that is still read is dropped another time. */
export async function dropOldSchemas(pool: Sql): Promise<void> {
  const kept = (await shardGroups(pool)).map((group) => schemaOf(shardOf(group)));
  const old = await pool<{ name: string }[]>`
    SELECT nspname AS name FROM pg_namespace WHERE starts_with(nspname, ${PREFIX}) AND nspname <> ALL(${kept}::text[])`;
  for (const { name } of old)
    await unlessLocked(() =>
      pool.begin('isolation level read committed', async (tx) => {
        await tx.unsafe(FOR_DDL);
        await tx`DROP SCHEMA IF EXISTS ${tx(name)} CASCADE`;
      }),
    );
}
