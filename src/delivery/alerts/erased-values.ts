/**
 * Values of fields that are erased, in what alerts have said: they lose their names in the history, in marks on charts and in messages
 * that wait to be sent.
 */
import { renameFiring } from '../../apps/annotations.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import type { ErasedValues } from '../../storage/fields/recount.ts';
import { MANY, NONE, OTHER } from '../../storage/fields/value-text.ts';
import { annotationOf, markOf, type RenamedSeries, renamedBody, renamedMessage } from './messages.ts';
import { isRuleProblem, parseRule, type Rule } from './rule.ts';

interface RuleOfApp {
  readonly id: number;
  readonly name: string;
  readonly rule: Rule;
}

/** What took the place of a value in an earlier erasure. */
const ERASED = '"erased:%';

/** The values that the alerts of an app have named. */
export async function namedByAlerts(sql: Sql, app: number): Promise<readonly ErasedValues[]> {
  // A round that has read the events of before finds that it is late, and judges again.
  await judgeAgain(sql, app);
  const rules = await rulesWithSeries(sql, app);
  const named: ErasedValues[] = [];
  for (const { id, rule } of rules) {
    const rows = await sql<{ series: string }[]>`
      SELECT series FROM (SELECT series FROM alert_states WHERE rule_id = ${id}
                          UNION SELECT series FROM alert_transitions WHERE rule_id = ${id}) AS said
       WHERE series <> ALL(${['', OTHER, MANY, NONE]}::text[]) AND series NOT LIKE ${ERASED}`;
    if (rows.length > 0 && rule.by !== null)
      named.push({ path: rule.by, values: rows.map(({ series }) => series) });
  }
  return named;
}

/**
 * Puts names without a meaning in the place of values.
 * @param name of the erasure: each value gets a number after it
 */
export async function renameInAlerts(
  sql: Sql,
  app: number,
  forgotten: readonly ErasedValues[],
  name: string,
): Promise<void> {
  const values = forgotten.flatMap(({ path, values: own }) => own.map((value) => ({ path, value })));
  if (values.length === 0) return;
  await sql.begin('isolation level read committed', async (tx) => {
    await judgeAgain(tx, app);
    for (const rule of await rulesWithSeries(tx, app)) {
      for (const [index, { path, value }] of values.entries()) {
        if (JSON.stringify(rule.rule.by) !== JSON.stringify(path)) continue;
        await renameSeries(tx, app, rule, { from: value, to: JSON.stringify(`${name}:${index}`) });
      }
    }
  });
}

/** Locks the rules until the end of a transaction. */
async function judgeAgain(sql: Sql | Transaction, app: number): Promise<void> {
  await sql`UPDATE alert_rules SET evaluated_at = evaluated_at - interval '1 minute' WHERE app_id = ${app}`;
}

/** The rules of an app that judge the values of a field apart. */
async function rulesWithSeries(sql: Sql | Transaction, app: number): Promise<readonly RuleOfApp[]> {
  const rows = await sql<{ id: number; name: string; rule: string }[]>`
    SELECT id, name, rule FROM alert_rules WHERE app_id = ${app} ORDER BY id`;
  return rows.flatMap(({ id, name, rule: text }) => {
    const rule = parseRule(text);
    return isRuleProblem(rule) || rule.by === null ? [] : [{ id, name, rule }];
  });
}

async function renameSeries(
  tx: Transaction,
  app: number,
  { id, name, rule }: RuleOfApp,
  series: RenamedSeries,
): Promise<void> {
  const { from, to } = series;
  await tx`UPDATE alert_states SET series = ${to} WHERE rule_id = ${id} AND series = ${from}`;
  const transitions = await tx<{ messageId: string }[]>`
    UPDATE alert_transitions SET series = ${to} WHERE rule_id = ${id} AND series = ${from} RETURNING public_id AS "messageId"`;
  if (transitions.length === 0) return;
  const [mark, annotations] = [markOf(name, rule, to), transitions.map((one) => annotationOf(one.messageId))];
  await renameFiring(tx, annotations, mark);
  // A mail, and a request to Alertmanager, tell of several series under the id of the first one.
  const waiting = await tx<{ id: string; body: string | null; said: string | null }[]>`
    SELECT message.id, body, said FROM delivery_messages AS message
     WHERE app_id = ${app} AND message_id IN (SELECT public_id FROM alert_transitions WHERE rule_id = ${id}) FOR UPDATE`;
  for (const message of waiting) {
    const body = message.body && renamedBody(message.body, rule, series);
    const said = message.said && renamedMessage(message.said, series);
    await tx`UPDATE delivery_messages SET body = ${body}, said = ${said} WHERE id = ${message.id}`;
  }
}
