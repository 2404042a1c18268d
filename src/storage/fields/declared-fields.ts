/** Declared fields, and what reads them from payloads. */
import type { Transaction } from '../database/connect.ts';
import type { FieldKind } from './payload-values.ts';

export interface DeclaredField {
  readonly id: number;
  /** Internal id of the type whose events have it; null: events of all types. */
  readonly typeId: number | null;
  /** Names from the payload's top on. */
  readonly path: readonly string[];
  readonly kind: FieldKind;
  /** Another path, by whose values the field is counted apart; null: none. */
  readonly by: readonly string[] | null;
}

/** The names of a path as the database has it. */
export function namesOf(path: string): readonly string[] {
  return JSON.parse(path) as string[];
}

/** The other path of a declaration, which the database has as an empty text where there is none. */
export function byOf(path: string): readonly string[] | null {
  return path === '' ? null : namesOf(path);
}

/** A field with what the database knows of its counts. */
export interface FieldState extends DeclaredField {
  readonly appId: number;
  /** Milliseconds since 1970: from here on it is counted; null: not at all. */
  readonly completeFrom: number | null;
  /** Whether it is to be counted back to the first event. */
  readonly backfill: boolean;
}

/** The fields that are counted. @param appId null: those of all apps */
export async function readFieldStates(tx: Transaction, appId: number | null): Promise<FieldState[]> {
  const rows = await tx<(Omit<FieldState, 'path' | 'by'> & { path: string; kind: FieldKind; by: string })[]>`
    SELECT id, app_id AS "appId", type_id AS "typeId", path, kind, by_path AS by, backfill,
           (extract(epoch FROM complete_from) * 1000)::float8 AS "completeFrom"
      FROM declared_fields
     WHERE removed_at IS NULL AND generation > 0 ${appId === null ? tx`` : tx`AND app_id = ${appId}`}
     ORDER BY app_id, id`;
  return rows.map((row) => ({ ...row, path: namesOf(row.path), by: byOf(row.by) }));
}
