/** Retention of single apps and types, below that of all apps: how it is set, and what is in force. */

import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { internalAppId } from '../accounts/people/members.ts';
import type { RetentionEntry } from '../api-types/answers.ts';
import { nearest } from '../base/did-you-mean.ts';
import { DAY_MS } from '../base/time-units.ts';
import type { Config } from '../config.ts';
import { appNotFound, WrongField } from '../errors.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';
import type { EventReader } from '../storage/read/event-reader.ts';
import { moveBoundariesOf, type Retention, readRules } from '../storage/retention.ts';

/** For how many whole days events are kept, whatever the limit of all apps lets be, or what the app (for a type) or the settings say. */
export type KeptDays = number | 'forever' | 'default';

export type RetentionSettings = Pick<Config, 'RETENTION_DAYS'>;

/** What is in force for an app, or for one of its types. */
export interface RetentionRule extends Omit<RetentionEntry, 'readableFrom'> {
  /** Milliseconds since 1970: earlier events cannot be read. 0: all can. */
  readonly readableFrom: number;
}

export interface RetentionChange {
  readonly appId: string;
  /** Name or public id of a type; null: all types without a rule of their own. */
  readonly type: string | null;
  readonly days: KeptDays;
  readonly now: number;
  readonly by?: Actor;
}

/** Retention as it is typed: days, `forever` or `default`. What is none of them is refused later, with the bound. */
export function parseKept(text: string): KeptDays {
  return text === 'forever' || text === 'default' ? text : text.trim() === '' ? Number.NaN : Number(text);
}

/** A rule for people and programs. Null: from the beginning on. */
export function shownRule<Rule extends { readonly readableFrom: number }>(
  rule: Rule,
): Omit<Rule, 'readableFrom'> & { readonly readableFrom: string | null } {
  const { readableFrom, ...others } = rule;
  return { ...others, readableFrom: readableFrom === 0 ? null : new Date(readableFrom).toISOString() };
}

/** How many events can be read now, and could not be with a plan. */
export async function countHidden(events: Pick<EventReader, 'page'>, plan: RetentionPlan): Promise<number> {
  const scope = { ...plan, from: null, until: plan.boundary };
  // No event comes after so many: only the total is read.
  const offset = Number.MAX_SAFE_INTEGER;
  return (await events.page({ scope, offset, limit: 1, order: 'asc', maxBytes: 1 })).total;
}

/** What a change is about, and where its boundary would be. */
export interface RetentionPlan {
  /** Internal ids; null: all types but those that are left out. */
  readonly appId: number;
  readonly typeIds: readonly number[] | null;
  readonly exceptTypes: readonly number[];
  readonly boundary: number;
}

/** A hundred years. */
const MOST_DAYS = 36_500;

/**
 * Sets the retention of an app or a type. What it hides cannot be read from the commit on, in any process, and cannot be brought back; the
 * rows are removed soon after.
 * @returns the rule that is in force
 * @throws Refused appNotFound; WrongField for a type that there is not, with the nearest name, and for days out of bounds
 */
export async function setRetention(
  sql: Sql,
  settings: RetentionSettings,
  change: RetentionChange,
): Promise<RetentionRule> {
  const { days, now, by = COMMAND_LINE } = change;
  checkDays(settings, days);
  const target = await findTarget(sql, change);
  await sql.begin('isolation level read committed', async (tx) => {
    // Imports hold the app until they commit.
    const [app] = await tx`SELECT FROM apps WHERE id = ${target.id} FOR UPDATE`;
    if (app === undefined) throw appNotFound(change.appId);
    const before = await readRules(tx, target.id);
    await storeRule(tx, target, days, before);
    await moveBoundariesOf(tx, target.id, now);
    const { typeId, typeName } = target;
    await writeAudit(tx, {
      ...{ appId: target.id, by, action: 'retention.set' },
      details: { ...(typeId !== null && { typeId, name: typeName }), days },
    });
  });
  const rules = await listRetention(sql, settings, change.appId);
  const rule = rules.find(({ typeId }) => typeId === target.typeId);
  if (rule !== undefined) return rule;
  // The rule is no more: those of the app, or the settings, apply.
  const { typeId, typeName } = target;
  const readableFrom = boundaryIn(await readRules(sql, target.id), target);
  return { appId: change.appId, typeId, typeName, days: 'default', readableFrom, isRemoved: true };
}

/** Where a boundary would be. @throws Refused and WrongField as {@link setRetention} */
export async function planRetention(
  sql: Sql,
  settings: RetentionSettings,
  change: RetentionChange,
): Promise<RetentionPlan> {
  checkDays(settings, change.days);
  const target = await findTarget(sql, change);
  const retention = await readRules(sql, target.id);
  const days = await daysOf(sql, target, change.days);
  const due = days === 0 ? 0 : Math.floor(change.now / DAY_MS - days) * DAY_MS;
  return {
    appId: target.id,
    typeIds: target.type === null ? null : [target.type],
    exceptTypes: target.type === null ? [...retention.own.keys()] : [],
    boundary: Math.max(due, boundaryIn(retention, target)),
  };
}

/** What is in force for all apps that have rules of their own. */
export async function listAllRetention(
  sql: Sql,
  settings: RetentionSettings,
): Promise<readonly RetentionRule[]> {
  const apps = await sql<{ appId: string }[]>`
    SELECT public_id AS "appId" FROM apps WHERE id IN (SELECT app_id FROM retention_rules) AND removed_at IS NULL ORDER BY id`;
  const rules: RetentionRule[] = [];
  for (const { appId } of apps) rules.push(...(await listRetention(sql, settings, appId)));
  return rules;
}

