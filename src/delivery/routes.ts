/** Webhooks and alerts of an app, for its members' sessions: everyone sees them, maintainers and owners change them. */
import { type Api, type MemberCall, type Outside, turnsOfSession } from '../accounts/routes/api.ts';
import { bodyOf, NO_FIELDS } from '../accounts/routes/body.ts';
import type {
  AlertList,
  AlertTrial,
  NewAlertAnswer,
  NewWebhookAnswer,
  WebhookList,
} from '../api-types/answers.ts';
import { listFieldProgress } from '../apps/fields.ts';
import type { Secret } from '../apps/secret.ts';
import { mapInSlices, TimeSlice } from '../base/time-slice.ts';
import { DAY_MS } from '../base/time-units.ts';
import type { Config } from '../config.ts';
import { invalidField, notYet, Rejection, WrongField, WrongInput } from '../errors.ts';
import { done, type Nothing } from '../http/data.ts';
import type { Outcome } from '../http/exchange.ts';
import type { Route } from '../http/route.ts';
import { isTimezone } from '../storage/counts/timezone.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { Engine } from '../storage/database/engine.ts';
import { ConsumerStore } from '../storage/feed/consumers.ts';
import {
  addAlert,
  checkRule,
  findAlert,
  listAlerts,
  listTransitions,
  removeAlert,
  setAlertPaused,
  shownAlert,
} from './alerts/alert-rules.ts';
import { latenessWarnings } from './alerts/lateness.ts';
import { tryRule } from './alerts/trial.ts';
import {
  addWebhook,
  findWebhook,
  listTries,
  listWebhooks,
  removeWebhook,
  rotateWebhookSecret,
  setWebhookState,
  shownWebhook,
  skipEvent,
  type TriedWebhook,
  testWebhook,
  type Webhook,
} from './webhooks.ts';

export interface DeliveryRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly secret: Secret;
  readonly engine: Engine;
  readonly config: Pick<
    Config,
    'MAX_WEBHOOKS_PER_APP' | 'MAX_ALERT_RULES_PER_APP' | 'WEBHOOK_ALLOW_PRIVATE' | 'SMTP_URL'
  >;
  readonly now: () => number;
}

const TEXTS = { type: 'array', maxItems: 50 } as const;
const NEW_WEBHOOK = bodyOf(
  {
    url: { type: 'string', maxLength: 2_000 },
    types: TEXTS,
    filter: TEXTS,
    unordered: { type: 'boolean' },
    format: { type: 'string', maxLength: 20 },
  },
  ['url'],
);
const NEW_ALERT = bodyOf(
  {
    name: { type: 'string', maxLength: 1_000 },
    rule: { type: 'string', maxLength: 10_000 },
    timezone: { type: 'string', maxLength: 100 },
    webhooks: TEXTS,
    emails: TEXTS,
    alertmanager: { type: 'string', maxLength: 2_000, nullable: true },
  },
  ['name', 'rule'],
);
const NO_ACTION = new Rejection('notFound', 'There is no such action.');
/** Firings of a trial that are told one by one: the last ones. */
const FIRINGS_SHOWN = 100;
const DAYS_TRIED = 30;
const COUNTING = notYet(
  'Events of the last 30 days are being counted by a field of the app: try again shortly.',
  5,
);
/** How often a request looks at 100 events for the one that blocks a webhook. */
const MOST_SKIP_STEPS = 20;
/** Who is told of a change that is not the user's own. */
const UNKNOWN_RULE = invalidField('rule', 'is missing');

export function deliveryRoutes(options: DeliveryRoutesOptions): readonly Route[] {
  return [...webhookRoutes(options), ...alertRoutes(options)];
}

/** What is typed wrong is answered with its field. */
async function inFields(field: string, work: () => Promise<Outcome>): Promise<Outcome> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof WrongField) return invalidField(error.field, error.problem);
    if (error instanceof WrongInput) return invalidField(field, `is wrong: ${error.message}`);
    throw error;
  }
}

