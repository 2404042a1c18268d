/** Redaction: rules of event types by which values leave payloads before anything stores, checks or logs them. */
import { createHmac, type KeyObject } from 'node:crypto';
import { type Actor, COMMAND_LINE, writeAudit } from '../accounts/log/audit.ts';
import { internalAppId } from '../accounts/people/members.ts';
import { refused } from '../errors.ts';
import { addEdit, type EditStep, editValues, newEditStep, type Replace } from '../json/edit.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';
import { forgetRefusals } from './refused-requests.ts';

export const REDACTIONS = ['drop', 'mask', 'hmac'] as const;
export type RedactionAction = (typeof REDACTIONS)[number];

/** A rule as the caches have it. */
export interface RedactionRule {
  /** Names that lead to the value, from the payload's top on. */
  readonly path: readonly string[];
  readonly action: RedactionAction;
}

export interface ListedRule extends RedactionRule {
  readonly typeId: string;
  readonly typeName: string;
  readonly createdAt: Date;
}

/** Rules that a type may have. */
export const MAX_RULES = 32;
/** Values of one payload that are replaced by keyed digests; further ones are masked, so that no payload takes long. */
export const MAX_DIGESTS = 1_000;

const MASK = '"***"';
/** 128 bits in hexadecimal. */
const DIGEST_CHARACTERS = 32;

/** The rules of a type, ready to be applied. */
export class Redaction {
  readonly rules: readonly RedactionRule[];
  readonly #appId: string;
  readonly #root: EditStep = newEditStep();
  /** The key of the current payload, and how many digests it has. */
  #key: KeyObject | null = null;
  #digests = 0;

