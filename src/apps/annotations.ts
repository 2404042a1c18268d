/** Annotations: what happened to an app at a time, such as a deployment or an incident, for its charts. */

import { type Actor, writeAudit } from '../accounts/log/audit.ts';
import { lockApp } from '../accounts/people/members.ts';
import type { Annotation } from '../api-types/answers.ts';
import { createPublicId } from '../base/token-text.ts';
import { refused } from '../errors.ts';
import { countRows, type Sql, type Transaction } from '../storage/database/connect.ts';

export const ANNOTATION_KINDS = ['deployment', 'incident', 'note'] as const;

type StoredAnnotation = Required<Annotation<Date>>;
export type NewAnnotation = Pick<StoredAnnotation, 'kind' | 'at' | 'until' | 'text'>;

/** Annotations of an app that its members wrote; and as many that its logging tokens wrote. */
const MAX_ANNOTATIONS = 5_000;
const MAX_LISTED = 1_000;

/** Who writes an annotation. */
type Writer = Actor | 'logging token';

/**
 * Stores an annotation. The same one again is stored once. The oldest annotations of a logging token make room for its new
 * ones, so that no deployment fails because the limit is reached.
 * @throws Refused appNotFound, tooManyAnnotations
 */
export async function addAnnotation(
  sql: Sql,
  appId: number,
  { kind, at, until, text }: NewAnnotation,
  by: Writer,
): Promise<{ readonly annotationId: string; readonly isNew: boolean }> {
  const isToken = by === 'logging token';
  const userId = typeof by === 'string' ? null : by.userId;
  return await sql.begin('isolation level read committed', async (tx) => {
    // The lock makes the limit exact.
    await lockApp(tx, appId);
    const known = await findSame(tx, appId, { kind, at, until, text });
    if (known !== undefined) return { annotationId: known, isNew: false };
    await makeRoom(tx, appId, isToken);
    const annotationId = createPublicId('ann');
    await tx`
      INSERT INTO annotations (public_id, app_id, kind, starts_at, ends_at, text, by_token, created_by)
      VALUES (${annotationId}, ${appId}, ${kind}, ${at}, ${until}, ${text}, ${isToken}, ${userId})`;
    if (!isToken)
      await writeAudit(tx, { appId, by, action: 'annotation.add', details: { annotationId, kind, text } });
    return { annotationId, isNew: true };
  });
}

/** Marks on the chart where an alert fires. The oldest make room, as those of logging tokens do. */
export async function annotateFiring(
  tx: Transaction,
  appId: number,
  { annotationId, at, text }: { readonly annotationId: string; readonly at: Date; readonly text: string },
): Promise<void> {
  await makeRoom(tx, appId, true);
  await tx`
    INSERT INTO annotations (public_id, app_id, kind, starts_at, text, by_token)
    VALUES (${annotationId}, ${appId}, 'incident', ${at}, ${text}, true) ON CONFLICT DO NOTHING`;
}

/** The firing ends; one that was wrong goes. @param until null: it was wrong */
export async function endFiring(tx: Transaction, annotationId: string, until: Date | null): Promise<void> {
  if (until === null) await tx`DELETE FROM annotations WHERE public_id = ${annotationId}`;
  else
    await tx`UPDATE annotations SET ends_at = ${until} WHERE public_id = ${annotationId} AND starts_at < ${until}`;
}

/** Gives marks of firings another text. Those that are not there any more are left out. */
export async function renameFiring(
  tx: Transaction,
  annotationIds: readonly string[],
  text: string,
): Promise<void> {
  await tx`UPDATE annotations SET text = ${text} WHERE public_id = ANY(${[...annotationIds]})`;
}

async function findSame(
  tx: Transaction,
  appId: number,
  { kind, at, until, text }: NewAnnotation,
): Promise<string | undefined> {
  const [row] = await tx<{ annotationId: string }[]>`
    SELECT public_id AS "annotationId" FROM annotations
     WHERE app_id = ${appId} AND starts_at = ${at} AND kind = ${kind} AND text = ${text}
       AND ends_at IS NOT DISTINCT FROM ${until}::timestamptz`;
  return row?.annotationId;
}

async function makeRoom(tx: Transaction, appId: number, isToken: boolean): Promise<void> {
  const written = await countRows(tx, tx`annotations WHERE app_id = ${appId} AND by_token = ${isToken}`);
  if (written < MAX_ANNOTATIONS) return;
  if (!isToken)
    throw refused(
      'tooManyAnnotations',
      `members of an app may write ${MAX_ANNOTATIONS} annotations: remove some`,
    );
  await tx`
    DELETE FROM annotations
     WHERE id = (SELECT id FROM annotations WHERE app_id = ${appId} AND by_token ORDER BY starts_at, id LIMIT 1)`;
}

/**
 * The annotations that touch an interval, newest first, {@link MAX_LISTED} at most.
 * @param interval milliseconds since 1970; null: without this end
 */
export async function listAnnotations(
  sql: Sql,
  appId: number,
  interval: { readonly from: number | null; readonly until: number | null },
): Promise<{ readonly annotations: StoredAnnotation[]; readonly hasMore: boolean }> {
  const from = interval.from === null ? null : new Date(interval.from);
  const until = interval.until === null ? null : new Date(interval.until);
  const rows = await sql<StoredAnnotation[]>`
    SELECT annotation.public_id AS "annotationId", kind, starts_at AS at, ends_at AS until, text,
           annotation.created_at AS "createdAt", users.email AS "createdBy"
      FROM annotations AS annotation LEFT JOIN users ON users.id = annotation.created_by
     WHERE app_id = ${appId} AND (${from}::timestamptz IS NULL OR coalesce(ends_at, starts_at) >= ${from})
       AND (${until}::timestamptz IS NULL OR starts_at < ${until})
     ORDER BY starts_at DESC, annotation.id DESC LIMIT ${MAX_LISTED + 1}`;
  return { annotations: rows.slice(0, MAX_LISTED), hasMore: rows.length > MAX_LISTED };
}

/** @returns false if the app has no such annotation */
export async function removeAnnotation(
  sql: Sql,
  { appId, annotationId, by }: { appId: number; annotationId: string; by: Actor },
): Promise<boolean> {
  return await sql.begin(async (tx) => {
    const [removed] = await tx<{ kind: string; text: string }[]>`
      DELETE FROM annotations WHERE app_id = ${appId} AND public_id = ${annotationId} RETURNING kind, text`;
    if (removed === undefined) return false;
    await writeAudit(tx, { appId, by, action: 'annotation.remove', details: { annotationId, ...removed } });
    return true;
  });
}
