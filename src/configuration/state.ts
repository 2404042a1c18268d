/** What an installation has of what its configuration may say. */

import type { BoardView } from '../api-types/answers.ts';
import type { OwnLimits } from '../apps/app-limits.ts';
import type { NumberFormat } from '../apps/fields.ts';
import { type RedactionAction, redactionColumn } from '../apps/redaction.ts';
import { type KeptDays, keptDays } from '../apps/retention.ts';
import type { SchemaMode } from '../apps/type-schemas.ts';
import { groupedBy } from '../base/grouped.ts';
import type { Role } from '../base/roles.ts';
import type { AlertRule } from '../delivery/alerts/alert-rules.ts';
import type { Webhook } from '../delivery/webhooks.ts';
import { spellPath } from '../read/fields/payload-paths.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { ConsumerStore } from '../storage/feed/consumers.ts';
import { byOf, namesOf } from '../storage/fields/declared-fields.ts';
import type { FieldKind } from '../storage/fields/payload-values.ts';
import type {
  AlertEntry,
  AppEntry,
  ConfigDocument,
  FieldEntry,
  GroupEntry,
  RedactionEntry,
  TypeEntry,
  WebhookEntry,
} from './document.ts';

export interface StoredType {
  readonly typeId: string;
  readonly name: string;
  readonly hidden: boolean;
  readonly annotation: boolean;
  readonly schema: object | null;
  readonly mode: SchemaMode | null;
  readonly redactions: readonly RedactionEntry[];
  readonly retention: KeptDays;
}

export interface StoredField extends NumberFormat {
  /** As filters spell it. */
  readonly path: string;
  readonly kind: FieldKind;
  readonly by: string | null;
  readonly type: string | null;
}

export interface StoredMember {
  readonly email: string;
  readonly emailKey: string;
  /** The role that a person gave, not a group. */
  readonly role: Role;
}

export interface StoredWebhook
  extends Pick<Webhook, 'webhookId' | 'url' | 'format' | 'isUnordered' | 'sendsEvents'> {
  readonly types: readonly string[];
  readonly filter: readonly string[];
  readonly isPaused: boolean;
}

export interface StoredAlert
  extends Pick<
    AlertRule,
    'alertId' | 'name' | 'timezone' | 'webhooks' | 'emails' | 'alertmanager' | 'isPaused'
  > {
  readonly rule: object;
}

export interface StoredApp {
  readonly id: number;
  readonly appId: string;
  readonly name: string;
  readonly limits: OwnLimits;
  readonly retention: KeptDays;
  readonly types: readonly StoredType[];
  readonly fields: readonly StoredField[];
  readonly views: readonly BoardView[];
  /** Owners first. */
  readonly members: readonly StoredMember[];
  readonly groups: readonly GroupEntry[];
  readonly webhooks: readonly StoredWebhook[];
  readonly alerts: readonly StoredAlert[];
}

export interface StoredState {
  readonly apps: readonly StoredApp[];
  /** What groups give in every app. */
  readonly groups: readonly GroupEntry[];
}

/** Rows of one table by app. */
type ByApp<T> = ReadonlyMap<number, readonly T[]>;

/** Reads the whole configuration: a few statements, whatever the number of apps. */
export async function readState(sql: Sql, store: ConsumerStore): Promise<StoredState> {
  const apps = await sql<
    { id: number; appId: string; name: string; limits: OwnLimits; days: number | null }[]
  >`
    SELECT id, (SELECT days FROM retention_rules WHERE retention_rules.app_id = apps.id AND type_id IS NULL) AS days, public_id AS "appId", name,
           json_build_object('createPerMinute', create_per_minute, 'bytesPerDay', bytes_per_day, 'types', types) AS limits
      FROM apps LEFT JOIN app_limits ON app_limits.app_id = id WHERE removed_at IS NULL ORDER BY id`;
  const types = await readTypes(sql);
  const fields = await readFields(sql);
  const views = await sql<(BoardView & { app: number })[]>`
    SELECT app_id AS app, public_id AS "viewId", name, search FROM saved_views ORDER BY app_id, name, id`;
  const viewsOfApps = groupedBy(views, 'app');
  const members = groupedBy(await readMembers(sql), 'app');
  const groups = await sql<(GroupEntry & { app: number | null })[]>`
    SELECT app_id AS app, group_name AS "group", role FROM group_mappings ORDER BY group_name`;
  const groupsOfApps = groupedBy(groups, 'app');
  const webhooks = await readWebhooks(sql, store);
  const alerts = await readAlerts(sql);
  return {
    apps: apps.map(({ days, ...app }) => ({
      ...app,
      retention: keptDays(days),
      types: types.get(app.id) ?? [],
      fields: fields.get(app.id) ?? [],
      views: viewsOfApps.get(app.id) ?? [],
      members: members.get(app.id) ?? [],
      groups: groupsOfApps.get(app.id) ?? [],
      webhooks: webhooks.get(app.id) ?? [],
      alerts: alerts.get(app.id) ?? [],
    })),
    groups: groupsOfApps.get(null) ?? [],
  };
}

