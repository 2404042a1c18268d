/** Why the counts of a declared field do not answer a read, and what changes that: one sentence for each cause. */
import { isDeepStrictEqual } from 'node:util';
import { type FieldProgress, listFieldProgress } from '../../apps/fields.ts';
import { notYet, type Rejection } from '../../errors.ts';
import { invalidParameters } from '../../http/query.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { FieldKind } from '../../storage/fields/payload-values.ts';
import { spellPath } from './payload-paths.ts';

export interface UncountedRead {
  readonly app: { readonly id: number; readonly appId: string };
  /** The parameter that names the field. */
  readonly param: 'of' | 'by' | 'filter' | 'value' | 'number';
  readonly path: readonly string[];
  readonly kind: FieldKind;
  /** The other path of the declaration that would answer; null: none. */
  readonly by: readonly string[] | null;
  /** Internal ids; null: all types. */
  readonly typeIds: readonly number[] | null;
  /** First millisecond since 1970; null: from the first event. */
  readonly from: number | null;
}

/** What its refusals have beside those of every route. */
export const DECLARE = {
  declare: {
    type: 'string',
    description:
      'Where a declaration of fields is missing that would answer: the options of `tidemark field add` for it.',
    examples: ['--path country --by plan'],
  },
} as const;

/** @returns null where the field is declared and complete: then something else is in the way */
export async function whyNotCounted(sql: Sql, read: UncountedRead): Promise<Rejection | null> {
  const { app, param, path, kind, by, from } = read;
  const spelled = spellPath(path);
  const refuse = (problem: string): Rejection => invalidParameters(`${spelled} ${problem}`, param);
  const declare = declarationOf(read);
  const command = `tidemark field add --app ${app.appId} ${declare}`;
  const all = await listFieldProgress(sql, app.id);
  const ofPath = all.filter(
    (field) => isDeepStrictEqual(field.path, path) && isDeepStrictEqual(field.by, by),
  );
  const declared = ofPath
    .concat(all.filter((field) => answersToo(field, read)))
    .filter((field) => field.kind === kind);
  if (declared.length === 0) {
    const instead = ofPath.length === 0 ? '' : `, but ${PURPOSES[ofPath[0]?.kind ?? 'value']}`;
    const apart = by === null ? '' : ` by ${spellPath(by)}`;
    return invalidParameters(
      `${spelled} is not declared ${PURPOSES[kind]}${apart}${instead}. An owner declares it on the page Fields of the dashboard, or with: ${command} --backfill`,
      param,
      { declare },
    );
  }
  const field = await fieldOfTypes(sql, declared, read.typeIds);
  if (field === null) {
    const names = declared.map(({ typeName }) => JSON.stringify(typeName)).join(' or ');
    return refuse(`is declared for events of the type ${names} alone: name that type with typeName.`);
  }
  const { completeFrom, backfill, eventsLeft } = field;
  if (completeFrom === null)
    return notYet(
      `${spelled} is declared, and counting begins in a few seconds: try again shortly.`,
      RETRY_SECONDS,
    );
  if (completeFrom.getTime() <= (from ?? 0) || (backfill && eventsLeft === 0)) return null;
  const begins = from === null ? 'with the first event' : `at ${new Date(from).toISOString()}`;
  const where = `is counted from ${completeFrom.toISOString()} on, and the interval begins ${begins}`;
  if (!backfill)
    return refuse(
      `${where}: begin later with from, or have earlier events counted, too: ${command} --backfill`,
    );
  const left = eventsLeft === null ? '' : ` (${eventsLeft} are left)`;
  return notYet(
    `${spelled} ${where}: earlier events are being counted${left}, try again shortly, or begin later with from.`,
    RETRY_SECONDS,
  );
}

/** Maintenance counts a field within seconds, where there are few events. */
const RETRY_SECONDS = 5;

const PURPOSES = {
  value: 'for counts by its values',
  number: 'for the statistics of its numbers',
  distinct: 'for the number of its different values',
} as const;

/** The options of the command that declares what is missing. */
export function declarationOf({ path, kind, by }: Pick<UncountedRead, 'path' | 'kind' | 'by'>): string {
  const ofKind = kind === 'value' && by !== null ? '' : ` --kind ${kind}`;
  return `--path ${shellWord(spellPath(path))}${ofKind}${by === null ? '' : ` --by ${shellWord(spellPath(by))}`}`;
}

/** Whether another declaration answers as well: a pair the other way around, or all of a field that is counted apart by another path. */
function answersToo(field: FieldProgress, { path, kind, by }: UncountedRead): boolean {
  if (kind === 'value')
    return by !== null && isDeepStrictEqual(field.path, by) && isDeepStrictEqual(field.by, path);
  return by === null && field.by !== null && isDeepStrictEqual(field.path, path);
}

/** The declaration that answers for these types: that of all types, or that of the only one. */
async function fieldOfTypes(
  sql: Sql,
  declared: readonly FieldProgress[],
  typeIds: readonly number[] | null,
): Promise<FieldProgress | null> {
  const ofAll = declared.find(({ typeName }) => typeName === null);
  const [only, second] = typeIds ?? [];
  if (only === undefined || second !== undefined) return ofAll ?? null;
  const [type] = await sql<{ name: string }[]>`SELECT name FROM event_types WHERE id = ${only}`;
  return declared.find(({ typeName }) => typeName === type?.name) ?? ofAll ?? null;
}

function shellWord(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
