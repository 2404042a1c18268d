/** Alert rules of an app: what is judged, and who is told. */

import { type Actor, actorName, COMMAND_LINE, writeAudit } from '../../accounts/log/audit.ts';
import { parseEmail } from '../../accounts/people/email.ts';
import { makerOf } from '../../accounts/people/senders.ts';
import type { AlertRow, AlertTransition } from '../../api-types/answers.ts';
import { listFieldProgress } from '../../apps/fields.ts';
import { nearest } from '../../base/did-you-mean.ts';
import { groupedBy } from '../../base/grouped.ts';
import { mapInSlices, TimeSlice } from '../../base/time-slice.ts';
import { MINUTE_MS } from '../../base/time-units.ts';
import { createPublicId } from '../../base/token-text.ts';
import { Refused, refused, WrongField, WrongInput } from '../../errors.ts';
import { whyNotCounted } from '../../read/fields/why-not-counted.ts';
import { isTimezone } from '../../storage/counts/timezone.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import type { FieldKind } from '../../storage/fields/payload-values.ts';
import { checkWebhookUrl } from '../addresses.ts';
import { checkTypes, deliveryNameProblem } from '../consumers.ts';
import { findWebhook, tellOwners } from '../webhooks.ts';
import {
  describeRule,
  isRuleProblem,
  type Measured,
  parseRule,
  partsOf,
  type Rule,
  type RuleProblem,
  ruleProblemText,
} from './rule.ts';

/** What an alert says and whom it tells, as it is stored. */
type SetAlert = Pick<AlertRow, 'name' | 'timezone' | 'webhooks' | 'emails' | 'alertmanager'> & {
  /** JSON, as it was typed. */
  readonly rule: string;
};

export interface AlertRule
  extends SetAlert,
    Pick<AlertRow<Date>, 'alertId' | 'createdAt' | 'evaluatedAt' | 'problem'> {
  readonly id: number;
  readonly appId: number;
  readonly parsed: Rule | RuleProblem;
  readonly isPaused: boolean;
  /** Since when the rule says what it says: earlier minutes are not judged by it. */
  readonly since: Date;
}

/** A rule that is judged, with what its messages call its app. */
export interface ActiveRule extends AlertRule {
  readonly parsed: Rule;
  readonly app: { readonly appId: string; readonly name: string };
}

/** A rule with how many of its series fire now. */
export interface ListedRule extends AlertRule, Pick<AlertRow, 'firing' | 'createdBy'> {
  /** Its firings of the last day that late events have corrected. */
  readonly corrected: number;
}

export interface NewAlert extends SetAlert {
  /** MAX_ALERT_RULES_PER_APP. */
  readonly most: number;
  /** WEBHOOK_ALLOW_PRIVATE. */
  readonly allowPrivate: boolean;
  /** Whether there is a mail server. */
  readonly sendsMail: boolean;
  readonly by?: Actor;
}

/** Addresses and webhooks of one rule. */
const MOST_RECEIVERS = 20;
const MOST_TRANSITIONS = 100;

/** @throws WrongField for what is wrong with the text of a rule */
export function requireRule(text: string): Rule {
  const rule = parseRule(text);
  if (isRuleProblem(rule))
    throw new WrongField('rule', `is wrong: ${ruleProblemText(rule)}`, ruleProblemText(rule));
  return rule;
}

/**
 * Adds a rule to an app. It is judged from the next minute on.
 * @throws WrongField; Refused alertRuleExists, tooManyAlertRules
 */
