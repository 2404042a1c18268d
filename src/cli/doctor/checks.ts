/** All checks of an installation. */
import { resolve } from 'node:path';
import { archiveFindings } from './archive-facts.ts';
import { DATABASE_CHECKS } from './database-checks.ts';
import { deliveryFindings } from './delivery-facts.ts';
import { erasureFindings } from './erasure-facts.ts';
import type { Facts } from './facts.ts';
import { type Finding, problem, warning } from './finding.ts';
import { isFull } from './machine-facts.ts';
import { SETTINGS_CHECKS } from './settings-checks.ts';

/** All findings about an installation, most important checks first. */
export function findings(facts: Facts): readonly Finding[] {
  return [
    ...fullDisks(facts),
    ...SETTINGS_CHECKS.flatMap((check) => check(facts)),
    ...aboutDatabase(facts),
    ...archiveFindings(facts),
    ...deliveryFindings(facts),
    ...erasureFindings(facts),
  ];
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
  const { database, config } = facts;
  if (database === null) {
    const place = config.DATABASE_URL === '' ? resolve(config.DATA_DIR) : 'the database of DATABASE_URL';
    return [
      warning(
        'database',
        `there is no Tidemark database in ${place}`,
        'Name it with DATA_DIR or DATABASE_URL, or with --env-file; where it is a new one, start the service once.',
      ),
    ];
  }
  if ('unreachable' in database)
    return [problem('database', database.unreachable, 'Other checks need the database: fix this first.')];
  return DATABASE_CHECKS.flatMap((check) => check(database, facts));
}
