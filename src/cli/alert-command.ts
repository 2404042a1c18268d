/** The commands for alerts. */
import { internalAppId } from '../accounts/people/members.ts';
import type { AlertRule } from '../delivery/alerts/alert-rules.ts';
import { OperatorError, WrongInput } from '../errors.ts';
import { parseBound } from '../read/iso-date.ts';
import { isTimezone } from '../storage/counts/timezone.ts';
import { checkRange, collect } from './duration.ts';
import { APP_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import type { Answer, Command, Session } from './session.ts';

/** What alerts need is loaded with the first of their commands. */
const loadAlerts = (): Promise<typeof import('../delivery/alerts/alert-rules.ts')> =>
  import('../delivery/alerts/alert-rules.ts');

interface AlertOptions {
  readonly app: string;
  readonly name: string;
  readonly rule: string;
  readonly delay?: string;
  readonly timezone: string;
  readonly webhook?: readonly string[];
  readonly email?: readonly string[];
  readonly alertmanager?: string;
}

interface OneOptions {
  readonly app?: string;
  readonly name?: string;
  readonly alert?: string;
  readonly rule?: string;
  readonly timezone?: string;
  readonly from?: string;
  readonly to?: string;
}

const RULE_OPTION = [
  '--rule <json>',
  'such as {"of":"count","type":"error","window":"5m","above":100}: see docs/delivery.md',
] as const;
const TIMEZONE_OPTION = ['--timezone <zone>', 'on whose clock a rule with unusual compares weeks'] as const;
const THIRTY_DAYS_MS = 30 * 86_400_000;

export function addAlertCommands(program: Command): void {
  const alert = program.command('alert').description('rules about counts, and who is told when they fire');
  alert
    .command('add')
    .description('add an alert; it is judged each minute')
    .requiredOption(...APP_OPTION)
    .requiredOption('--name <name>', 'name of the alert, 1 to 100 characters')
    .requiredOption(...RULE_OPTION)
    .option('--delay <duration>', 'judge the rule so much later, such as 10m, as its events arrive late')
    .option('--webhook <id>', 'webhook of the app that is told; repeat for more', collect)
    .option('--email <address>', 'address that is mailed; repeat for more', collect)
    .option('--alertmanager <url>', 'Alertmanager that is told, such as http://alertmanager:9093')
    .option(...TIMEZONE_OPTION, 'UTC')
    .run(add);
  alert
    .command('list')
    .description('list the alerts of an app, with what they have said')
    .requiredOption(...APP_OPTION)
    .run(list);
  one(alert, 'test', 'show what a rule would have said')
    .option('--rule <json>', 'a rule that is not added yet; needs --app')
    .option(...TIMEZONE_OPTION)
    .option('--from <time>', 'begin of the time that is judged; by default 30 days before its end')
    .option('--to <time>', 'end of the time that is judged; by default now')
    .run(test);
  one(alert, 'pause', 'stop judging an alert').run(pausing(true));
  one(alert, 'resume', 'judge an alert again, from now on').run(pausing(false));
  one(alert, 'remove', 'remove an alert with what it has said').run(
    async (session, id: string | undefined, options: OneOptions) => {
      const found = await find(session, id, options);
      await (await loadAlerts()).removeAlert(session.sql, found);
      return result(found, { removed: true });
    },
  );
}

/** A command about one alert, which is an argument, or an option. */
function one(alert: Command, name: string, description: string): Command {
  return alert
    .command(name)
    .description(description)
    .argument('[id]', 'the alert, alr_…')
    .option('--alert <id>', 'the same as an option')
    .option('--app <id>', 'the app that it belongs to')
    .option('--name <name>', 'name of the alert in that app, in place of its id');
}

async function add(session: Session, options: AlertOptions): Promise<Answer> {
  const { sql, storage, config } = session;
  const { app: appId, name, timezone } = options;
  const rule = await withDelay(options);
  const app = { id: await internalAppId(sql, appId), appId };
  const made = await (await loadAlerts()).addAlert(sql, app, {
    ...{ name, rule, timezone },
    webhooks: options.webhook ?? [],
    emails: options.email ?? [],
    alertmanager: options.alertmanager ?? null,
    most: config.MAX_ALERT_RULES_PER_APP,
    allowPrivate: config.WEBHOOK_ALLOW_PRIVATE,
    sendsMail: config.SMTP_URL !== '',
  });
  const [warning = null] = await warningsOf({ sql, storage }, app.id, [made.rule]);
  const text = formatFields({
    ...{ Alert: made.alertId, Name: name },
    ...(warning !== null && { Warning: warning }),
  });
  return { json: { alertId: made.alertId, name, warning }, text };
}

async function warningsOf(
  { sql, storage }: Pick<Session, 'sql' | 'storage'>,
  appId: number,
  rules: readonly AlertRule['parsed'][],
): Promise<readonly (string | null)[]> {
  const { latenessWarnings } = await import('../delivery/alerts/lateness.ts');
  const place = { sql, events: storage.reader(sql) };
  return await latenessWarnings(place, appId, rules, Date.now());
}

/** The rule with the member that --delay names. */
async function withDelay({ rule, delay }: AlertOptions): Promise<string> {
  if (delay === undefined) return rule;
  const { source } = (await loadAlerts()).requireRule(rule);
  return JSON.stringify({ ...source, delay });
}

async function list({ sql, storage }: Session, { app }: AlertOptions): Promise<Answer> {
  const { listAlerts, listTransitions, shownAlert } = await loadAlerts();
  const id = await internalAppId(sql, app);
  const [found, said] = [await listAlerts(sql, id), await listTransitions(sql, id)];
  const warnings = await warningsOf(
    { sql, storage },
    id,
    found.map(({ parsed }) => parsed),
  );
  const alerts = found.map((alert, index) => ({
    ...shownAlert(alert, Date.now(), warnings[index]),
    transitions: said.get(alert.id) ?? [],
  }));
  const rows = alerts.map((alert) => [
    alert.alertId,
    alert.name,
    alert.state,
    JSON.stringify(alert.rule),
    [...alert.webhooks, ...alert.emails, ...(alert.alertmanager === null ? [] : [alert.alertmanager])],
    alert.evaluatedAt,
    alert.problem ?? alert.warning,
  ]);
  const head = ['Alert', 'Name', 'State', 'Rule', 'Told', 'Judged', 'Problem'];
  return { json: { alerts }, text: formatTable(head, rows, 'The app has no alerts.') };
}

async function find({ sql }: Session, id: string | undefined, options: OneOptions): Promise<AlertRule> {
  const given = id ?? options.alert ?? options.name;
  if (given === undefined) throw new WrongInput('name the alert: alr_…, or --app and --name');
  if (given === options.name && options.app === undefined) throw new WrongInput('--name needs --app');
  const appId = options.app === undefined ? undefined : await internalAppId(sql, options.app);
  return await (await loadAlerts()).findAlert(sql, given, appId);
}

function pausing(isPaused: boolean) {
  return async (session: Session, id: string | undefined, options: OneOptions): Promise<Answer> => {
    const found = await find(session, id, options);
    await (await loadAlerts()).setAlertPaused(session.sql, found, isPaused);
    return result(found, { state: isPaused ? 'paused' : 'active' });
  };
}

async function test(session: Session, id: string | undefined, options: OneOptions): Promise<Answer> {
  const { sql, storage } = session;
  const { checkRule, requireRule } = await loadAlerts();
  const now = Date.now();
  const until = options.to === undefined ? now : timeOf('--to', options.to);
  const from = options.from === undefined ? until - THIRTY_DAYS_MS : timeOf('--from', options.from);
  checkRange(from, until);
  if (options.timezone !== undefined && !isTimezone(options.timezone))
    throw new WrongInput('--timezone must be an IANA time zone, such as Europe/Berlin');
  const isNew = options.rule !== undefined;
  if (isNew && options.app === undefined) throw new WrongInput('--rule needs --app');
  const found = isNew ? null : await find(session, id, options);
  const appId = found?.appId ?? (await internalAppId(sql, options.app ?? ''));
  const app = { id: appId, appId: options.app ?? '' };
  const rule = found === null ? await checkRule(sql, app, options.rule ?? '') : requireRule(found.rule);
  const { tryRule } = await import('../delivery/alerts/trial.ts');
  const tried = { rule, appId, timezone: options.timezone ?? found?.timezone ?? 'UTC' };
  const place = { sql, events: storage.reader(sql) };
  const trial = await tryRule(place, tried, { from, until: Math.min(until, now) });
  if (trial === null)
    throw new OperatorError(
      'the counts of a declared field do not answer the rule for all of this time: see tidemark field list, or begin later',
    );
  const { fires: _, ...told } = trial;
  const shown = {
    ...told,
    from: iso(trial.from),
    to: iso(trial.to),
    firings: trial.firings.map((one) => ({
      ...one,
      series: one.series === '' ? null : (JSON.parse(one.series) as unknown),
      from: iso(one.from),
      to: one.to === null ? null : iso(one.to),
    })),
  };
  const rows = shown.firings.map((one) => [
    one.from,
    one.to,
    one.series === null ? null : String(one.series),
    String(one.value),
    String(one.threshold),
  ]);
  const head = ['From', 'To', 'Series', 'Value', 'Threshold'];
  const table = formatTable(head, rows, `It would not have fired from ${shown.from} to ${shown.to}.`);
  const text = trial.total > rows.length ? `The last ${rows.length} of ${trial.total}:\n${table}` : table;
  return { json: { alertId: found?.alertId ?? null, ...shown }, text };
}

function timeOf(option: string, text: string): number {
  const at = parseBound(text, 'start');
  if (typeof at === 'string') throw new WrongInput(`${option} ${at}`);
  return at;
}

function iso(ms: number): string {
  return new Date(ms).toISOString();
}

function result({ alertId, name }: AlertRule, fields: Readonly<Record<string, unknown>>): Answer {
  const lines = Object.entries(fields).map(([key, value]) => [key, String(value)]);
  return {
    json: { alertId, name, ...fields },
    text: formatFields({ Alert: alertId, Name: name, ...Object.fromEntries(lines) }),
  };
}
