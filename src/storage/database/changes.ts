/** Notifications of changes of apps, tokens and types, sent by triggers of the database. */
import type { Sql } from './connect.ts';

const CHANNEL = 'tidemark_changes';

export type ChangedTable =
  | 'apps'
  | 'app_members'
  | 'app_limits'
  | 'browser_keys'
  | 'declared_fields'
  | 'event_types'
  | 'group_grants'
  | 'type_schemas'
  | 'logging_tokens'
  | 'redaction_rules'
  | 'retention_rules'
  | 'resource_tokens'
  | 'resource_token_apps'
  | 'shares'
  | 'users';

/**
 * Calls back for every change, and with null when changes may have been missed: at the start and after a reconnect, which
 * is automatic.
 * @returns a function that stops listening
 */
export async function listenForChanges(
  sql: Sql,
  onChange: (table: ChangedTable | null) => void,
): Promise<() => Promise<void>> {
  const { unlisten } = await sql.listen(
    CHANNEL,
    // The payload is the name of the table whose trigger sent it, one of those of the type.
    (table) => onChange(table as ChangedTable),
    () => onChange(null),
  );
  return unlisten;
}
