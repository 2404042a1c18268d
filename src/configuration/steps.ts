/** The steps that change an installation's configuration, by the same functions as other changes. */
import type { Actor } from '../accounts/log/audit.ts';
import { type Email, requireEmail } from '../accounts/people/email.ts';
import { internalAppId } from '../accounts/people/members.ts';
import { createUser, requireUser } from '../accounts/people/users.ts';
import type { BoardView } from '../api-types/answers.ts';
import { type LimitSettings, type OwnLimits, setAppLimits } from '../apps/app-limits.ts';
import { deleteApp, createApp as insertApp, renameApp as setAppName } from '../apps/apps.ts';
import {
  createEventTypes,
  displayEventType,
  renameEventType,
  type TypeDisplay,
} from '../apps/event-types.ts';
import { removeField as endField, type FieldReference, declareField as insertField } from '../apps/fields.ts';
import { unmapGroup as endGroup, mapGroup as setGroup, setOwnRole } from '../apps/groups.ts';
import { addRedaction, removeRedaction as endRedaction, type RedactionAction } from '../apps/redaction.ts';
import { type KeptDays, setRetention as keepEvents, type RetentionSettings } from '../apps/retention.ts';
import { removeView as endView, saveView as setView } from '../apps/saved-views.ts';
import type { Secret } from '../apps/secret.ts';
import { removeTypeSchema, type SchemaMode, setTypeSchema } from '../apps/type-schemas.ts';
import type { Role } from '../base/roles.ts';
import type { Config } from '../config.ts';
import {
  changeAlert,
  removeAlert as endAlert,
  findAlert,
  addAlert as insertAlert,
  setAlertPaused,
} from '../delivery/alerts/alert-rules.ts';
import {
  removeWebhook as endWebhook,
  findWebhook,
  addWebhook as insertWebhook,
  setWebhookState,
} from '../delivery/webhooks.ts';
import type { SchemaProver } from '../schema/schema-text.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { ConsumerStore } from '../storage/feed/consumers.ts';
import { judgedNow } from '../storage/maintenance/time-judge.ts';
import type { AlertEntry, GroupEntry, ViewEntry, WebhookEntry } from './document.ts';
import type { StoredAlert, StoredApp, StoredType, StoredWebhook } from './state.ts';

export type ConfigKind =
  | 'account'
  | 'app'
  | 'limits'
  | 'retention'
  | 'type'
  | 'schema'
  | 'redaction'
  | 'field'
  | 'view'
  | 'member'
  | 'group'
  | 'webhook'
  | 'alert';

/** A change, for people and programs. */
export interface Change {
  readonly action: 'create' | 'update' | 'remove';
  readonly kind: ConfigKind;
  /** Name of the app; null: of the installation. */
  readonly app: string | null;
  readonly name: string;
  /** What changes, where the name does not say it. */
  readonly detail?: string;
}

/** Something that is not in the document, and stays. */
export interface Kept {
  readonly kind: ConfigKind;
  readonly app: string | null;
  readonly name: string;
}

/** An app during an apply: it may be made by a step. */
export interface AppTarget {
  /** Internal id; null: not made yet. */
  id: number | null;
  appId: string | null;
  readonly name: string;
  /** Public ids of types by name, as they are named afterwards. */
  readonly types: Map<string, string>;
}

export interface StepContext {
  readonly sql: Sql;
  readonly store: ConsumerStore;
  readonly secret: Secret;
  readonly config: LimitSettings &
    RetentionSettings &
    Pick<Config, 'MAX_ALERT_RULES_PER_APP' | 'MAX_WEBHOOKS_PER_APP' | 'SMTP_URL' | 'WEBHOOK_ALLOW_PRIVATE'>;
  readonly prover: Pick<SchemaProver, 'prove'>;
  /** The hash of a password that nobody knows. */
  readonly unusableHash: () => Promise<string>;
  readonly by: Actor;
}

export interface Step {
  /** Several of a kind may be one step. */
  readonly changes: readonly Change[];
  /** Whether it needs transactions of its own: it writes to the node of the app, too, or removes much. */
  readonly isAlone?: boolean;
  /** The schema that it sets, which must compile. */
  readonly schema?: object;
  /** The rule of an alert that it sets, as JSON. */
  readonly rule?: { readonly app: AppTarget; readonly text: string };
  readonly run: (context: StepContext) => Promise<void>;
}