export async function addAlert(
  sql: Sql,
  app: { readonly id: number; readonly appId: string },
  alert: NewAlert,
): Promise<{ readonly alertId: string; readonly rule: Rule }> {
  const { name, webhooks, emails, most, by = COMMAND_LINE } = alert;
  const rule = await checkAlert(sql, app, alert);
  const alertId = createPublicId('alr');
  const appId = app.id;
  await sql.begin('isolation level read committed', async (tx) => {
    // The lock makes the limit exact.
    await tx`SELECT FROM apps WHERE id = ${appId} FOR NO KEY UPDATE`;
    const names = await tx<{ name: string; emails: readonly string[]; alertmanager: string | null }[]>`
      SELECT name, emails, alertmanager FROM alert_rules WHERE app_id = ${appId}`;
    if (names.some((one) => one.name === name))
      throw refused('alertRuleExists', `the app has an alert ${JSON.stringify(name)} already`);
    if (names.length >= most)
      throw refused('tooManyAlertRules', `an app may have ${most} alerts (MAX_ALERT_RULES_PER_APP)`);
    await tx`
      INSERT INTO alert_rules (public_id, app_id, name, rule, timezone, webhooks, emails, alertmanager, created_by)
      VALUES (${alertId}, ${appId}, ${name}, ${alert.rule}, ${alert.timezone}, ${[...new Set(webhooks)]},
              ${[...new Set(emails.map((one) => one.trim()))]}, ${alert.alertmanager}, ${await makerOf(tx, appId, by)})`;
    await writeAudit(tx, { appId, by, action: 'alert.add', details: { alertId, name, rule: alert.rule } });
    await tellOfAddresses(tx, appId, { alertId, alert, by }, names);
  });
  return { alertId, rule };
}

/** Tells the owners of an app of addresses that no alert of it had before. */
async function tellOfAddresses(
  tx: Transaction,
  appId: number,
  { alertId, alert, by = COMMAND_LINE }: { alertId: string; alert: NewAlert; by?: Actor },
  before: readonly Pick<NewAlert, 'emails' | 'alertmanager'>[],
): Promise<void> {
  const known = new Set(before.flatMap(({ emails, alertmanager }) => [...emails, alertmanager]));
  const { alertmanager } = alert;
  const added = alert.emails
    .map((one) => one.trim())
    .filter((one) => !known.has(one) && one !== actorName(by));
  if (alertmanager !== null && !known.has(alertmanager)) added.push(new URL(alertmanager).origin);
  if (added.length === 0) return;
  await tellOwners(tx, appId, alertId, {
    type: 'address.added',
    subject: 'Alert with a new address',
    text: (app) =>
      `The alert ${JSON.stringify(alert.name)} of the app ${app} tells ${added.length === 1 ? 'an address' : 'addresses'} that no alert of the app told before.\n\n${added.map((one) => `Address: ${one}\n`).join('')}`,
    by,
  });
}

/**
 * Has an alert say something else, from the next minute on. What it has said stays: what fires now is resolved, or fires on.
 * @param isPaused whether it is judged at all
 * @throws WrongField
 */
export async function changeAlert(
  sql: Sql,
  app: { readonly id: number; readonly appId: string },
  { id, alertId }: AlertRule,
  alert: NewAlert,
  isPaused: boolean,
): Promise<void> {
  const { name, rule, timezone, webhooks, emails, alertmanager, by = COMMAND_LINE } = alert;
  await checkAlert(sql, app, alert);
  await sql.begin('isolation level read committed', async (tx) => {
    const before = await tx<{ emails: readonly string[]; alertmanager: string | null }[]>`
      SELECT emails, alertmanager FROM alert_rules WHERE app_id = ${app.id}`;
    await tellOfAddresses(tx, app.id, { alertId, alert, by }, before);
    // Only what is judged otherwise begins anew.
    await tx`
      UPDATE alert_rules
         SET changed_at = CASE WHEN rule = ${rule} AND timezone = ${timezone} THEN changed_at ELSE now() END,
             evaluated_at = CASE WHEN rule = ${rule} AND timezone = ${timezone} AND is_paused = ${isPaused} THEN evaluated_at END,
             rule = ${rule}, timezone = ${timezone}, webhooks = ${[...new Set(webhooks)]},
             emails = ${[...new Set(emails.map((one) => one.trim()))]}, alertmanager = ${alertmanager},
             created_by = CASE WHEN alertmanager IS NOT DISTINCT FROM ${alertmanager} THEN created_by ELSE ${await makerOf(tx, app.id, by)}::integer END,
             is_paused = ${isPaused}, problem = NULL
       WHERE id = ${id}`;
    await writeAudit(tx, { appId: app.id, by, action: 'alert.change', details: { alertId, name, rule } });
  });
}

