/** Closes the source of a copy: from then on no service writes there, and their journals hold what producers send. */
import { OperatorError } from '../../errors.ts';
import type { Sql } from '../connect.ts';
import { MOVED_TO } from '../connections/moved.ts';
import { COPY_NAME, type Side } from './side.ts';

/** How long sessions may take to end. */
const END_TIMEOUT_MS = 60_000;
const END_RETRY_MS = 50;

/**
 * Marks the source as moved and ends all sessions of services and commands. Each new session of a service reads the mark before
 * its first statement, and is given up: so nothing is committed after this.
 * @param movedTo host and name of the target
 * @throws OperatorError if sessions do not end, or may not be ended
 */
export async function closeSource({ sql, engine }: Side, movedTo: string): Promise<void> {
  await sql`
    INSERT INTO installation (name, value) VALUES (${MOVED_TO}, ${movedTo})
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value`;
  const nodes = (await engine.closeNodes?.(sql, true)) ?? [];
  await Promise.all([sql, ...nodes].map(endSessions));
}

/** Takes back what {@link closeSource} did. */
export async function openSource({ sql, engine }: Side): Promise<void> {
  await engine.closeNodes?.(sql, false);
  await sql`DELETE FROM installation WHERE name = ${MOVED_TO}`;
}

/** Ends the sessions that began before now: a session that has read an older mark is one of them. */
async function endSessions(sql: Sql): Promise<void> {
  const [clock] = await sql<{ now: string }[]>`SELECT clock_timestamp()::text AS now`;
  for (const deadline = performance.now() + END_TIMEOUT_MS; ; ) {
    const left = await sql`
      SELECT pg_terminate_backend(pid)
        FROM pg_stat_activity
       WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
         AND application_name LIKE 'tidemark%' AND application_name <> ${COPY_NAME}
         AND backend_start < ${clock?.now ?? 'infinity'}::text::timestamptz`;
    if (left.length === 0) return;
    if (performance.now() >= deadline)
      throw new OperatorError(
        `${left.length} sessions of services do not end: the source takes events again, and nothing is lost; try again`,
      );
    await new Promise((resolve) => {
      setTimeout(resolve, END_RETRY_MS);
    });
  }
}
