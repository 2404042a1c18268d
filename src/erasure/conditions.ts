/** Which events an erasure takes: conditions on payloads, all of which must be met. */
import { createHmac } from 'node:crypto';
import { Redaction } from '../apps/redaction.ts';
import type { Secret } from '../apps/secret.ts';
import { refused } from '../errors.ts';
import { countedValues } from '../read/filter/counted-values.ts';
import type { Condition } from '../read/filter/parse-filter.ts';
import { parseFilters, payloadFilter } from '../read/filter/payload-filter.ts';
import type { ErasedValues } from '../storage/fields/recount.ts';
import type { RowFilter } from '../storage/fields/row-filter.ts';

/** Events are removed, or the values at the paths of the conditions are replaced by keyed pseudonyms. */
export const ERASURE_ACTIONS = ['delete', 'anonymize'] as const;
export type ErasureAction = (typeof ERASURE_ACTIONS)[number];

export const MAX_CONDITIONS = 10;

/** The conditions of an erasure, ready to be used. */
export interface ErasureConditions {
  /** As they were given. */
  readonly texts: readonly string[];
  readonly filter: RowFilter;
  readonly paths: readonly (readonly string[])[];
  /** The values that declared fields may have counted. */
  readonly values: readonly ErasedValues[];
}

/** @throws Refused invalidBody */
export function parseConditions(texts: readonly string[], action: ErasureAction): ErasureConditions {
  if (texts.length === 0 || texts.length > MAX_CONDITIONS)
    throw refused('invalidBody', `an erasure takes 1 to ${MAX_CONDITIONS} conditions, not ${texts.length}`);
  const conditions = parseFilters(texts);
  if (typeof conditions === 'string') throw refused('invalidBody', `the filter ${conditions}`);
  const filter = payloadFilter(conditions);
  if (filter === null) throw new Error('Conditions make no filter.');
  if (action === 'anonymize' && !conditions.every(isAboutValues))
    throw refused(
      'invalidBody',
      'only conditions that name values, such as user.id:42, can be anonymized: others would still hold afterwards',
    );
  return { texts, filter, paths: conditions.map(({ path }) => path), values: conditions.flatMap(valuesOf) };
}

function isAboutValues({ isNegated, test }: Condition): boolean {
  return !isNegated && test.kind === 'equals';
}

function valuesOf(condition: Condition): ErasedValues[] {
  const values = countedValues(condition);
  return values === null ? [] : [{ path: condition.path, values }];
}

/** What tells the conditions of a receipt from others, for those who know the conditions and have the secret. */
export function conditionHmac(secret: Secret, appId: string, texts: readonly string[]): Buffer {
  const conditions = texts.map((text) => text.trim()).sort();
  return createHmac('sha256', secret.erasureKey)
    .update(JSON.stringify([appId, ...conditions]))
    .digest();
}

/** Replaces the values at some paths, as redaction rules with "hmac" do: equal values have equal pseudonyms. */
export function anonymizer(
  secret: Secret,
  appId: string,
  paths: readonly (readonly string[])[],
): (payload: string) => string {
  const redaction = new Redaction(
    appId,
    paths.map((path) => ({ path, action: 'hmac' })),
  );
  return (payload) => redaction.apply(payload, secret.redactionKey);
}