async function checkAlert(
  sql: Sql,
  app: { readonly id: number; readonly appId: string },
  alert: NewAlert,
): Promise<Rule> {
  const nameProblem = deliveryNameProblem(alert.name);
  if (nameProblem !== null) throw new WrongField('name', nameProblem);
  if (!isTimezone(alert.timezone))
    throw new WrongField('timezone', `must be the name of a time zone such as Europe/Berlin`);
  const rule = await checkRule(sql, app, alert.rule);
  if (alert.webhooks.length > MOST_RECEIVERS) throw new WrongField('webhooks', `may be ${MOST_RECEIVERS}`);
  if (alert.emails.length > MOST_RECEIVERS) throw new WrongField('emails', `may be ${MOST_RECEIVERS}`);
  for (const webhookId of alert.webhooks) {
    try {
      await findWebhook(sql, webhookId, app.id);
    } catch (error) {
      if (error instanceof Refused)
        throw new WrongField('webhooks', `are wrong: ${error.message}`, error.message);
      throw error;
    }
  }
  for (const address of alert.emails)
    if (parseEmail(address) === null)
      throw new WrongField(
        'emails',
        `must be addresses: ${JSON.stringify(address)} is none`,
        `${JSON.stringify(address)} is not an email address`,
      );
  if (alert.emails.length > 0 && !alert.sendsMail)
    throw new WrongField(
      'emails',
      'need a mail server: set SMTP_URL',
      'mails need a mail server: set SMTP_URL',
    );
  if (alert.alertmanager === null) return rule;
  try {
    checkWebhookUrl(alert.alertmanager, alert.allowPrivate);
  } catch (error) {
    if (error instanceof WrongInput)
      throw new WrongField('alertmanager', `is wrong: ${error.message}`, `alertmanager: ${error.message}`);
    throw error;
  }
  return rule;
}

/** @throws WrongField for a rule that is wrong, or that counts of the app's declared fields do not answer */
export async function checkRule(
  sql: Sql,
  app: { readonly id: number; readonly appId: string },
  text: string,
): Promise<Rule> {
  const rule = requireRule(text);
  for (const part of partsOf(rule)) {
    try {
      await checkTypes(sql, app.id, part.type === null ? [] : [part.type]);
    } catch (error) {
      if (error instanceof WrongInput)
        throw new WrongField('rule', `is wrong: ${error.message}`, error.message);
      throw error;
    }
    await checkFields(sql, app, rule, part);
  }
  return rule;
}

/** Whether declarations answer a part of a rule; they need not be complete yet. */
async function checkFields(
  sql: Sql,
  app: { readonly id: number; readonly appId: string },
  { by }: Rule,
  { of, field, type, filter }: Measured,
): Promise<void> {
  const kind: FieldKind = of === 'distinct' ? 'distinct' : of === 'count' ? 'value' : 'number';
  const second = by ?? filter?.path ?? null;
  const path = field ?? second;
  if (path === null) return;
  const apart = field === null ? null : second;
  const declared = (await listFieldProgress(sql, app.id)).some(
    (one) =>
      one.kind === kind &&
      (one.typeName === null || one.typeName === type) &&
      isSame(one.path, path) &&
      (isSame(one.by, apart) || (apart === null && field !== null)),
  );
  if (declared) return;
  const [found] =
    type === null
      ? []
      : await sql<{ id: number }[]>`SELECT id FROM event_types WHERE app_id = ${app.id} AND name = ${type}`;
  const why = await whyNotCounted(sql, {
    app,
    param: field !== null ? 'of' : by !== null ? 'by' : 'filter',
    path,
    kind,
    by: apart,
    typeIds: found === undefined ? null : [found.id],
    from: null,
  });
  if (why?.isRetryable === true) throw new Refused(why);
  const problem = why?.details ?? 'needs a declared field.';
  const [clause] = [problem.replace(/\.$/, '')];
  throw new WrongField(
    'rule',
    `needs a field that is counted: ${clause}`,
    `the rule cannot be judged: ${clause}`,
  );
}

function isSame(a: readonly string[] | null, b: readonly string[] | null): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

const columns = (sql: Sql | Transaction) => sql`
  id, app_id AS "appId", public_id AS "alertId", name, rule, timezone, webhooks, emails, alertmanager, is_paused AS "isPaused",
  created_at AS "createdAt", coalesce(changed_at, created_at) AS since, evaluated_at AS "evaluatedAt", problem`;

