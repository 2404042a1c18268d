/** A declared field as members and the command line see it. */
import type { Field } from '../../apps/fields.ts';
import { spellPath } from './payload-paths.ts';

/** A field with its paths as filters spell them. */
export function shownField<F extends Field>(
  field: F,
): Omit<F, 'path' | 'by'> & { readonly path: string; readonly by: string | null } {
  return { ...field, path: spellPath(field.path), by: field.by && spellPath(field.by) };
}
