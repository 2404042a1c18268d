/** Compares a configuration with what an installation has: the steps that make the one of the other. */
import { isDeepStrictEqual } from 'node:util';
import { parseEmail } from '../accounts/people/email.ts';
import type { OwnLimits } from '../apps/app-limits.ts';
import { eventTypeNameProblem } from '../apps/event-types.ts';
import { formatProblem, type NumberFormat } from '../apps/fields.ts';
import { checkName } from '../apps/name.ts';
import type { KeptDays } from '../apps/retention.ts';
import type { Role } from '../base/roles.ts';
import { isRuleProblem, parseRule } from '../delivery/alerts/rule.ts';
import { deliveryNameProblem } from '../delivery/consumers.ts';
import { spellPath } from '../read/fields/payload-paths.ts';
import { parsePath } from '../read/filter/parse-filter.ts';
import { isTimezone } from '../storage/counts/timezone.ts';
import type { FieldKind } from '../storage/fields/payload-values.ts';
import { matchApps } from './app-match.ts';
import type { AlertEntry, AppEntry, FieldEntry, GroupEntry, TypeEntry, WebhookEntry } from './document.ts';
import type { ConfigMistake, ParsedConfig, Path } from './parse.ts';
import {
  ownerOf,
  type StoredAlert,
  type StoredApp,
  type StoredState,
  type StoredType,
  type StoredWebhook,
} from './state.ts';
import type { AppTarget, Kept, Step } from './steps.ts';
import * as steps from './steps.ts';

export interface PlanOptions {
  readonly prune: boolean;
  /** Whether prune may remove apps that have events. */
  readonly deleteEvents: boolean;
  /** Accounts by the keys of their addresses; the value says whether the address is verified. */
  readonly accounts: ReadonlyMap<string, boolean>;
  readonly hasEvents: (appId: number) => Promise<boolean>;
  /** What is wrong with the address of a webhook or with a filter; null: nothing. */
  readonly webhookProblem: (webhook: WebhookEntry) => string | null;
  /** Whether there is a mail server. */
  readonly sendsMail: boolean;
}

const NO_LIMITS: OwnLimits = { createPerMinute: null, bytesPerDay: null, types: null };

export interface Plan {
  readonly steps: readonly Step[];
  /** What is there beside the document, and stays without prune. */
  readonly kept: readonly Kept[];
}

/** What plans of parts are written to. */
interface Draft {
  readonly parsed: ParsedConfig;
  readonly options: PlanOptions;
  readonly steps: Step[];
  readonly removals: Step[];
  readonly kept: Kept[];
  /** Keys of addresses that get an account. */
  readonly newAccounts: Set<string>;
}

/**
 * Plans what makes the installation as the document says.
 * @throws ConfigMistake where the document contradicts itself or what is there
 */
export async function planConfig(
  parsed: ParsedConfig,
  state: StoredState,
  options: PlanOptions,
): Promise<Plan> {
  const draft: Draft = { parsed, options, steps: [], removals: [], kept: [], newAccounts: new Set() };
  const { apps: entries, groups, partial = false } = parsed.document;
  if (entries !== undefined) {
    const matched = matchApps(entries, state.apps, parsed);
    for (const [index, entry] of entries.entries())
      planApp(draft, ['apps', index], entry, matched.get(entry) ?? null);
    const others = partial ? [] : state.apps.filter((app) => ![...matched.values()].includes(app));
    for (const app of others) await planOtherApp(draft, app);
  }
  if (groups !== undefined) planGroups(draft, ['groups'], null, groups, state.groups);
  return { steps: [...draft.steps, ...draft.removals], kept: draft.kept };
}

/** An app that the document does not have. */
async function planOtherApp(draft: Draft, app: StoredApp): Promise<void> {
  const { prune, deleteEvents, hasEvents } = draft.options;
  if (prune && !deleteEvents && (await hasEvents(app.id)))
    throw draft.parsed.mistake(
      ['apps'],
      `has no app ${JSON.stringify(app.name)} (${app.appId}), and that one has events: add it, or have them deleted with --delete-events`,
    );
  if (prune) draft.removals.push(steps.removeApp(app));
  else draft.kept.push({ kind: 'app', app: null, name: app.name });
}

