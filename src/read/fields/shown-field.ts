/** A declared field as members and the command line see it. */
import type { Field } from '../../apps/fields.ts';
import { spellPath } from './payload-paths.ts';

/** A field with its path as filters spell it. */
export function shownField<F extends Field>(field: F): Omit<F, 'path'> & { readonly path: string } {
  return { ...field, path: spellPath(field.path) };
}
