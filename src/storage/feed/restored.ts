/**
 * Consumers after a restore or a copy: their ticks were numbered by another server. Minutes that they had not acknowledged are read
 * as a whole: nothing is missed, some events come again.
 */
import type pg from 'pg';
import type { Sql } from '../database/connect.ts';
import { DELIVERIES } from '../database/installation-id.ts';
import type { StorageEngine } from '../engines/storage-engine.ts';
import { noteTick } from './consumers.ts';
import { decodePosition, encodePosition } from './position.ts';
import { NO_PLACE } from './ticks.ts';

/** Ticks of earlier servers are before all others. */
const EARLIER = 10n ** 17n;
/** Where numbers are on their way: no tick is ever there. */
const ASIDE = 4n * 10n ** 18n;

/** Whether a table is about consumers: it is copied when no more events come. */
export function isOfConsumers({ name }: { readonly name: string }): boolean {
  return name === 'consumers' || name === 'feed_ticks';
}

/** Numbers ticks anew, in the transaction of a restore or a copy. */
export async function continueConsumers(client: pg.Client): Promise<void> {
  await client.query(`UPDATE feed_ticks SET tick = tick - ${ASIDE}, place = ${NO_PLACE}, at = now()`);
  await client.query(`UPDATE feed_ticks SET tick = tick + ${ASIDE - EARLIER}`);
  const { rows } = await client.query<{ appId: number; name: string; position: string }>(
    'SELECT app_id AS "appId", name, position FROM consumers',
  );
  for (const { appId, name, position: text } of rows) {
    const position = decodePosition(text);
    if (position === null) throw new Error('A position in the backup cannot be read.');
    const tick = String(BigInt(position.tick) - EARLIER);
    const after = position.after?.by === 'history' ? position.after : null;
    await client.query(
      `UPDATE consumers SET tick = $3, position = $4, leased_to = NULL, leased_until = NULL, lease = lease + 1
        WHERE app_id = $1 AND name = $2`,
      [appId, name, tick, encodePosition({ tick, after })],
    );
  }
}

/** Notes the first tick of this server for each app with consumers: what was restored is behind it. */
export async function anchorConsumers(engine: StorageEngine, sql: Sql): Promise<void> {
  const apps = await sql<{ appId: number }[]>`SELECT DISTINCT app_id AS "appId" FROM consumers`;
  for (const { appId } of apps) {
    const pool = await engine.routes(sql).at(appId);
    await noteTick(engine, pool, appId, async () => undefined);
  }
}

/** A restored installation sends nothing until an operator says so. */
export async function stopDeliveries(client: pg.Client): Promise<void> {
  await client.query(
    `INSERT INTO installation (name, value) VALUES ($1, 'stopped') ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value`,
    [DELIVERIES],
  );
}