function planApp(draft: Draft, path: Path, entry: AppEntry, stored: StoredApp | null): void {
  checked(draft, [...path, 'name'], () => checkName(entry.name));
  const app: AppTarget = {
    id: stored?.id ?? null,
    appId: stored?.appId ?? null,
    name: entry.name,
    types: new Map(stored?.types.map(({ name, typeId }) => [name, typeId])),
  };
  if (entry.owner !== undefined) planAccount(draft, [...path, 'owner'], entry.owner);
  if (stored === null) draft.steps.push(steps.createApp(app, entry.owner ?? null));
  else if (stored.name !== entry.name) draft.steps.push(steps.renameApp(app, stored.name));
  planLimits(draft, app, entry, stored);
  planRetention(draft, app, null, entry.retention, stored);
  const typeNames = planTypes(draft, [...path, 'types'], app, entry.types ?? [], stored?.types ?? []);
  planFields(draft, [...path, 'fields'], { app, typeNames }, entry.fields ?? [], stored);
  planViews(draft, [...path, 'views'], app, entry, stored);
  planMembers(draft, path, app, entry, stored);
  planGroups(draft, [...path, 'groups'], app, entry.groups ?? [], stored?.groups ?? []);
  const webhooks = planWebhooks(
    draft,
    [...path, 'webhooks'],
    app,
    entry.webhooks ?? [],
    stored?.webhooks ?? [],
  );
  planAlerts(draft, [...path, 'alerts'], { app, webhooks }, entry.alerts ?? [], stored?.alerts ?? []);
}

function planLimits(draft: Draft, app: AppTarget, { limits = {} }: AppEntry, stored: StoredApp | null): void {
  const before = stored?.limits ?? NO_LIMITS;
  const after = { ...(draft.options.prune ? NO_LIMITS : before), ...limits };
  if (!isDeepStrictEqual(before, after)) draft.steps.push(steps.setLimits(app, after));
}

/** @param type its name; null: of the app */
function planRetention(
  draft: Draft,
  app: AppTarget,
  type: string | null,
  wanted: KeptDays | undefined,
  stored: { readonly retention: KeptDays } | null,
): void {
  const before = stored?.retention ?? 'default';
  const after = wanted ?? (draft.options.prune ? 'default' : before);
  if (before !== after) draft.steps.push(steps.setRetention(app, type, after));
}

/** @returns the names of all types that there are afterwards */
function planTypes(
  draft: Draft,
  path: Path,
  app: AppTarget,
  entries: readonly TypeEntry[],
  stored: readonly StoredType[],
): ReadonlySet<string> {
  unique(draft, path, entries, ({ name }) => name);
  const known = new Map(stored.map((type) => [type.name, type]));
  const names = new Set(known.keys());
  const missing: string[] = [];
  const later: (() => void)[] = [];
  for (const [index, entry] of entries.entries()) {
    const problem = eventTypeNameProblem(entry.name);
    if (problem !== null) throw draft.parsed.mistake([...path, index, 'name'], problem);
    const former = entry.renamedFrom === undefined ? undefined : known.get(entry.renamedFrom);
    const renamed = known.has(entry.name) ? undefined : former;
    if (renamed !== undefined) {
      draft.steps.push(steps.renameType(app, renamed, entry.name));
      names.delete(renamed.name);
      app.types.delete(renamed.name);
      app.types.set(entry.name, renamed.typeId);
    } else if (!known.has(entry.name)) missing.push(entry.name);
    names.add(entry.name);
    const type = renamed ?? known.get(entry.name) ?? null;
    later.push(() => {
      planType(draft, [...path, index], app, entry, type);
      planRedactions(draft, [...path, index, 'redact'], app, entry, type);
    });
  }
  if (missing.length > 0) draft.steps.push(steps.createTypes(app, missing));
  for (const plan of later) plan();
  return names;
}

