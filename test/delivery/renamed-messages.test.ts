/** Messages of alerts that wait while a value that they name is erased. */
import { expect, test } from 'vitest';
import type { ActiveRule } from '../../src/delivery/alerts/alert-rules.ts';
import {
  bodyOf,
  type Channel,
  messagesOf,
  renamedBody,
  renamedMessage,
  storedMessage,
} from '../../src/delivery/alerts/messages.ts';
import { isRuleProblem, parseRule } from '../../src/delivery/alerts/rule.ts';

const TEXT = JSON.stringify({ of: 'count', by: 'user.id', window: '5m', above: 2 });
const RULE = parseRule(TEXT);
if (isRuleProblem(RULE)) throw new Error('The rule is none.');
const ALERT: ActiveRule = {
  ...{ id: 1, appId: 1, alertId: 'alr_1', name: 'busy', rule: TEXT, parsed: RULE, timezone: 'UTC' },
  ...{ webhooks: ['whk_1'], emails: ['a@example.com'], alertmanager: 'http://alertmanager.example' },
  ...{ isPaused: false, createdAt: new Date(0), since: new Date(0), evaluatedAt: null, problem: null },
  app: { appId: 'app_1', name: 'shop' },
};
const NAME = '"erased:ers_1:0"';

/** A body as the release 0.1.0 has stored it: its mails had a text alone. */
function storedBody(channel: Channel, stored: string): string {
  const { html: _, pictures: __, ...body } = JSON.parse(bodyOf(channel, stored, 'https://t.example') ?? '');
  return JSON.stringify(body);
}

/** What is said of some values of the path, 4711 times each, as it is stored and as it is sent. */
function messagesAbout(values: readonly string[]) {
  const said = values.map((series, n) => ({
    ...({ id: `message ${n}`, kind: 'firing', series, at: 600_000, since: 300_000 } as const),
    ...{ value: 4711, limits: null, earlierValue: null, of: null },
  }));
  return messagesOf(ALERT, said).map((message) => {
    const stored = storedMessage(ALERT, message.said, 0, { types: {}, units: {} });
    return { channel: message.channel, stored, body: storedBody(message.channel, stored) };
  });
}

test.each([
  ['"ann \\"42\\""', '"ann \\"4\\""'],
  ['4711', '471'],
  ['true', '"true!"'],
])('say the name in the place of %s, and what they say of %s as before', (erased, other) => {
  const expected = messagesAbout([NAME, other]);
  expect(expected.map(({ channel }) => channel)).toEqual(['webhook', 'webhook', 'mail', 'alertmanager']);
  for (const [index, { stored, body }] of messagesAbout([erased, other]).entries()) {
    const wanted = expected[index];
    expect(renamedMessage(stored, { from: erased, to: NAME })).toBe(wanted?.stored);
    // A body that 0.1.0 has stored.
    expect(renamedBody(body, RULE, { from: erased, to: NAME })).toBe(wanted?.body);
  }
});

test('a message whose rule is not accepted any more has no body', () => {
  const [{ stored } = { stored: '' }] = messagesAbout(['1']);
  const changed = JSON.stringify({ ...JSON.parse(stored), rule: '{"of":"mode"}' });
  expect(bodyOf('webhook', changed, '')).toBeNull();
});

test('a link names the type of a rule where it is known, whatever its name', () => {
  const [{ stored } = { stored: '' }] = messagesAbout(['1']);
  const linkOf = (type: string, types: object): string | null => {
    const rule = JSON.stringify({ of: 'count', type, window: '5m', above: 2 });
    const names = { types, units: {} };
    const body = bodyOf(
      'webhook',
      JSON.stringify({ ...JSON.parse(stored), rule, names }),
      'https://t.example',
    );
    return new URL(JSON.parse(body ?? '').data.link).searchParams.get('type');
  };
  expect(linkOf('order', { order: 'typ_1' })).toBe('typ_1');
  expect(linkOf('order', {})).toBeNull();
  expect(linkOf('constructor', {})).toBeNull();
});

test.each([
  [{ of: 'count' }, 1_234_567, '1,234,567'],
  [{ of: 'sum', field: 'amount' }, 25_749.1, '25,749.10 €'],
  [{ of: 'avg', field: 'load' }, 1e-9, '0.000000001'],
  [{ of: 'p95', field: 'latency' }, 100.25, '100.25 ms'],
])('a number of %o is told as it is, with the unit and the digits of its field', (measured, value, text) => {
  const [{ stored } = { stored: '' }] = messagesAbout(['1']);
  const message = JSON.parse(stored) as { said: object[] }; // As it is stored.
  const said = message.said.map((one) => ({ ...one, value, series: '' }));
  const names = {
    types: {},
    units: { '["amount"]': '€', '["latency"]': 'ms' },
    decimals: { '["amount"]': 2 },
  };
  const rule = JSON.stringify({ ...measured, window: '5m', above: 0 });
  const own = JSON.stringify({ ...message, said, rule, names });
  const hook = { url: 'https://chat.example', format: 'slack' } as const;
  const [mail, note] = [bodyOf('mail', own, ''), bodyOf('webhook', own, '', { hook })];
  expect(JSON.parse(mail ?? '').text).toContain(`is ${text}; the alert fires above 0`);
  const { fields } = JSON.parse(note ?? '').attachments[0];
  expect(fields[0]).toMatchObject({ title: 'Value', value: text });
  // By the clock of those who read it.
  expect(fields[2]).toMatchObject({ title: 'Since', value: expect.stringContaining('1970, 00:05 (UTC)') });
});
