/** The commands for webhooks, and the one that has a restored installation send again. */
import { internalAppId } from '../accounts/people/members.ts';
import type { Webhook } from '../delivery/webhooks.ts';
import { OperatorError, WrongInput } from '../errors.ts';
import { ConsumerStore } from '../storage/feed/consumers.ts';
import { FILTER_OPTION, FROM_OPTION, startingPoint, TYPES_OPTION } from './consumer-command.ts';
import { collect } from './duration.ts';
import { APP_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import type { Answer, Command, Session } from './session.ts';

/** What webhooks need is loaded with the first of their commands. */
const loadWebhooks = () => import('../delivery/webhooks.ts');
type Webhooks = Awaited<ReturnType<typeof loadWebhooks>>;

interface WebhookOptions {
  readonly app: string;
  readonly url: string;
  readonly type?: readonly string[];
  readonly filter?: readonly string[];
  readonly from: string;
  readonly unordered?: true;
  readonly format: string;
}

interface OneOptions {
  readonly app?: string;
  readonly webhook?: string;
}

const ROTATES = 'make a new secret; the earlier one signs for a day, too';

export function addWebhookCommands(program: Command): void {
  const webhook = program
    .command('webhook')
    .description('addresses that events are sent to, with a signature');
  webhook
    .command('add')
    .description('add a webhook; its secret is shown once')
    .requiredOption(...APP_OPTION)
    .requiredOption('--url <url>', 'where events are posted to, such as https://example.com/hook')
    .option(...TYPES_OPTION, collect)
    .option(...FILTER_OPTION, collect)
    .option(...FROM_OPTION, 'now')
    .option('--unordered', 'send several events at once: they may arrive in another order')
    .option(
      '--format <format>',
      'standard, or the chat tool that gets messages of alerts: slack (also Mattermost, Discord), teams, ntfy',
      'standard',
    )
    .run(add);
  webhook
    .command('list')
    .description('list the webhooks of an app, with their states')
    .requiredOption(...APP_OPTION)
    .run(async ({ sql }, options: WebhookOptions) => {
      const { listTries, listWebhooks, shownWebhook } = await loadWebhooks();
      const app = await internalAppId(sql, options.app);
      const [webhooks, tries] = [await listWebhooks(sql, app), await listTries(sql, app)];
      const shown = webhooks.map((one) => ({ ...shownWebhook(one), tries: tries.get(one.id) ?? [] }));
      const rows = shown.map((one) => [
        one.webhookId,
        one.url,
        one.state,
        String(one.delivered),
        one.failingSince,
        one.nextTryAt,
        one.blockedBy,
        one.tries[0]?.problem ?? null,
      ]);
      const due = ['Failing since', 'Next try', 'Blocked by', 'Problem'];
      const head = ['Webhook', 'URL', 'State', 'Delivered', ...due];
      return { json: { webhooks: shown }, text: formatTable(head, rows, 'The app has no webhooks.') };
    });
  one(webhook, 'pause', 'stop sending; the position stays', async ({ sql }, found, webhooks) => {
    await webhooks.setWebhookState(sql, found, 'paused');
    return result(found, { state: 'paused' });
  });
  one(webhook, 'resume', 'go on sending, also after it was disabled', async ({ sql }, found, webhooks) => {
    await webhooks.setWebhookState(sql, found, 'active');
    return result(found, { state: 'active' });
  });
  one(
    webhook,
    'skip',
    'leave out the one event that blocks the webhook',
    async (session, found, webhooks) => {
      const eventId = await webhooks.skipEvent(session.sql, storeOf(session), found);
      if (eventId === null) throw new OperatorError('no event waits for this webhook');
      return result(found, { eventId });
    },
  );
  one(webhook, 'test', 'send a test message, and show the answer', test);
  one(webhook, 'rotate', ROTATES, async (session, found, webhooks) =>
    result(found, await webhooks.rotateWebhookSecret(session.sql, await session.secret(), found)),
  );
  one(webhook, 'remove', 'remove a webhook with its position', async (session, found, webhooks) => {
    await webhooks.removeWebhook(session.sql, storeOf(session), found);
    return result(found, { removed: true });
  });
  const deliveries = program.command('deliveries').description('what the installation sends');
  deliveries
    .command('resume')
    .description('have a restored installation send again')
    .run(async ({ sql }) => {
      const resumed = await (await import('../delivery/restored.ts')).resumeDeliveries(sql);
      return { json: { resumed }, text: resumed ? 'Deliveries go on.' : 'Deliveries were not stopped.' };
    });
}

async function add(session: Session, options: WebhookOptions): Promise<Answer> {
  const { sql, config } = session;
  const appId = await internalAppId(sql, options.app);
  const place = { sql, store: storeOf(session), secret: await session.secret(), config };
  const entry = { ...options, types: options.type };
  const from = startingPoint('--from', options.from);
  const made = await (await loadWebhooks()).addWebhook(place, appId, entry, { from });
  if (options.format !== 'standard')
    return { json: made, text: formatFields({ Webhook: made.webhookId, Format: options.format }) };
  const text = formatFields({ Webhook: made.webhookId, Secret: made.secret });
  return { json: made, text: `${text}\nStore the secret now: it is not shown again.` };
}

/** A command about one webhook, which is an argument or the option --webhook. */
function one(
  webhook: Command,
  name: string,
  description: string,
  work: (session: Session, found: Webhook, webhooks: Webhooks) => Promise<Answer>,
): void {
  webhook
    .command(name)
    .description(description)
    .argument('[id]', 'the webhook, whk_…')
    .option('--webhook <id>', 'the same as an option')
    .option('--app <id>', 'the app that it must belong to')
    .run(async (session, id: string | undefined, options: OneOptions) => {
      const webhookId = id ?? options.webhook;
      if (webhookId === undefined) throw new WrongInput(`name the webhook: tidemark webhook ${name} whk_…`);
      const appId = options.app === undefined ? undefined : await internalAppId(session.sql, options.app);
      const webhooks = await loadWebhooks();
      return await work(session, await webhooks.findWebhook(session.sql, webhookId, appId), webhooks);
    });
}

async function test(session: Session, found: Webhook, { testWebhook }: Webhooks): Promise<Answer> {
  const { sql, config } = session;
  const tried = await testWebhook({ sql, config, secret: await session.secret() }, found, Date.now);
  if (tried === null)
    throw new OperatorError('another SECRET has sealed the secret of the webhook: rotate it');
  const { problem, status, answer, ms } = tried;
  if (problem !== null) throw new OperatorError(`the endpoint did not take the message: ${problem}`);
  return result(found, { status, answer, ms });
}

function result({ webhookId }: Webhook, fields: Readonly<Record<string, unknown>>): Answer {
  const lines = Object.entries(fields).map(([name, value]) => [
    name,
    value instanceof Date ? value.toISOString() : String(value),
  ]);
  return {
    json: { webhookId, ...fields },
    text: formatFields({ Webhook: webhookId, ...Object.fromEntries(lines) }),
  };
}

function storeOf({ sql, storage }: Session): ConsumerStore {
  return new ConsumerStore(storage.engine, sql);
}