function planType(
  draft: Draft,
  path: Path,
  app: AppTarget,
  entry: TypeEntry,
  stored: StoredType | null,
): void {
  const { prune } = draft.options;
  for (const display of ['hidden', 'annotation'] as const) {
    const was = stored?.[display] ?? false;
    const isOn = entry[display] ?? (prune ? false : was);
    if (isOn !== was) draft.steps.push(steps.displayType(app, entry.name, display, isOn));
  }
  planRetention(draft, app, entry.name, entry.retention, stored);
  if (entry.schema === undefined && entry.schemaMode === undefined) {
    if ((stored?.schema ?? null) === null) return;
    if (prune) draft.removals.push(steps.removeSchema(app, entry.name));
    else draft.kept.push({ kind: 'schema', app: app.name, name: entry.name });
    return;
  }
  const schema = entry.schema ?? stored?.schema ?? null;
  if (schema === null) throw draft.parsed.mistake([...path, 'schemaMode'], 'needs a schema beside it');
  const mode = entry.schemaMode ?? (prune ? 'warn' : (stored?.mode ?? 'warn'));
  if (isDeepStrictEqual(schema, stored?.schema) && mode === stored?.mode) return;
  draft.steps.push(
    steps.setSchema(app, entry.name, { schema, mode, isNew: (stored?.schema ?? null) === null }),
  );
}

function planRedactions(
  draft: Draft,
  path: Path,
  app: AppTarget,
  { name: type, redact = [] }: TypeEntry,
  stored: StoredType | null,
): void {
  const nameOf = (names: readonly string[]): string => `${spellPath(names)} of ${JSON.stringify(type)}`;
  const rules = redact.map(({ path: spelled, action }, index) => {
    const names = namesOf(draft, [...path, index, 'path'], spelled);
    return { type, path: names, name: nameOf(names), action };
  });
  unique(draft, path, rules, ({ name }) => name);
  const before = new Map(
    (stored?.redactions ?? []).map(({ path: spelled, action }) => {
      const names = namesOf(draft, path, spelled);
      return [nameOf(names), { type, path: names, name: nameOf(names), action }] as const;
    }),
  );
  for (const { action, ...rule } of rules) {
    const has = before.get(rule.name)?.action;
    if (has !== action) draft.steps.push(steps.setRedaction(app, rule, action, has !== undefined));
    before.delete(rule.name);
  }
  for (const rule of before.values()) {
    if (draft.options.prune) draft.removals.push(steps.removeRedaction(app, rule));
    else draft.kept.push({ kind: 'redaction', app: app.name, name: rule.name });
  }
}

interface NamedField extends NumberFormat {
  readonly path: readonly string[];
  readonly by: readonly string[] | null;
  readonly kind: FieldKind;
  readonly type: string | null;
}

function planFields(
  draft: Draft,
  path: Path,
  { app, typeNames }: { readonly app: AppTarget; readonly typeNames: ReadonlySet<string> },
  entries: readonly FieldEntry[],
  stored: StoredApp | null,
): void {
  const wanted = entries.map((entry, index): NamedField => {
    const place = [...path, index];
    const { kind = 'value', type = null, unit = null, decimals = null } = entry;
    const [name, problem] = formatProblem({ kind, unit, decimals }) ?? [];
    if (name !== undefined) throw draft.parsed.mistake([...place, name], problem ?? '');
    if (type !== null && !typeNames.has(type))
      throw draft.parsed.mistake(
        [...place, 'type'],
        `names no event type of the app: ${JSON.stringify(type)}`,
      );
    const by = entry.by === undefined ? null : namesOf(draft, [...place, 'by'], entry.by);
    const names = namesOf(draft, [...place, 'path'], entry.path);
    if (isDeepStrictEqual(names, by)) throw draft.parsed.mistake([...place, 'by'], 'must be another path');
    return { path: names, by, kind, type, unit, decimals };
  });
  unique(draft, path, wanted, fieldName);
  // A renamed type takes its fields along.
  const present = new Map(
    (stored?.fields ?? []).map((field) => {
      const by = field.by === null ? null : namesOf(draft, path, field.by);
      const type = field.type === null ? null : renamedName(app, stored, field.type, typeNames);
      const { kind, unit, decimals } = field;
      const named = { path: namesOf(draft, path, field.path), by, kind, type, unit, decimals };
      return [fieldName(named), named] as const;
    }),
  );
  const names = new Set(wanted.map(fieldName));
  for (const field of wanted) {
    const known = present.get(fieldName(field));
    const isSame = known?.unit === field.unit && known.decimals === field.decimals;
    if (!isSame) draft.steps.push(steps.declareField(app, field, fieldName(field), known !== undefined));
  }
  for (const [name, field] of present) {
    if (names.has(name)) continue;
    if (draft.options.prune) draft.removals.push(steps.removeField(app, field, name));
    else draft.kept.push({ kind: 'field', app: app.name, name });
  }
}

