/** Webhooks of chat tools: what arrives there of an alert has the shape that the tool documents, and calls nobody. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { chatBody, type Note } from '../../src/delivery/chat.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { RunningClock, startTestService, type TestService, until } from '../support/service.ts';
import { Receiver } from './receiver.ts';

const clock = new RunningClock();
let service: TestService;
let owner: Person;
let app: Awaited<ReturnType<typeof newOwnApp>>;
let receiver: Receiver;
let url: string;

beforeAll(async () => {
  service = await startTestService({
    clock,
    config: { WEBHOOK_ALLOW_PRIVATE: 'true', PUBLIC_URL: 'https://tidemark.example' },
  });
  owner = await newPerson(service, 'chat@example.com');
  app = await newOwnApp(owner, 'Shop <b> & @all');
  receiver = new Receiver();
  url = await receiver.listen();
});
afterAll(async () => {
  receiver?.close();
  await service?.stop();
});

type Json = Record<string, unknown>;
const bodyAt = (path: string): Json => {
  const found = receiver.received.filter((one) => one.path === path).at(-1);
  return JSON.parse(found?.body ?? '{}') as Json;
};
const add = (body: object) => owner.post(`${app.path}/webhooks`, body);

/** A text without what would be more than text there. */
const HARMLESS = /^(?!.*@\w)(?!.*\]\().*$/s;

