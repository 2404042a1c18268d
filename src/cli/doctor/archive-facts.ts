/** What the doctor knows of the archive. */
import type { Config } from '../../config.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { countDaysAway } from '../../storage/maintenance/days-away.ts';
import { type Finding, note, ok, problem, warning } from './finding.ts';

export interface ArchiveFacts {
  readonly days: number;
  readonly bytes: number;
  /** Days whose rows have left the database. */
  readonly away: number;
  /** Days whose attempts have not ended, or that changed since. */
  readonly unfinished: number;
  /** Days that have left, and whose files are not there. */
  readonly lost: number;
  /** Null: it can be written and read back, and has what was archived. */
  readonly trouble: string | null;
}

/** @returns null without ARCHIVE_URL, if nothing needs it */
export async function archiveFacts(config: Config, sql: Sql): Promise<ArchiveFacts | null> {
  const away = await countDaysAway(sql);
  if (config.ARCHIVE_URL === '') {
    if (away === 0) return null;
    const missing = `ARCHIVE_URL is not set, and ${away} days are in the archive alone`;
    return { days: away, bytes: 0, unfinished: 0, lost: 0, away, trouble: missing };
  }
  const { problemOfPlace } = await import('../../archive/archiving.ts');
  const { openArchiveStore, probeArchive } = await import('../../archive/store.ts');
  let trouble: string | null = null;
  try {
    const store = openArchiveStore(config);
    await probeArchive(store);
    trouble = await problemOfPlace({ sql, store });
  } catch (error) {
    trouble = error instanceof Error ? error.message : String(error);
  }
  const [row] = await sql<Omit<ArchiveFacts, 'trouble' | 'away'>[]>`
    SELECT count(archived_at)::float8 AS days,
           coalesce(sum((SELECT sum((part ->> 'bytes')::bigint) FROM jsonb_array_elements(parts) AS every (part))), 0)::float8 AS bytes,
           count(*) FILTER (WHERE archived_at IS NULL OR counted = -1)::float8 AS unfinished,
           count(*) FILTER (WHERE counted = -3)::float8 AS lost
      FROM archived_days`;
  return { ...(row ?? { days: 0, bytes: 0, unfinished: 0, lost: 0 }), away, trouble };
}

export function archiveFindings({
  archive = null,
}: {
  readonly archive?: ArchiveFacts | null | undefined;
}): readonly Finding[] {
  if (archive === null) return [];
  const { days, bytes, unfinished, lost, away, trouble } = archive;
  if (trouble !== null)
    return [
      problem(
        'archive',
        trouble,
        away > 0
          ? 'Nothing is archived until this is corrected, and days that have left the database cannot be read.'
          : 'Nothing is archived until this is corrected.',
      ),
    ];
  const found = `${days} days in ${bytes} bytes${away > 0 ? `, ${away} of them in the archive alone` : ''}`;
  if (lost > 0)
    return [
      warning(
        'archive',
        `${found}, and the files of ${lost} days are lost: "tidemark archive list" names them`,
        'Copy their files to the archive, where there is another copy, and run "tidemark archive run --again".',
      ),
    ];
  if (unfinished > 0)
    return [
      note('archive', `${found}, and ${unfinished} days to archive again`, 'Run "tidemark archive run".'),
    ];
  return [ok('archive', found)];
}