/** The name that a stored type has after the plan's renames. */
function renamedName(
  app: AppTarget,
  stored: StoredApp | null,
  name: string,
  after: ReadonlySet<string>,
): string {
  if (after.has(name)) return name;
  const typeId = stored?.types.find((type) => type.name === name)?.typeId;
  return [...app.types].find(([, id]) => id === typeId)?.[0] ?? name;
}

function fieldName({ path, by, kind, type }: NamedField): string {
  const parts = [spellPath(path), kind === 'value' ? '' : `(${kind})`];
  parts.push(by === null ? '' : `by ${spellPath(by)}`, type === null ? '' : `of ${JSON.stringify(type)}`);
  return parts.filter((part) => part !== '').join(' ');
}

function namesOf(draft: Draft, path: Path, spelled: string): readonly string[] {
  const names = parsePath(spelled);
  if ('problem' in names)
    throw draft.parsed.mistake(path, `is wrong at column ${names.column}: ${names.problem}`);
  return names;
}

function planViews(
  draft: Draft,
  path: Path,
  app: AppTarget,
  entry: AppEntry,
  stored: StoredApp | null,
): void {
  const entries = entry.views ?? [];
  unique(draft, path, entries, ({ name }) => name);
  const known = new Map(stored?.views.map((view) => [view.name, view]));
  for (const [index, view] of entries.entries()) {
    checked(draft, [...path, index, 'name'], () => checkName(view.name));
    const before = known.get(view.name);
    if (before?.search !== view.search) draft.steps.push(steps.saveView(app, view, before !== undefined));
    known.delete(view.name);
  }
  for (const view of known.values()) {
    if (draft.options.prune) draft.removals.push(steps.removeView(app, view));
    else draft.kept.push({ kind: 'view', app: app.name, name: view.name });
  }
}

function planMembers(
  draft: Draft,
  path: Path,
  app: AppTarget,
  entry: AppEntry,
  stored: StoredApp | null,
): void {
  const place = [...path, 'members'];
  const wanted = new Map<string, { email: string; role: Role }>();
  for (const [index, member] of (entry.members ?? []).entries()) {
    const key = planAccount(draft, [...place, index, 'email'], member.email);
    if (wanted.has(key)) throw draft.parsed.mistake([...place, index], `repeats ${member.email}`);
    wanted.set(key, member);
  }
  const owner = entry.owner === undefined ? null : parseEmail(entry.owner);
  if (owner !== null) {
    const also = wanted.get(owner.key);
    if (also !== undefined && also.role !== 'owner')
      throw draft.parsed.mistake(place, `gives the owner ${owner.text} another role`);
    wanted.set(owner.key, { email: owner.text, role: 'owner' });
  }
  const before = new Map(stored?.members.map((member) => [member.emailKey, member]));
  // Owners first: an app always has one.
  const ordered = [...wanted].sort(([, a], [, b]) => Number(b.role === 'owner') - Number(a.role === 'owner'));
  for (const [key, { email, role }] of ordered) {
    const has = before.get(key)?.role ?? (stored === null && key === owner?.key ? 'owner' : null);
    if (has !== role) draft.steps.push(steps.setMember(app, email, role, has !== null));
  }
  const first = stored === null ? null : ownerOf(stored);
  for (const [key, { email }] of before) {
    if (wanted.has(key) || (owner === null && key === first?.emailKey)) continue;
    if (draft.options.prune) draft.removals.push(steps.removeMember(app, email));
    else draft.kept.push({ kind: 'member', app: app.name, name: email });
  }
}

