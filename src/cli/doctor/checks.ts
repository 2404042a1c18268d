/** All checks of an installation. */
import { DATABASE_CHECKS } from './database-checks.ts';
import type { Facts } from './facts.ts';
import { type Finding, note, problem } from './finding.ts';
import { isFull } from './machine-facts.ts';
import { SETTINGS_CHECKS } from './settings-checks.ts';

/** All findings about an installation, most important checks first. */
export function findings(facts: Facts): readonly Finding[] {
  return [...fullDisks(facts), ...SETTINGS_CHECKS.flatMap((check) => check(facts)), ...aboutDatabase(facts)];
}

/** First, because it is the cause of whatever else fails. */
function fullDisks({ config, machine }: Facts): readonly Finding[] {
  const disks = [
    ['DATA_DIR', config.DATA_DIR, machine.disk],
    ['JOURNAL_DIR', config.JOURNAL_DIR, machine.journalDisk],
  ] as const;
  return disks.flatMap(([name, folder, disk]) =>
    disk === null || !isFull(disk)
      ? []
      : [
          problem(
            'disk',
            `the disk of ${name} (${folder}) is full: ${Math.floor(disk.freeBytes / 1_048_576)} MiB are free`,
            'Make room there first: what else is found here may come from it.',
          ),
        ],
  );
}

function aboutDatabase(facts: Facts): readonly Finding[] {
  const { database } = facts;
  if (database === null)
    return [note('database', 'it has no schema yet', 'Start the service once: it creates the schema.')];
  if ('unreachable' in database)
    return [problem('database', database.unreachable, 'Other checks need the database: fix this first.')];
  return DATABASE_CHECKS.flatMap((check) => check(database, facts));
}