function step(change: Change, run: Step['run'], rest: Partial<Step> = {}): Step {
  return { ...rest, changes: [change], run };
}

const ALONE = { isAlone: true } as const;

function idOf(app: AppTarget): number {
  if (app.id === null) throw new Error('A step needs an app that no step has made.');
  return app.id;
}

function typeIdOf(app: AppTarget, name: string): string {
  const typeId = app.types.get(name);
  if (typeId === undefined) throw new Error('A step needs a type that no step has made.');
  return typeId;
}

/** The account has no password until its user sets one by mail or by a link of the operator, who vouches for the address. */
export function createAccount(email: Email): Step {
  return step(
    { action: 'create', kind: 'account', app: null, name: email.text },
    async ({ sql, unusableHash }) => {
      await createUser(sql, { email, passwordHash: await unusableHash(), verified: true });
    },
  );
}

export function createApp(app: AppTarget, owner: string | null): Step {
  const detail = owner === null ? {} : { detail: `owned by ${owner}` };
  return step({ action: 'create', kind: 'app', app: null, name: app.name, ...detail }, async (context) => {
    const { sql, secret, by } = context;
    const ownerId = owner === null ? null : (await requireUser(sql, requireEmail(owner))).id;
    const { appId } = await insertApp(sql, secret, { name: app.name, ownerId, by });
    app.appId = appId;
    app.id = await internalAppId(sql, appId);
  });
}

export function renameApp(app: AppTarget, from: string): Step {
  const detail = `from ${JSON.stringify(from)}`;
  return step({ action: 'update', kind: 'app', app: null, name: app.name, detail }, ({ sql, by }) =>
    setAppName(sql, { appId: idOf(app), name: app.name, by }),
  );
}

export function removeApp({ id, name, appId }: StoredApp): Step {
  const change = { action: 'remove', kind: 'app', app: null, name, detail: appId } as const;
  return step(change, ({ sql, by }) => deleteApp(sql, { appId: id, confirm: name, by }), ALONE);
}

export function setLimits(app: AppTarget, limits: OwnLimits): Step {
  const detail = Object.entries(limits)
    .map(([name, limit]) => `${name} ${limit ?? 'by the settings'}`)
    .join(', ');
  const change = { action: 'update', kind: 'limits', app: app.name, name: app.name, detail } as const;
  return step(change, async ({ sql, config, by }) => {
    await setAppLimits(sql, config, { appId: app.appId ?? '', limits, by });
  });
}

export function createTypes(app: AppTarget, names: readonly string[]): Step {
  return {
    changes: names.map((name) => ({ action: 'create', kind: 'type', app: app.name, name })),
    run: async ({ sql, config, by }) => {
      const maxTypes = config.MAX_EVENT_TYPES_PER_APP;
      const made = await createEventTypes(sql, { appId: idOf(app), names, maxTypes, by });
      for (const [name, typeId] of made) app.types.set(name, typeId);
    },
  };
}

export function renameType(app: AppTarget, { typeId, name: from }: StoredType, name: string): Step {
  const detail = `from ${JSON.stringify(from)}`;
  return step({ action: 'update', kind: 'type', app: app.name, name, detail }, async ({ sql, by }) => {
    await renameEventType(sql, { appId: idOf(app), typeId, name, by });
  });
}

const DISPLAYED = {
  hidden: ['shown', 'hidden'],
  annotation: ['not as annotations', 'as annotations'],
} as const;

export function displayType(app: AppTarget, name: string, display: TypeDisplay, isOn: boolean): Step {
  const detail = DISPLAYED[display][isOn ? 1 : 0];
  return step({ action: 'update', kind: 'type', app: app.name, name, detail }, async ({ sql, by }) => {
    await displayEventType(sql, { appId: idOf(app), typeId: typeIdOf(app, name), display, isOn, by });
  });
}

export function setSchema(
  app: AppTarget,
  name: string,
  { schema, mode, isNew }: { schema: object; mode: SchemaMode; isNew: boolean },
): Step {
  const action = isNew ? 'create' : 'update';
  const change = { action, kind: 'schema', app: app.name, name, detail: mode } as const;
  const run: Step['run'] = async ({ sql, prover, by }) => {
    const type = { appId: app.appId ?? '', typeId: typeIdOf(app, name) };
    await setTypeSchema(sql, prover, { ...type, schema, mode, by });
  };
  return step(change, run, { schema });
}