/** Rows with their rules read, in slices of time: accounts may have thousands. */
async function parsed<T extends AlertRule>(
  rows: readonly Omit<T, 'parsed'>[],
  slices = new TimeSlice(),
): Promise<readonly T[]> {
  // Only the omitted member is added.
  return await mapInSlices(rows, slices, (row) => ({ ...row, parsed: parseRule(row.rule) }) as unknown as T);
}

/** The rules of an app, in order of creation. */
export async function listAlerts(
  sql: Sql,
  appId: number,
  slices = new TimeSlice(),
): Promise<readonly ListedRule[]> {
  return await parsed(
    await sql<ListedRule[]>`
    SELECT ${columns(sql)}, (SELECT count(*)::integer FROM alert_states WHERE rule_id = alert_rules.id AND state = 'firing') AS firing,
           ${correctedOf(sql)} AS corrected,
           (SELECT json_build_object('userId', maker.public_id, 'email', maker.email) FROM users AS maker
             WHERE maker.id = alert_rules.created_by) AS "createdBy"
      FROM alert_rules WHERE app_id = ${appId} ORDER BY id`,
    slices,
  );
}

/** Firings of a rule in the last day that late events have corrected. */
export const correctedOf = (sql: Sql) => sql`
  (SELECT count(*)::integer FROM alert_transitions
    WHERE rule_id = alert_rules.id AND kind = 'corrected' AND at > now() - interval '1 day')`;

/** So many corrections in a day are no accident. */
export const FLAPPING_AFTER = 3;

/** What is wrong with a rule that late events correct again and again. */
export function lateText(corrected: number): string {
  return `Late events have corrected ${corrected} of its firings in the last day: its producers send later than the rule is judged. Give the rule a delay, such as "delay":"10m".`;
}

/**
 * All that are judged: not those of apps that are in the bin or suspended.
 * @returns apart from them, the problems of rules of an earlier release that are not accepted any more, where they are not noted yet
 */
export async function activeAlerts(
  sql: Sql,
): Promise<{ readonly alerts: readonly ActiveRule[]; readonly wrong: readonly NotedProblem[] }> {
  const rows = await parsed<AlertRule & Pick<ActiveRule, 'app'>>(
    await sql<(AlertRule & Pick<ActiveRule, 'app'>)[]>`
      SELECT ${columns(sql)},
             (SELECT json_build_object('appId', apps.public_id, 'name', apps.name) FROM apps WHERE apps.id = app_id) AS app
        FROM alert_rules
       WHERE NOT is_paused AND EXISTS (
         SELECT FROM apps WHERE apps.id = app_id AND removed_at IS NULL AND suspended_at IS NULL)
       ORDER BY app_id, id`,
  );
  const alerts: ActiveRule[] = [];
  const wrong: NotedProblem[] = [];
  for (const row of rows) {
    const { id, parsed: rule, problem } = row;
    if (!isRuleProblem(rule)) alerts.push({ ...row, parsed: rule });
    else if (ruleProblemText(rule) !== problem) wrong.push({ id, problem: ruleProblemText(rule) });
  }
  return { alerts, wrong };
}

/** What is wrong with a rule, by its internal id. */
export interface NotedProblem {
  readonly id: number;
  readonly problem: string;
}

export async function noteProblems(sql: Sql | Transaction, problems: readonly NotedProblem[]): Promise<void> {
  if (problems.length === 0) return;
  await sql`
    UPDATE alert_rules SET problem = given.problem
      FROM unnest(${problems.map(({ id }) => id)}::integer[], ${problems.map((one) => one.problem)}::text[]) AS given (id, problem)
     WHERE alert_rules.id = given.id`;
}

/** Minutes before the last one that are judged again, for events that were committed later. */
export const RECHECKED_MINUTES = 5;

/** Whether a rule was judged by a clock that was ahead and has come back: it goes on at the present minute. */
export function isAhead(evaluatedAt: Date | null, now: number): boolean {
  return evaluatedAt !== null && evaluatedAt.getTime() > now + RECHECKED_MINUTES * MINUTE_MS;
}

/** What is wrong with a rule that is ahead. */
export function aheadText(evaluatedAt: Date): string {
  return `The rule was judged up to ${evaluatedAt.toISOString()}, which lies ahead of the clock: it goes on at the present minute.`;
}