/** What is in force for an app and its types that have rules of their own; the app first. @throws Refused appNotFound */
export async function listRetention(
  sql: Sql,
  { RETENTION_DAYS }: RetentionSettings,
  appId: string,
): Promise<readonly RetentionRule[]> {
  const id = await internalAppId(sql, appId);
  const rules = await sql<
    { type: number | null; typeId: string | null; typeName: string | null; days: number | null }[]
  >`
    SELECT type_id AS type, public_id AS "typeId", name AS "typeName", days
      FROM retention_rules LEFT JOIN event_types ON event_types.id = type_id
     WHERE retention_rules.app_id = ${id} ORDER BY type_id NULLS FIRST`;
  const retention = await readRules(sql, id);
  const waiting = await sql<{ typeId: number }[]>`
    SELECT type_id AS "typeId" FROM app_boundaries WHERE app_id = ${id} AND removed_until < readable_from`;
  const isRemoved = (type: number): boolean => waiting.every(({ typeId }) => typeId !== type);
  const ofApp = rules.find(({ type }) => type === null);
  return [
    {
      ...{ appId, typeId: null, typeName: null, days: shownDays(ofApp?.days ?? null, RETENTION_DAYS) },
      ...{ readableFrom: retention.boundary, isRemoved: isRemoved(0) },
    },
    ...rules.flatMap(({ type, typeId, typeName, days }) =>
      type === null
        ? []
        : [
            {
              ...{ appId, typeId, typeName, days: shownDays(days, RETENTION_DAYS) },
              ...{ readableFrom: retention.boundaryOf(type), isRemoved: isRemoved(type) },
            },
          ],
    ),
  ];
}

/** The days of a rule as they are stored: null is no rule, 0 is forever. */
export function keptDays(days: number | null): KeptDays {
  if (days === null) return 'default';
  return days === 0 ? 'forever' : days;
}

/** What a setting of all apps bounds is shown as what is in force. */
function shownDays(days: number | null, most: number): KeptDays {
  if (days === null || most === 0) return keptDays(days);
  return days === 0 ? most : Math.min(days, most);
}

function checkDays({ RETENTION_DAYS: most }: RetentionSettings, days: KeptDays): void {
  if (days === 'default') return;
  const bound = most === 0 ? MOST_DAYS : most;
  const why = most === 0 ? '' : `: RETENTION_DAYS keeps the events of all apps for ${most} days`;
  if (days === 'forever' && most > 0) throw new WrongField('days', `cannot be "forever"${why}`);
  if (days === 'forever' || (Number.isInteger(days) && days >= 1 && days <= bound)) return;
  throw new WrongField('days', `must be a whole number from 1 to ${bound}, "forever" or "default"${why}`);
}

interface Target {
  readonly id: number;
  /** Internal id of the type; null: of the app. */
  readonly type: number | null;
  readonly typeId: string | null;
  readonly typeName: string | null;
}

async function findTarget(sql: Sql, { appId, type }: RetentionChange): Promise<Target> {
  const id = await internalAppId(sql, appId);
  if (type === null) return { id, type: null, typeId: null, typeName: null };
  const types = await sql<{ type: number; typeId: string; typeName: string }[]>`
    SELECT id AS type, public_id AS "typeId", name AS "typeName" FROM event_types WHERE app_id = ${id} ORDER BY id`;
  const found =
    types.find(({ typeName }) => typeName === type) ?? types.find(({ typeId }) => typeId === type);
  if (found !== undefined) return { id, ...found };
  const meant = nearest(
    type,
    types.map(({ typeName }) => typeName),
  );
  const advice = meant === null ? '' : `: did you mean ${JSON.stringify(meant)}?`;
  throw new WrongField('type', `${JSON.stringify(type)} is no event type of the app${advice}`);
}

/** @param before what was in force: a new rule of a type begins with what the app's has hidden of it */
async function storeRule(
  tx: Transaction,
  { id, type }: Target,
  days: KeptDays,
  before: Retention,
): Promise<void> {
  const stored = days === 'default' ? null : days === 'forever' ? 0 : days;
  const from = type === null ? before.boundary : before.boundaryOf(type);
  const { count } = await tx`
    UPDATE retention_rules SET days = ${stored}
     WHERE app_id = ${id} AND type_id IS NOT DISTINCT FROM ${type}::integer`;
  if (count > 0 || stored === null) return;
  await tx`
    INSERT INTO retention_rules (app_id, type_id, days, readable_from) VALUES (${id}, ${type}, ${stored}, ${new Date(from)})`;
}

/** For how many days a change keeps events; 0: for as long as the limit of all apps lets them be. */
async function daysOf(sql: Sql, { id, type }: Target, days: KeptDays): Promise<number> {
  if (days !== 'default') return days === 'forever' ? 0 : days;
  if (type === null) return 0;
  const [app] = await sql<{ days: number | null }[]>`
    SELECT days FROM retention_rules WHERE app_id = ${id} AND type_id IS NULL`;
  return app?.days ?? 0;
}

function boundaryIn(retention: Retention, { type }: Target): number {
  return type === null ? retention.boundary : retention.boundaryOf(type);
}