export function removeSchema(app: AppTarget, name: string): Step {
  return step({ action: 'remove', kind: 'schema', app: app.name, name }, async ({ sql, by }) => {
    await removeTypeSchema(sql, { appId: app.appId ?? '', typeId: typeIdOf(app, name), by });
  });
}

/** @param type its name; null: of the app */
export function setRetention(app: AppTarget, type: string | null, days: KeptDays): Step {
  const detail = typeof days === 'number' ? `${days} days` : days;
  const name = type ?? app.name;
  const change = { action: 'update', kind: 'retention', app: app.name, name, detail } as const;
  const run: Step['run'] = async ({ sql, config, by }) => {
    await keepEvents(sql, config, { appId: app.appId ?? '', type, days, now: await judgedNow(sql), by });
  };
  return step(change, run, ALONE);
}

/** A rule of redaction of a type, by the names that lead to the value. */
interface NamedRedaction {
  readonly type: string;
  readonly path: readonly string[];
  /** For people. */
  readonly name: string;
}

export function setRedaction(
  app: AppTarget,
  { type, path, name }: NamedRedaction,
  what: RedactionAction,
  isKnown: boolean,
): Step {
  const action = isKnown ? 'update' : 'create';
  return step({ action, kind: 'redaction', app: app.name, name, detail: what }, async ({ sql, by }) => {
    await addRedaction(sql, { appId: app.appId ?? '', type, path, action: what, by });
  });
}

export function removeRedaction(app: AppTarget, { type, path, name }: NamedRedaction): Step {
  return step({ action: 'remove', kind: 'redaction', app: app.name, name }, async ({ sql, by }) => {
    await endRedaction(sql, { appId: app.appId ?? '', type, path, by });
  });
}

type NamedField = Omit<FieldReference, 'appId' | 'typeName'> & {
  readonly type: string | null;
  readonly unit: string | null;
  readonly decimals: number | null;
};

export function declareField(
  app: AppTarget,
  { type, ...field }: NamedField,
  name: string,
  isKnown: boolean,
): Step {
  const action = isKnown ? 'update' : 'create';
  return step({ action, kind: 'field', app: app.name, name }, async ({ sql, by: actor }) => {
    const beginning = { backfill: false, beginsLater: true };
    await insertField(sql, { ...field, ...beginning, typeName: type, appId: idOf(app), actor });
  });
}

export function removeField(app: AppTarget, { type, ...field }: NamedField, name: string): Step {
  return step({ action: 'remove', kind: 'field', app: app.name, name }, async ({ sql, by: actor }) => {
    await endField(sql, { ...field, typeName: type, appId: idOf(app), actor });
  });
}

export function saveView(app: AppTarget, { name, search }: ViewEntry, isKnown: boolean): Step {
  const action = isKnown ? 'update' : 'create';
  return step({ action, kind: 'view', app: app.name, name }, async ({ sql, by }) => {
    await setView(sql, { appId: idOf(app), name, search, by });
  });
}

export function removeView(app: AppTarget, { viewId, name }: BoardView): Step {
  return step({ action: 'remove', kind: 'view', app: app.name, name }, async ({ sql, by }) => {
    await endView(sql, { appId: idOf(app), viewId, by });
  });
}

export function setMember(app: AppTarget, email: string, role: Role, isKnown: boolean): Step {
  const action = isKnown ? 'update' : 'create';
  return step({ action, kind: 'member', app: app.name, name: email, detail: role }, ({ sql, by }) =>
    setOwnRole(sql, { appId: idOf(app), email: requireEmail(email), role, by }),
  );
}

export function removeMember(app: AppTarget, email: string): Step {
  return step({ action: 'remove', kind: 'member', app: app.name, name: email }, ({ sql, by }) =>
    setOwnRole(sql, { appId: idOf(app), email: requireEmail(email), role: null, by }),
  );
}

