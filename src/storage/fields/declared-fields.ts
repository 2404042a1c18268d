/** Declared fields, and what reads them from payloads. */
import type { FieldKind } from './payload-values.ts';

export type { FieldKind } from './payload-values.ts';

export interface DeclaredField {
  /** Internal id. */
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
