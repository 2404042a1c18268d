/** What is right and wrong with an installation. */
import { DATABASE_CHECKS } from './database-checks.ts';
import type { Facts } from './facts.ts';
import { type Finding, note, problem } from './finding.ts';
import { SETTINGS_CHECKS } from './settings-checks.ts';

/** Every finding about an installation, in the order in which a person would look. */
export function findings(facts: Facts): readonly Finding[] {
  return [...SETTINGS_CHECKS.flatMap((check) => check(facts)), ...aboutDatabase(facts)];
}

function aboutDatabase(facts: Facts): readonly Finding[] {
  const { database } = facts;
  if (database === null)
    return [note('database', 'it has no schema yet', 'Start the service once: it makes what it needs.')];
  if ('unreachable' in database)
    return [problem('database', database.unreachable, 'Nothing else can be said of it until it answers.')];
  return DATABASE_CHECKS.flatMap((check) => check(database, facts));
}