/** An account that the document names, made where there is none. @returns the key of its address */
function planAccount(draft: Draft, path: Path, address: string): string {
  const email = parseEmail(address);
  if (email === null) throw draft.parsed.mistake(path, 'is not an email address');
  const { accounts } = draft.options;
  if (accounts.get(email.key) === false)
    throw draft.parsed.mistake(
      path,
      `is the address of an account that has not verified it: its owner, or "tidemark user verify", must do so first`,
    );
  if (!accounts.has(email.key) && !draft.newAccounts.has(email.key)) {
    draft.newAccounts.add(email.key);
    draft.steps.push(steps.createAccount(email));
  }
  return email.key;
}

function planGroups(
  draft: Draft,
  path: Path,
  app: AppTarget | null,
  entries: readonly GroupEntry[],
  stored: readonly GroupEntry[],
): void {
  unique(draft, path, entries, ({ group }) => group);
  const before = new Map(stored.map(({ group, role }) => [group, role]));
  for (const { group, role } of entries) {
    const has = before.get(group);
    if (has !== role) draft.steps.push(steps.mapGroup(app, { group, role }, has !== undefined));
    before.delete(group);
  }
  for (const group of before.keys()) {
    if (draft.options.prune) draft.removals.push(steps.unmapGroup(app, group));
    else draft.kept.push({ kind: 'group', app: app?.name ?? null, name: group });
  }
}

/** The webhooks of an app as the plan leaves them. */
interface WebhooksAfter {
  /** Public ids by address; null: it is made by a step. */
  readonly ids: ReadonlyMap<string, string | null>;
  /** Public ids of those that are removed. */
  readonly leaving: readonly string[];
}

/** A webhook is known by everything but its state: one that differs is another one, with a secret and a position of its own. */
function planWebhooks(
  draft: Draft,
  path: Path,
  app: AppTarget,
  entries: readonly WebhookEntry[],
  stored: readonly StoredWebhook[],
): WebhooksAfter {
  const left = [...stored];
  const ids = new Map<string, string | null>();
  for (const [index, entry] of entries.entries()) {
    const problem = draft.options.webhookProblem(entry);
    if (problem !== null) throw draft.parsed.mistake([...path, index], problem);
    const url = new URL(entry.url).href;
    const at = left.findIndex((one) => isSameWebhook({ ...entry, url }, one));
    const [same] = at < 0 ? [] : left.splice(at, 1);
    const paused = entry.paused ?? (draft.options.prune ? false : (same?.isPaused ?? false));
    ids.set(url, ids.get(url) ?? same?.webhookId ?? null);
    if (same === undefined) draft.steps.push(steps.addWebhook(app, entry, paused));
    else if (same.isPaused !== paused) draft.steps.push(steps.pauseWebhook(app, same, paused));
  }
  for (const webhook of left) {
    if (draft.options.prune) draft.removals.push(steps.removeWebhook(app, webhook));
    else {
      ids.set(webhook.url, ids.get(webhook.url) ?? webhook.webhookId);
      draft.kept.push({ kind: 'webhook', app: app.name, name: webhook.url });
    }
  }
  return { ids, leaving: draft.options.prune ? left.map(({ webhookId }) => webhookId) : [] };
}

function isSameWebhook(entry: WebhookEntry, stored: StoredWebhook): boolean {
  const { url, types = [], filter = [], unordered = false, format = 'standard' } = entry;
  const { events = format === 'standard' } = entry;
  return (
    url === stored.url &&
    unordered === stored.isUnordered &&
    events === stored.sendsEvents &&
    format === stored.format &&
    isDeepStrictEqual([...types].sort(), [...stored.types].sort()) &&
    isDeepStrictEqual([...filter].sort(), [...stored.filter].sort())
  );
}

