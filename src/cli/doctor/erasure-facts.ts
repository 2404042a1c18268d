/** Erasures that nobody goes on with, for the doctor. */
import type { Sql } from '../../storage/database/connect.ts';
import { type Finding, warning } from './finding.ts';

export interface LeftErasure {
  readonly erasureId: string;
  readonly askedAt: Date;
}

/** Unfinished erasures that no process works on now. */
export async function leftErasures(sql: Sql): Promise<readonly LeftErasure[]> {
  return await sql<LeftErasure[]>`
    SELECT public_id AS "erasureId", asked_at AS "askedAt" FROM erasures
     WHERE finished_at IS NULL
       AND NOT EXISTS (SELECT FROM pg_locks
                        WHERE locktype = 'advisory' AND objsubid = 2 AND granted
                          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                          AND classid::bigint = hashtext('tidemark erasure')::bigint & 4294967295 AND objid::bigint = erasures.id)
     ORDER BY id LIMIT 20`;
}

export function erasureFindings({
  erasures = null,
}: {
  readonly erasures?: readonly LeftErasure[] | null | undefined;
}): readonly Finding[] {
  return (erasures ?? []).map(({ erasureId, askedAt }) =>
    warning(
      'erasures',
      `the erasure ${erasureId}, asked for at ${askedAt.toISOString()}, is not finished, and no process goes on with it`,
      `Start the service, which does, or run "tidemark erasure resume ${erasureId}".`,
    ),
  );
}