async function readTypes(sql: Sql): Promise<ByApp<StoredType>> {
  const rows = await sql<
    (Omit<StoredType, 'schema' | 'redactions' | 'retention'> & {
      readonly days: number | null;
      readonly app: number;
      readonly schema: string | null;
      readonly rules:
        | readonly { readonly path: readonly string[]; readonly action: RedactionAction }[]
        | null;
    })[]
  >`
    SELECT app_id AS app, public_id AS "typeId", name, hidden_at IS NOT NULL AS hidden,
           annotates_at IS NOT NULL AS annotation, schema, mode,
           (SELECT days FROM retention_rules WHERE retention_rules.type_id = event_types.id) AS days,
           ${redactionColumn(sql, 'event_types.id')} AS rules
      FROM event_types LEFT JOIN type_schemas ON type_schemas.type_id = event_types.id
     ORDER BY app_id, event_types.id`;
  return groupedBy(
    rows.map(({ rules, schema, days, ...row }) => ({
      ...row,
      retention: keptDays(days),
      schema: schema === null ? null : (JSON.parse(schema) as object),
      redactions: (rules ?? []).map(({ path, action }) => ({ path: spellPath(path), action })),
    })),
    'app',
  );
}

async function readFields(sql: Sql): Promise<ByApp<StoredField>> {
  const rows = await sql<(Omit<StoredField, 'by'> & { readonly app: number; readonly by: string })[]>`
    SELECT field.app_id AS app, path, kind, by_path AS by, type.name AS type, unit, decimals
      FROM declared_fields AS field LEFT JOIN event_types AS type ON type.id = type_id
     WHERE removed_at IS NULL
     ORDER BY field.app_id, field.id`;
  return groupedBy(
    rows.map((row) => {
      const by = byOf(row.by);
      return { ...row, path: spellPath(namesOf(row.path)), by: by && spellPath(by) };
    }),
    'app',
  );
}

async function readMembers(sql: Sql): Promise<readonly (StoredMember & { readonly app: number })[]> {
  // What a group gives is not the person's own: see src/apps/groups.ts.
  return await sql<(StoredMember & { app: number })[]>`
    SELECT app, email, email_key AS "emailKey", role
      FROM (SELECT app_id AS app, user_id, added_at,
                   CASE WHEN NOT given.suspended AND given.role = member.role THEN given.own_role ELSE member.role END AS role
              FROM app_members AS member LEFT JOIN group_grants AS given USING (app_id, user_id)) AS own
      JOIN users ON users.id = user_id
     WHERE role IS NOT NULL
     ORDER BY app, role = 'owner' DESC, added_at, users.id`;
}

async function readWebhooks(sql: Sql, store: ConsumerStore): Promise<ByApp<StoredWebhook>> {
  const rows = await sql<(Omit<StoredWebhook, 'types' | 'filter'> & { app: number })[]>`
    SELECT app_id AS app, public_id AS "webhookId", url, format, is_unordered AS "isUnordered", sends_events AS "sendsEvents",
           state = 'paused' AS "isPaused"
      FROM webhooks ORDER BY app_id, id`;
  const choices = new Map<string, { types: readonly string[]; filter: readonly string[] }>();
  // In a cluster they are on the node of their app.
  for (const app of new Set(rows.map((row) => row.app)))
    for (const { name, types, filter } of await store.list(app, 'webhook'))
      choices.set(name, { types, filter });
  const webhooks = rows.map((row) => ({ types: [], filter: [], ...row, ...choices.get(row.webhookId) }));
  return groupedBy(webhooks, 'app');
}