/** @param app null: in every app */
export function mapGroup(app: AppTarget | null, { group, role }: GroupEntry, isKnown: boolean): Step {
  const action = isKnown ? 'update' : 'create';
  return step({ action, kind: 'group', app: app?.name ?? null, name: group, detail: role }, ({ sql }) =>
    setGroup(sql, { group, role, appId: app?.appId ?? null }),
  );
}

export function unmapGroup(app: AppTarget | null, group: string): Step {
  return step({ action: 'remove', kind: 'group', app: app?.name ?? null, name: group }, async ({ sql }) => {
    await endGroup(sql, { group, appId: app?.appId ?? null });
  });
}

/** Its secret is shown by `webhook rotate`. */
export function addWebhook(app: AppTarget, entry: WebhookEntry, paused: boolean): Step {
  const run: Step['run'] = async ({ by, ...place }) => {
    const { webhookId } = await insertWebhook(place, idOf(app), entry, { by });
    const { sql } = place;
    if (paused) await setWebhookState(sql, await findWebhook(sql, webhookId), 'paused', by);
  };
  return step({ action: 'create', kind: 'webhook', app: app.name, name: entry.url }, run, ALONE);
}

export function pauseWebhook(app: AppTarget, { webhookId, url }: StoredWebhook, paused: boolean): Step {
  const detail = paused ? 'paused' : 'active';
  const run: Step['run'] = async ({ sql, by }) =>
    setWebhookState(sql, await findWebhook(sql, webhookId), paused ? 'paused' : 'active', by);
  return step({ action: 'update', kind: 'webhook', app: app.name, name: url, detail }, run, ALONE);
}

export function removeWebhook(app: AppTarget, { webhookId, url }: StoredWebhook): Step {
  const run: Step['run'] = async ({ sql, store, by }) =>
    endWebhook(sql, store, await findWebhook(sql, webhookId), by);
  return step({ action: 'remove', kind: 'webhook', app: app.name, name: url }, run, ALONE);
}

/**
 * Adds an alert, or has one say something else.
 * @param change.leaving public ids of webhooks that the plan removes: others of the same address are told
 */
export function setAlert(
  app: AppTarget,
  entry: AlertEntry,
  change: {
    readonly before: StoredAlert | null;
    readonly paused: boolean;
    readonly leaving: readonly string[];
  },
): Step {
  const { name, rule, timezone = 'UTC', webhooks = [], emails = [], alertmanager = null } = entry;
  const { before, paused, leaving } = change;
  const run: Step['run'] = async ({ sql, config, by }) => {
    const target = { id: idOf(app), appId: app.appId ?? '' };
    const known = await sql<{ id: string; url: string }[]>`
      SELECT public_id AS id, url FROM webhooks
       WHERE app_id = ${target.id} AND NOT public_id = ANY(${[...leaving]}::text[]) ORDER BY id`;
    const told = webhooks.map((url) => known.find((one) => one.url === new URL(url).href)?.id ?? url);
    const alert = {
      ...{ name, timezone, emails, alertmanager, by },
      rule: JSON.stringify(rule),
      webhooks: told,
      most: config.MAX_ALERT_RULES_PER_APP,
      allowPrivate: config.WEBHOOK_ALLOW_PRIVATE,
      sendsMail: config.SMTP_URL !== '',
    };
    if (before !== null)
      return await changeAlert(sql, target, await findAlert(sql, before.alertId), alert, paused);
    const { alertId } = await insertAlert(sql, target, alert);
    if (paused) await setAlertPaused(sql, await findAlert(sql, alertId), true, by);
  };
  const action = before === null ? 'create' : 'update';
  const text = JSON.stringify(rule);
  return step({ action, kind: 'alert', app: app.name, name }, run, { ...ALONE, rule: { app, text } });
}

export function pauseAlert(app: AppTarget, { alertId, name }: StoredAlert, paused: boolean): Step {
  const detail = paused ? 'paused' : 'active';
  return step({ action: 'update', kind: 'alert', app: app.name, name, detail }, async ({ sql, by }) =>
    setAlertPaused(sql, await findAlert(sql, alertId), paused, by),
  );
}

export function removeAlert(app: AppTarget, { alertId, name }: StoredAlert): Step {
  return step({ action: 'remove', kind: 'alert', app: app.name, name }, async ({ sql, by }) =>
    endAlert(sql, await findAlert(sql, alertId), by),
  );
}