/** An alert is known by its name. One that says something else keeps its id and what it has said. */
function planAlerts(
  draft: Draft,
  path: Path,
  { app, webhooks }: { readonly app: AppTarget; readonly webhooks: WebhooksAfter },
  entries: readonly AlertEntry[],
  stored: readonly StoredAlert[],
): void {
  unique(draft, path, entries, ({ name }) => name);
  const known = new Map(stored.map((alert) => [alert.name, alert]));
  for (const [index, entry] of entries.entries()) {
    checkAlert(draft, [...path, index], entry, webhooks);
    const before = known.get(entry.name) ?? null;
    known.delete(entry.name);
    const paused = entry.paused ?? (draft.options.prune ? false : (before?.isPaused ?? false));
    if (before === null || !isSameAlert(entry, before, webhooks))
      draft.steps.push(steps.setAlert(app, entry, { before, paused, leaving: webhooks.leaving }));
    else if (before.isPaused !== paused) draft.steps.push(steps.pauseAlert(app, before, paused));
  }
  for (const alert of known.values()) {
    if (draft.options.prune) draft.removals.push(steps.removeAlert(app, alert));
    else draft.kept.push({ kind: 'alert', app: app.name, name: alert.name });
  }
}

/** What can be said of an alert before it is added. */
function checkAlert(draft: Draft, path: Path, entry: AlertEntry, webhooks: WebhooksAfter): void {
  const { parsed, options } = draft;
  const problem = deliveryNameProblem(entry.name);
  if (problem !== null) throw parsed.mistake([...path, 'name'], problem);
  const rule = parseRule(JSON.stringify(entry.rule));
  if (isRuleProblem(rule))
    throw parsed.mistake(
      [...path, 'rule', ...rule.field.split('.').filter((part) => part !== '')],
      rule.problem,
    );
  if (entry.timezone !== undefined && !isTimezone(entry.timezone))
    throw parsed.mistake([...path, 'timezone'], 'must be the name of a time zone such as Europe/Berlin');
  for (const [index, url] of (entry.webhooks ?? []).entries())
    if (!URL.canParse(url) || !webhooks.ids.has(new URL(url).href))
      throw parsed.mistake([...path, 'webhooks', index], 'is not the address of a webhook of the app');
  for (const [index, address] of (entry.emails ?? []).entries())
    if (parseEmail(address) === null)
      throw parsed.mistake([...path, 'emails', index], 'is not an email address');
  if ((entry.emails ?? []).length > 0 && !options.sendsMail)
    throw parsed.mistake([...path, 'emails'], 'need a mail server: set SMTP_URL');
  const { alertmanager: url } = entry;
  const wrong = url === undefined ? null : options.webhookProblem({ url });
  if (wrong !== null) throw parsed.mistake([...path, 'alertmanager'], wrong);
}

function isSameAlert(entry: AlertEntry, stored: StoredAlert, { ids }: WebhooksAfter): boolean {
  const { rule, timezone = 'UTC', webhooks = [], emails = [], alertmanager = null } = entry;
  const told = webhooks.map((url) => ids.get(new URL(url).href));
  return (
    isDeepStrictEqual(rule, stored.rule) &&
    timezone === stored.timezone &&
    alertmanager === stored.alertmanager &&
    isDeepStrictEqual(new Set(told), new Set(stored.webhooks)) &&
    isDeepStrictEqual(new Set(emails.map((one) => one.trim())), new Set(stored.emails))
  );
}

function unique<T>(draft: Draft, path: Path, entries: readonly T[], nameOf: (entry: T) => string): void {
  const seen = new Set<string>();
  for (const [index, entry] of entries.entries()) {
    const name = nameOf(entry);
    if (seen.has(name)) throw draft.parsed.mistake([...path, index], `repeats ${JSON.stringify(name)}`);
    seen.add(name);
  }
}

/** Runs a check that throws a refusal, which is then a mistake at this place. */
function checked(draft: Draft, path: Path, check: () => void): void {
  try {
    check();
  } catch (error) {
    throw mistakeOf(draft.parsed, path, error);
  }
}

function mistakeOf(parsed: ParsedConfig, path: Path, error: unknown): ConfigMistake {
  return parsed.mistake(path, `is refused: ${error instanceof Error ? error.message : String(error)}`);
}