  /** @param appId public id of the app: equal values of two apps have different digests */
  constructor(appId: string, rules: readonly RedactionRule[]) {
    this.rules = rules;
    this.#appId = appId;
    const replace: Record<RedactionAction, Replace> = {
      drop: () => null,
      mask: () => MASK,
      hmac: (json) => this.#digestOf(json),
    };
    for (const { path, action } of rules) addEdit(this.#root, path, replace[action]);
  }

  /** @param payload the text of a JSON object @param key of the digests */
  apply(payload: string, key: KeyObject): string {
    this.#key = key;
    this.#digests = 0;
    return editValues(payload, this.#root);
  }

  /** The digest of a value, whatever its escapes are. */
  #digestOf(json: string): string {
    this.#digests += 1;
    if (this.#key === null || this.#digests > MAX_DIGESTS) return MASK;
    const value = json.startsWith('"') ? `s${String(JSON.parse(json))}` : `j${json}`;
    const digest = createHmac('sha256', this.#key).update(`${this.#appId}\n${value}`).digest('hex');
    return `"hmac:${digest.slice(0, DIGEST_CHARACTERS)}"`;
  }
}

/** The rules of a type as a column of a SELECT, for {@link Redaction}; null: it has none. @param typeId the column of its id */
export function redactionColumn(sql: Sql | Transaction, typeId: string) {
  return sql`
    (SELECT json_agg(json_build_object('path', path::json, 'action', action) ORDER BY redaction_rules.id)
       FROM redaction_rules WHERE type_id = ${sql(typeId)})`;
}

interface RuleReference {
  readonly appId: string;
  /** Name of the type, or its public id. */
  readonly type: string;
  readonly path: readonly string[];
}

/**
 * Adds a rule, or gives the one of its path another action. Every process applies it from a moment after the commit on.
 * @throws Refused appNotFound, eventTypeNotFound, invalidBody
 */
export async function addRedaction(
  sql: Sql,
  rule: RuleReference & { readonly action: RedactionAction; readonly by?: Actor },
): Promise<ListedRule> {
  const { appId, path, action, by = COMMAND_LINE } = rule;
  return await sql.begin('isolation level read committed', async (tx) => {
    const type = await lockType(tx, rule);
    const stored = JSON.stringify(path);
    if (
      (await countRows(tx, tx`redaction_rules WHERE type_id = ${type.id} AND path <> ${stored}`)) >= MAX_RULES
    )
      throw refused(
        'invalidBody',
        `a type may have ${MAX_RULES} rules of redaction: remove one that is not needed`,
      );
    const [made] = await tx<{ createdAt: Date }[]>`
      INSERT INTO redaction_rules (type_id, path, action) VALUES (${type.id}, ${stored}, ${action})
      ON CONFLICT (type_id, path) DO UPDATE SET action = excluded.action
      RETURNING created_at AS "createdAt"`;
    if (made === undefined) throw new Error(`A rule of ${appId} was inserted and is not there.`);
    await forgetRefusals(tx, type.appId);
    await writeAudit(tx, {
      ...{ appId: type.appId, by, action: 'redaction.add' },
      details: { typeId: type.typeId, name: type.typeName, path: stored, what: action },
    });
    return { typeId: type.typeId, typeName: type.typeName, path, action, createdAt: made.createdAt };
  });
}

/**
 * Removes a rule: values that come from now on are stored again.
 * @throws Refused appNotFound, eventTypeNotFound, notFound
 */
export async function removeRedaction(
  sql: Sql,
  rule: RuleReference & { readonly by?: Actor },
): Promise<Omit<ListedRule, 'createdAt'>> {
  const { path, by = COMMAND_LINE } = rule;
  return await sql.begin('isolation level read committed', async (tx) => {
    const type = await lockType(tx, rule);
    const stored = JSON.stringify(path);
    const [removed] = await tx<{ action: RedactionAction }[]>`
      DELETE FROM redaction_rules WHERE type_id = ${type.id} AND path = ${stored} RETURNING action`;
    if (removed === undefined)
      throw refused('notFound', 'the type has no rule of redaction for this path: "redact list" shows all');
    await writeAudit(tx, {
      ...{ appId: type.appId, by, action: 'redaction.remove' },
      details: { typeId: type.typeId, name: type.typeName, path: stored },
    });
    return { typeId: type.typeId, typeName: type.typeName, path, action: removed.action };
  });
}

/** The rules of an app by types. @param appId public id @throws Refused appNotFound */
export async function listRedactions(
  sql: Sql,
  appId: string,
): Promise<(ListedRule & { readonly id: number })[]> {
  const id = await internalAppId(sql, appId);
  const rows = await sql<(Omit<ListedRule, 'path'> & { id: number; path: string })[]>`
    SELECT type.id, type.public_id AS "typeId", type.name AS "typeName", path, action, rule.created_at AS "createdAt"
      FROM redaction_rules AS rule JOIN event_types AS type ON type.id = rule.type_id
     WHERE type.app_id = ${id} ORDER BY type.id, rule.id`;
  return rows.map((row) => ({ ...row, path: namesOf(row.path) }));
}

interface FoundType {
  readonly id: number;
  readonly appId: number;
  readonly typeId: string;
  readonly typeName: string;
}

/** The type that a command names. @throws Refused appNotFound, eventTypeNotFound */
export async function findTypeOf(
  sql: Sql | Transaction,
  { appId, type }: Pick<RuleReference, 'appId' | 'type'>,
): Promise<FoundType> {
  const id = await internalAppId(sql, appId);
  const [found] = await sql<FoundType[]>`
    SELECT id, app_id AS "appId", public_id AS "typeId", name AS "typeName" FROM event_types
     WHERE app_id = ${id} AND (name = ${type} OR public_id = ${type})
     ORDER BY name = ${type} DESC LIMIT 1`;
  if (found === undefined)
    throw refused(
      'eventTypeNotFound',
      `the app has no event type ${JSON.stringify(type)}: create it first (tidemark type create), so that no event comes before its rules`,
    );
  return found;
}

async function lockType(tx: Transaction, reference: RuleReference): Promise<FoundType> {
  const type = await findTypeOf(tx, reference);
  // The lock makes the number of rules exact.
  await tx`SELECT FROM event_types WHERE id = ${type.id} FOR NO KEY UPDATE`;
  return type;
}

function namesOf(path: string): readonly string[] {
  const names: unknown = JSON.parse(path);
  return Array.isArray(names) ? names.map(String) : [];
}
