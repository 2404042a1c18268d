/** Closes the source of a copy: from then on no service writes there, and their journals hold what producers send. */

import { setTimeout as sleep } from 'node:timers/promises';
import { HOLDER_NAME } from '../../embedded/embedded.ts';
import { OperatorError } from '../../errors.ts';
import { errorCode, type Sql } from '../database/connect.ts';
import { MOVED_TO } from '../database/installation-id.ts';
import { COPY_NAME, type CopyEndpoint, readCopyState } from './endpoint.ts';

/** How long sessions may take to end. */
const END_TIMEOUT_MS = 60_000;
const END_RETRY_MS = 50;

/**
 * Marks the source as moved and ends all sessions of services and commands. Each new session of a service reads the mark before
 * its first statement, and is given up: so nothing is committed after this.
 * @param movedTo host and name of the target
 * @throws OperatorError if it was left for another target, or sessions do not end, or may not be ended
 */
export async function closeSource({ sql, engine }: CopyEndpoint, movedTo: string): Promise<void> {
  await sql`INSERT INTO installation (name, value) VALUES (${MOVED_TO}, ${movedTo}) ON CONFLICT (name) DO NOTHING`;
  await refuseOtherTarget(sql, movedTo);
  const nodes = (await engine.closeNodes?.(sql, true)) ?? [];
  await Promise.all([sql, ...nodes].map(endSessions));
}

/** Takes back what {@link closeSource} did, unless another switch did it. */
export async function openSource({ sql, engine }: CopyEndpoint, movedTo: string): Promise<void> {
  await refuseOtherTarget(sql, movedTo);
  await engine.closeNodes?.(sql, false);
  await sql`DELETE FROM installation WHERE name = ${MOVED_TO} AND value = ${movedTo}`;
}

/** @throws OperatorError if the source was left for another target: that one may have new events */
export async function refuseOtherTarget(sql: Sql, target: string): Promise<void> {
  const { movedTo } = await readCopyState(sql);
  if (movedTo !== null && movedTo !== target)
    throw new OperatorError(
      `the database to copy from was left for ${movedTo}, which may have new events: name that one with --to, as it was named before`,
    );
}

/**
 * Ends the sessions that began before now: a session that has read an older mark is one of them. Of sessions of other roles
 * PostgreSQL may show the name alone: those count as such, so that they are ended, or the switch fails.
 */
async function endSessions(sql: Sql): Promise<void> {
  const [clock] = await sql<{ now: string }[]>`SELECT clock_timestamp()::text AS now`;
  for (const deadline = performance.now() + END_TIMEOUT_MS; ; ) {
    const left = await ended(sql`
      SELECT pg_terminate_backend(pid)
        FROM pg_stat_activity
       WHERE datname = current_database() AND coalesce(backend_type, 'client backend') = 'client backend'
         AND pid <> pg_backend_pid() AND application_name LIKE 'tidemark%' AND application_name <> ALL(${[COPY_NAME, HOLDER_NAME]})
         AND coalesce(backend_start, '-infinity') < ${clock?.now ?? 'infinity'}::text::timestamptz`);
    if (left.length === 0) return;
    if (performance.now() >= deadline)
      throw new OperatorError(
        `${left.length} sessions of services do not end: the source takes events again, and nothing is lost; try again`,
      );
    await sleep(END_RETRY_MS);
  }
}

/** @throws OperatorError if this role may not end the sessions of the services */
async function ended<Row>(ending: Promise<Row>): Promise<Row> {
  try {
    return await ending;
  } catch (error) {
    if (errorCode(error) !== '42501') throw error;
    throw new OperatorError(
      'this role may not end the sessions of the services: use their role, or one with pg_signal_backend and pg_read_all_stats',
      { cause: error },
    );
  }
}