function webhookRoutes(options: DeliveryRoutesOptions): readonly Route[] {
  const { api, sql, engine, config } = options;
  const store = new ConsumerStore(engine, sql);
  return [
    api.readInTurn('/api/apps/:appId/webhooks', 'read', async ({ app, user, sql: reads }) => {
      const [webhooks, tries] = [await listWebhooks(reads, app.id), await listTries(reads, app.id)];
      const shown = await mapInSlices(webhooks, new TimeSlice(turnsOfSession(user)), (one) => ({
        ...shownWebhook(one),
        history: tries.get(one.id) ?? [],
      }));
      return done<WebhookList>({ webhooks: shown, most: config.MAX_WEBHOOKS_PER_APP });
    }),
    api.change('POST', '/api/apps/:appId/webhooks', 'change', NEW_WEBHOOK, ({ app, by }, body) =>
      inFields('url', async () => {
        const made = await addWebhook({ ...options, store }, app.id, body, { by });
        return done<NewWebhookAnswer>(made, { status: 201 });
      }),
    ),
    api.change(
      'POST',
      '/api/apps/:appId/webhooks/:webhookId/:action',
      'change',
      NO_FIELDS,
      (call, _, outside) => inFields('webhookId', () => actOnWebhook(options, call, outside)),
    ),
    api.change('DELETE', '/api/apps/:appId/webhooks/:webhookId', 'change', NO_FIELDS, async (call) => {
      const found = await findWebhook(sql, call.parameters[1] ?? '', call.app.id);
      await removeWebhook(sql, store, found, call.by);
      return done<Nothing>({});
    }),
  ];
}

async function actOnWebhook(
  options: DeliveryRoutesOptions,
  call: MemberCall,
  outside: Outside,
): Promise<Outcome> {
  const { app, by, parameters } = call;
  const { sql, secret } = options;
  const [, webhookId = '', action = ''] = parameters;
  const found = await findWebhook(sql, webhookId, app.id);
  switch (action) {
    case 'pause':
    case 'resume':
      await setWebhookState(sql, found, action === 'pause' ? 'paused' : 'active', by);
      return done<Nothing>({});
    case 'skip':
      return await outside(() => skip(options, call, found));
    case 'rotate':
      return done<{ secret: string; previousValidUntil: Date }>(
        await rotateWebhookSecret(sql, secret, found, by),
      );
    case 'test': {
      const tried = await outside(() => testWebhook(options, found, options.now));
      if (tried instanceof Rejection) return tried;
      return done<TriedWebhook>(tried ?? SEALED_OTHERWISE);
    }
    default:
      return NO_ACTION;
  }
}

/** Looks for the event in the turns of reads: what comes before it may be many. */
async function skip(
  { api, engine }: DeliveryRoutesOptions,
  call: MemberCall,
  webhook: Webhook,
): Promise<Outcome> {
  return await api.inTurn(call, async ({ sql, pass }) => {
    const limits = { by: call.by, mostSteps: MOST_SKIP_STEPS, pass };
    return done<{ eventId: string | null }>({
      eventId: await skipEvent(sql, new ConsumerStore(engine, sql), webhook, limits),
    });
  });
}

const SEALED_OTHERWISE: TriedWebhook = {
  ...{ status: null, problem: 'another SECRET has sealed the secret of the webhook: rotate it' },
  ...{ answer: '', ms: 0 },
};