async function readAlerts(sql: Sql): Promise<ByApp<StoredAlert>> {
  const rows = await sql<(Omit<StoredAlert, 'rule'> & { app: number; rule: string })[]>`
    SELECT app_id AS app, public_id AS "alertId", name, rule, timezone, webhooks, emails, alertmanager, is_paused AS "isPaused"
      FROM alert_rules ORDER BY app_id, id`;
  return groupedBy(
    rows.map((row) => ({ ...row, rule: JSON.parse(row.rule) as object })),
    'app',
  );
}

/**
 * The document of an installation, or of one app.
 * @param appId public id of the one app; null: all
 * @returns null if there is no such app
 */
export function documentOf(state: StoredState, appId: string | null): ConfigDocument | null {
  if (appId === null)
    return {
      version: 1,
      apps: state.apps.map(appEntry),
      groups: state.groups,
    };
  const app = state.apps.find((one) => one.appId === appId);
  return app === undefined ? null : { version: 1, partial: true, apps: [appEntry(app)] };
}

function appEntry(app: StoredApp): AppEntry {
  const owner = ownerOf(app);
  return {
    name: app.name,
    ...(owner !== null && { owner: owner.email }),
    ...retentionEntry(app),
    ...limitsEntry(app.limits),
    ...some('types', app.types.map(typeEntry)),
    ...some('fields', app.fields.map(fieldEntry)),
    ...some(
      'views',
      app.views.map(({ name, search }) => ({ name, search })),
    ),
    ...some(
      'members',
      app.members.filter((one) => one !== owner).map(({ email, role }) => ({ email, role })),
    ),
    ...some('groups', app.groups),
    ...some('webhooks', app.webhooks.map(webhookEntry)),
    ...some(
      'alerts',
      app.alerts.map((alert) => alertEntry(alert, app.webhooks)),
    ),
  };
}

/** The owner that an app is known by: the first one. */
export function ownerOf({ members }: StoredApp): StoredMember | null {
  return members.find(({ role }) => role === 'owner') ?? null;
}

/** An empty list is left out: in an app it says the same as none. */
function some<K extends string, T>(name: K, list: readonly T[]): { readonly [P in K]?: readonly T[] } {
  return list.length === 0 ? {} : ({ [name]: list } as { readonly [P in K]: readonly T[] });
}

function retentionEntry({ retention }: Pick<StoredApp, 'retention'>): Pick<AppEntry, 'retention'> {
  return retention === 'default' ? {} : { retention };
}

function limitsEntry(limits: OwnLimits): Pick<AppEntry, 'limits'> {
  const own = Object.entries(limits).filter(([, limit]) => limit !== null);
  return own.length === 0 ? {} : { limits: Object.fromEntries(own) };
}

function typeEntry({ name, hidden, annotation, schema, mode, redactions, retention }: StoredType): TypeEntry {
  return {
    name,
    ...(hidden && { hidden }),
    ...(annotation && { annotation }),
    ...(schema !== null && { schema }),
    ...(mode !== null && { schemaMode: mode }),
    ...retentionEntry({ retention }),
    ...some('redact', redactions),
  };
}

function fieldEntry({ path, kind, by, type, unit, decimals }: StoredField): FieldEntry {
  return {
    ...{ path, kind, ...(by !== null && { by }), ...(type !== null && { type }) },
    ...{ ...(unit !== null && { unit }), ...(decimals !== null && { decimals }) },
  };
}

function alertEntry(alert: StoredAlert, webhooks: readonly StoredWebhook[]): AlertEntry {
  const { name, rule, timezone, emails, alertmanager, isPaused } = alert;
  const told = alert.webhooks.flatMap((id) => webhooks.find(({ webhookId }) => webhookId === id)?.url ?? []);
  return {
    ...{ name, rule },
    ...(timezone !== 'UTC' && { timezone }),
    ...some('webhooks', told),
    ...some('emails', emails),
    ...(alertmanager !== null && { alertmanager }),
    ...(isPaused && { paused: true }),
  };
}

function webhookEntry(webhook: StoredWebhook): WebhookEntry {
  const { url, format, types, filter, isUnordered, sendsEvents, isPaused } = webhook;
  return {
    url,
    ...some('types', types),
    ...some('filter', filter),
    ...(isUnordered && { unordered: true }),
    ...(format === 'standard' ? !sendsEvents && { events: false } : { format }),
    ...(isPaused && { paused: true }),
  };
}
