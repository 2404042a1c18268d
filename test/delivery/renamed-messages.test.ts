/** Messages of alerts that wait while a value that they name is erased. */
import { expect, test } from 'vitest';
import type { AlertRule } from '../../src/delivery/alerts/alert-rules.ts';
import { messagesOf, renamedMessage, type Waiting } from '../../src/delivery/alerts/messages.ts';
import { isRuleProblem, parseRule } from '../../src/delivery/alerts/rule.ts';

const TEXT = JSON.stringify({ of: 'count', by: 'user.id', window: '5m', above: 2 });
const ALERT: AlertRule = {
  ...{ id: 1, appId: 1, alertId: 'alr_1', name: 'busy', rule: TEXT, timezone: 'UTC' },
  ...{ webhooks: ['whk_1'], emails: ['a@example.com'], alertmanager: 'http://alertmanager.example' },
  ...{ isPaused: false, createdAt: new Date(0), since: new Date(0), evaluatedAt: null, problem: null },
};
const RULE = parseRule(TEXT);
const NAME = '"erased:ers_1:0"';

/** What is said of some values of the path, 4711 times each. */
function messagesAbout(values: readonly string[]): readonly Waiting[] {
  if (isRuleProblem(RULE)) throw new Error('The rule is none.');
  const names = { appId: 'app_1', appName: 'shop', publicUrl: 'https://t.example' };
  const said = values.map((series, n) => ({
    ...({ id: `message ${n}`, kind: 'firing', series, at: 600_000, since: 300_000 } as const),
    ...{ value: 4711, limits: null, earlierValue: null, of: null },
  }));
  return messagesOf({ alert: ALERT, rule: RULE, ...names, now: 0 }, said);
}

test.each([
  ['"ann \\"42\\""', '"ann \\"4\\""'],
  ['4711', '471'],
  ['true', '"true!"'],
])('say the name in the place of %s, and what they say of %s as before', (erased, other) => {
  if (isRuleProblem(RULE)) throw new Error('The rule is none.');
  const expected = messagesAbout([NAME, other]);
  expect(expected.map(({ channel }) => channel)).toEqual(['webhook', 'webhook', 'mail', 'alertmanager']);
  for (const [index, message] of messagesAbout([erased, other]).entries()) {
    const body = renamedMessage(message, RULE, { from: erased, to: NAME });
    expect(JSON.parse(body)).toEqual(JSON.parse(expected[index]?.body ?? ''));
  }
});