/**
 * Finds a rule by its id, or by its name in an app.
 * @throws Refused alertRuleNotFound, with the nearest id or name
 */
export async function findAlert(sql: Sql, given: string, appId?: number): Promise<AlertRule> {
  const ofApp = appId === undefined ? sql`` : sql`AND app_id = ${appId}`;
  const byName = appId === undefined ? sql`` : sql`OR name = ${given}`;
  const [row] = await parsed(
    await sql<AlertRule[]>`
      SELECT ${columns(sql)} FROM alert_rules WHERE (public_id = ${given} ${byName}) ${ofApp}
       ORDER BY public_id <> ${given} LIMIT 1`,
  );
  if (row !== undefined) return row;
  const known = await sql<{ id: string; name: string }[]>`
    SELECT public_id AS id, name FROM alert_rules WHERE true ${ofApp} LIMIT 1000`;
  const meant = nearest(
    given,
    appId === undefined ? known.map(({ id }) => id) : known.flatMap(({ id, name }) => [id, name]),
  );
  throw refused(
    'alertRuleNotFound',
    `there is no alert ${JSON.stringify(given)}${meant === null ? '' : `: did you mean ${JSON.stringify(meant)}?`}`,
  );
}

/** Pauses a rule, or has it judged again, from the present minute on. */
export async function setAlertPaused(
  sql: Sql,
  { id, appId, alertId, name }: AlertRule,
  isPaused: boolean,
  by: Actor = COMMAND_LINE,
): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    const { count } = await tx`
      UPDATE alert_rules SET is_paused = ${isPaused}, evaluated_at = NULL, problem = NULL
       WHERE id = ${id} AND is_paused <> ${isPaused}`;
    if (count === 0) return;
    const action = isPaused ? 'alert.pause' : 'alert.resume';
    await writeAudit(tx, { appId, by, action, details: { alertId, name } });
  });
}

export async function removeAlert(
  sql: Sql,
  { id, appId, alertId, name }: AlertRule,
  by: Actor = COMMAND_LINE,
): Promise<void> {
  await sql.begin('isolation level read committed', async (tx) => {
    const { count } = await tx`DELETE FROM alert_rules WHERE id = ${id}`;
    if (count > 0) await writeAudit(tx, { appId, by, action: 'alert.remove', details: { alertId, name } });
  });
}

/** What each rule of an app has said, newest first, by the ids of the rules. */
export async function listTransitions(
  sql: Sql,
  appId: number,
): Promise<ReadonlyMap<number, readonly AlertTransition<Date>[]>> {
  const rows = await sql<(AlertTransition<Date> & { id: number })[]>`
    SELECT alert_rules.id, said.* FROM alert_rules CROSS JOIN LATERAL (
      SELECT public_id AS "messageId", kind, series, at, window_from AS from, window_to AS to, value, threshold, expected,
             corrected_at IS NOT NULL AS "isCorrected"
        FROM alert_transitions WHERE rule_id = alert_rules.id ORDER BY id DESC LIMIT ${MOST_TRANSITIONS}) AS said
     WHERE app_id = ${appId}`;
  return groupedBy(rows, 'id');
}

/**
 * A rule, as commands and routes show it.
 * @param warning whether its events come later than it is judged
 */
export function shownAlert(alert: ListedRule, now: number, warning: string | null = null): AlertRow<Date> {
  const { id: _id, appId: _appId, since: _since, isPaused, rule: typed, parsed, ...others } = alert;
  const { firing, corrected, ...shown } = others;
  const { evaluatedAt } = alert;
  const ahead =
    !isPaused && evaluatedAt !== null && isAhead(evaluatedAt, now) ? aheadText(evaluatedAt) : null;
  const late = corrected >= FLAPPING_AFTER ? lateText(corrected) : null;
  const problem = alert.problem ?? ahead ?? late;
  const state = isPaused ? 'paused' : firing > 0 ? 'firing' : problem !== null ? 'problem' : 'ok';
  const said = isRuleProblem(parsed)
    ? { rule: JSON.parse(typed) as object, text: typed }
    : { rule: parsed.source, text: describeRule(parsed) };
  return { ...shown, ...said, state, firing, problem, warning: isPaused ? null : warning };
}
