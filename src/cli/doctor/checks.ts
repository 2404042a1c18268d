/** All checks of an installation. */
import { DATABASE_CHECKS } from './database-checks.ts';
import type { Facts } from './facts.ts';
import { type Finding, note, problem } from './finding.ts';
import { SETTINGS_CHECKS } from './settings-checks.ts';

/** All findings about an installation, most important checks first. */
export function findings(facts: Facts): readonly Finding[] {
  return [...SETTINGS_CHECKS.flatMap((check) => check(facts)), ...aboutDatabase(facts)];
}

function aboutDatabase(facts: Facts): readonly Finding[] {
  const { database } = facts;
  if (database === null)
    return [note('database', 'it has no schema yet', 'Start the service once: it creates the schema.')];
  if ('unreachable' in database)
    return [problem('database', database.unreachable, 'Other checks need the database: fix this first.')];
  return DATABASE_CHECKS.flatMap((check) => check(database, facts));
}