function alertRoutes(options: DeliveryRoutesOptions): readonly Route[] {
  const { api, sql, config, now } = options;
  return [
    api.readInTurn('/api/apps/:appId/alerts', 'read', async ({ app, user, sql: reads, events }) => {
      const slices = new TimeSlice(turnsOfSession(user));
      const [alerts, said] = [await listAlerts(reads, app.id, slices), await listTransitions(reads, app.id)];
      const rules = alerts.map(({ parsed }) => parsed);
      const warnings = await latenessWarnings({ sql: reads, events }, app.id, rules, now(), slices);
      const shown = await mapInSlices(alerts, slices, (one, index) => ({
        ...shownAlert(one, now(), warnings[index]),
        transitions: said.get(one.id) ?? [],
      }));
      const sendsMail = config.SMTP_URL !== '';
      return done<AlertList>({ alerts: shown, most: config.MAX_ALERT_RULES_PER_APP, sendsMail });
    }),
    api.readInTurn('/api/apps/:appId/alerts/trial', 'read', ({ app, sql: reads, events, exchange }) =>
      inFields('rule', async () => {
        const query = new URLSearchParams(exchange.query);
        const text = query.get('rule');
        if (text === null) return UNKNOWN_RULE;
        const timezone = query.get('timezone') ?? 'UTC';
        if (!isTimezone(timezone))
          return invalidField('timezone', 'must be the name of a time zone such as "Europe/Berlin"');
        const rule = await checkRule(reads, app, text);
        const until = now();
        const tried = { rule, appId: app.id, timezone };
        const trial = await tryRule({ sql: reads, events }, tried, {
          from: until - DAYS_TRIED * DAY_MS,
          until,
        });
        if (trial === null) {
          const fields = await listFieldProgress(reads, app.id);
          const isCounting = fields.some((one) => one.completeFrom === null || one.eventsLeft !== 0);
          return isCounting
            ? COUNTING
            : invalidField('rule', 'needs a field that is counted for all of the last 30 days');
        }
        return done<AlertTrial>({ ...trial, firings: trial.firings.slice(-FIRINGS_SHOWN) });
      }),
    ),
    api.change('POST', '/api/apps/:appId/alerts', 'change', NEW_ALERT, (call, body) =>
      inFields('rule', async () => {
        const { app, by } = call;
        const { name, rule, timezone = 'UTC', webhooks = [], emails = [], alertmanager = null } = body;
        const stranger = await strangerAmong(sql, app.id, emails);
        if (stranger !== null)
          return invalidField(
            'emails',
            `must be of members of the app with a verified address: ${JSON.stringify(stranger)} is not`,
          );
        const { alertId, rule: added } = await addAlert(sql, app, {
          ...{ name, rule, timezone, webhooks, emails, alertmanager, by },
          most: config.MAX_ALERT_RULES_PER_APP,
          allowPrivate: config.WEBHOOK_ALLOW_PRIVATE,
          sendsMail: config.SMTP_URL !== '',
        });
        const warnings = await api.inTurn(call, (place) => latenessWarnings(place, app.id, [added], now()));
        // The alert is there, whether or not it can be told now how late its events are.
        const [warning = null] = warnings instanceof Rejection ? [] : warnings;
        return done<NewAlertAnswer>({ alertId, warning }, { status: 201 });
      }),
    ),
    api.change('POST', '/api/apps/:appId/alerts/:alertId/:action', 'change', NO_FIELDS, async (call) => {
      const [, alertId = '', action = ''] = call.parameters;
      const found = await findAlert(sql, alertId, call.app.id);
      if (action !== 'pause' && action !== 'resume') return NO_ACTION;
      await setAlertPaused(sql, found, action === 'pause', call.by);
      return done<Nothing>({});
    }),
    api.change('DELETE', '/api/apps/:appId/alerts/:alertId', 'change', NO_FIELDS, async (call) => {
      const found = await findAlert(sql, call.parameters[1] ?? '', call.app.id);
      await removeAlert(sql, found, call.by);
      return done<Nothing>({});
    }),
  ];
}

/** Members must not have the service mail others. @returns the first address that is not a member's */
async function strangerAmong(sql: Sql, appId: number, emails: readonly string[]): Promise<string | null> {
  if (emails.length === 0) return null;
  const rows = await sql<{ key: string }[]>`
    SELECT email_key AS key FROM app_members JOIN users ON users.id = user_id
     WHERE app_id = ${appId} AND email_verified_at IS NOT NULL`;
  const keys = new Set(rows.map(({ key }) => key));
  return emails.find((one) => !keys.has(one.trim().normalize('NFC').toLowerCase())) ?? null;
}