test('a message of an alert has the form of each tool, with its sentence, number, link and advice', async () => {
  const paths = { slack: '/services/T/B/x', teams: '/workflows/1', ntfy: '/alerts-1' };
  const ids: string[] = [];
  for (const [format, path] of Object.entries(paths)) {
    const made = await add({ url: new URL(path, url).href, format });
    expect(made.status, made.text).toBe(201);
    ids.push(String(made.data.webhookId));
  }
  const { status, text } = await owner.post(`${app.path}/alerts`, {
    name: 'Errors ](evil) @channel <!here>',
    rule: '{"of":"count","type":"error","window":"5m","above":1}',
    webhooks: ids,
  });
  expect(status, text).toBe(201);
  const minute = (): number => Math.floor(clock.wall() / 60_000) * 60_000;
  const next = async (): Promise<void> => {
    clock.advance(minute() + 66_000 - clock.wall());
    const due = new Date(minute());
    await until(
      async () =>
        (await service.sql`SELECT FROM alert_rules WHERE evaluated_at < ${due} OR evaluated_at IS NULL`)
          .length === 0,
      'the round',
    );
  };
  await next();
  const events = [0, 1, 2].map((n) => ({
    typeName: 'error',
    createdAt: new Date(minute() + n).toISOString(),
    payload: {},
  }));
  const posted = await service.request({
    method: 'POST',
    path: '/v1/events',
    headers: { authorization: `Bearer ${app.loggingToken}` },
    body: JSON.stringify({ events }),
  });
  expect(posted.status, posted.body).toBe(200);
  await next();
  await until(() => receiver.received.length === 3, 'one message each');

  const slack = bodyAt(paths.slack);
  expect(slack).toEqual({ text: expect.any(String), mrkdwn: false, attachments: [expect.any(Object)] });
  const [attachment] = slack.attachments as Json[];
  expect(attachment).toMatchObject({
    color: expect.stringMatching(/^#[0-9a-f]{6}$/),
    title: 'Open the chart',
    title_link: expect.stringContaining(`https://tidemark.example/apps/${app.appId}?from=`),
    text: 'The count of events "error" in 5m is 3; the alert fires above 1.',
    fields: expect.arrayContaining([{ title: 'Value', value: '3', short: true }]),
    footer: expect.stringContaining('Look at the chart'),
  });
  expect(slack.text).toMatch(/^Firing: Errors/);
  expect(slack.text).toMatch(HARMLESS);
  expect(slack.text).not.toMatch(/[<>]|&(?!amp;|lt;|gt;)/);

  const teams = bodyAt(paths.teams);
  const [{ contentType, content } = {} as Json] = teams.attachments as Json[];
  expect([teams.type, contentType]).toEqual(['message', 'application/vnd.microsoft.card.adaptive']);
  const card = content as { type: string; version: string; body: Json[]; actions: Json[] };
  expect([card.type, card.version]).toEqual(['AdaptiveCard', '1.4']);
  expect(card.body.map(({ type }) => type)).toEqual(['TextBlock', 'TextBlock', 'FactSet', 'TextBlock']);
  for (const { text: shown } of card.body) if (typeof shown === 'string') expect(shown).toMatch(HARMLESS);
  expect(card.actions).toEqual([
    { type: 'Action.OpenUrl', title: 'Open the chart', url: expect.stringContaining('/apps/') },
  ]);

  // JSON is taken beside the topics, at the root.
  const ntfy = bodyAt('/');
  expect(ntfy).toMatchObject({
    topic: 'alerts-1',
    title: expect.stringMatching(/^Firing: Errors/),
    message: expect.stringContaining('is 3; the alert fires above 1.'),
    priority: 4,
    tags: ['warning'],
    click: expect.stringContaining('/apps/'),
  });
});

test.each(['&', '<', '@all ', '](x)', '"', '\\', '名', '😀', 'x'])(
  'a message of long names and values of %j is within the limits of each tool',
  (part) => {
    const name = part.repeat(1_000);
    const url = `https://tidemark.example/apps/app_1?from=2026-11-29T00%3A00%3A00.000Z&filter=${encodeURIComponent(name)}&of=${'o'.repeat(2_000)}&stat=p99`;
    const note: Note = {
      kind: 'firing',
      title: `Firing: ${name}`,
      lines: Array.from({ length: 11 }, (_, index) => `${index}: ${name}`),
      facts: [['Value', '3']],
      advice: 'Look at the chart.',
      link: { label: 'Open the chart', url },
    };
    const sent = (format: 'slack' | 'teams' | 'ntfy'): string =>
      chatBody(format, note, 'https://a.example/b');
    const { text, attachments } = JSON.parse(sent('slack')) as { text: string; attachments: Json[] };
    const [attachment = {}] = attachments;
    expect(text.length).toBeLessThanOrEqual(2_000);
    expect(String(attachment.text).length).toBeLessThanOrEqual(4_096);
    const { title, footer, fields } = attachment;
    const shown = [title, attachment.text, footer, ...(fields as Json[]).flatMap(Object.values)].join('');
    expect(shown.length).toBeLessThan(6_000);
    expect(String(attachment.title_link).length).toBeLessThanOrEqual(2_048);
    expect(attachment.title_link).toContain('?from=2026-11-29T00%3A00%3A00.000Z');
    expect(attachment.text).toContain('0: ');
    for (const one of [text, attachment.text]) {
      expect(one).toMatch(HARMLESS);
      expect(one).not.toMatch(/[<>]|&(?!amp;|lt;|gt;)/);
    }
    // As UTF-16, which Teams counts.
    expect(2 * sent('teams').length).toBeLessThan(28_000);
    const { message } = JSON.parse(sent('ntfy')) as { message: string };
    expect(Buffer.byteLength(message)).toBeLessThanOrEqual(4_096);
    expect(message).toMatch(/Look at the chart\.$/);
  },
);

test('a trial of a webhook is in the form of its tool', async () => {
  const { data } = await add({ url: new URL('/hooks/trial', url).href, format: 'slack' });
  const tried = await owner.post(`${app.path}/webhooks/${String(data.webhookId)}/test`, {});
  expect(tried.data).toMatchObject({ status: 204, problem: null });
  expect(bodyAt('/hooks/trial')).toMatchObject({
    text: 'Test of a webhook',
    attachments: [{ color: '#3b5bdb' }],
  });
  const list = await owner.get(`${app.path}/webhooks`);
  const shown = (list.data.webhooks as Json[]).find(({ webhookId }) => webhookId === data.webhookId);
  expect(shown).toMatchObject({ format: 'slack', sendsEvents: false });
});

test.each([
  [{ format: 'irc' }, 'format', 'must be one of standard, slack, teams, ntfy'],
  [{ format: 'slack', types: ['error'] }, 'types', 'messages of alerts alone'],
  [{ format: 'teams', filter: ['a:1'] }, 'filter', 'messages of alerts alone'],
  [{ format: 'ntfy', unordered: true }, 'unordered', 'messages of alerts alone'],
  [{ format: 'ntfy', url: 'https://ntfy.example/' }, 'url', 'must end with the topic'],
] as const)('%j is refused with its field', async (body, field, problem) => {
  const refused = await add({ url: 'https://chat.example/hook', ...body });
  expect(refused.status).toBe(400);
  expect(refused.text).toContain(field);
  expect(refused.text).toContain(problem);
});
