/** Which payloads a filter wants: a cheap test that the database makes, and an exact one. */
import type { TextPart } from '../../json/path-walk.ts';

/** Texts of which a payload's text contains at least one. */
export type TextTest = readonly string[];

/**
 * Tells payloads that do not match by less than reading them: asked of one after the other in the order of their text.
 * @returns false only where the payload between two indexes does not match
 */
export type Prefilter = (start: number, end: number) => boolean;

/** Alternatives of which one holds for such a payload: hashes of words (json/words.ts) that it has all of. */
export type WordTest = readonly (readonly number[])[];

/** Which payloads are wanted. */
export interface RowFilter {
  /** What every such payload contains: the cheap test, which the database makes. It takes no NUL and no lone surrogates. */
  readonly contains: readonly TextTest[];
  /**
   * The cheap test that the service makes of many payloads in one text, where there is one.
   * @param text bytes of UTF-8, each as a character; between the payloads it may hold anything
   */
  readonly prefilter?: ((text: string) => Prefilter) | null;
  /** What lists of words can tell: all of these tests hold. The first are the most selective. */
  readonly words?: readonly WordTest[];
  /** The exact test of a payload's text. */
  readonly matches: (payload: string | TextPart) => boolean;
}

export const EVERY_ROW: RowFilter = { contains: [], matches: () => true };

/**
 * The condition that a text passes the cheap tests.
 * @param text the name of a column
 */
export function passes(text: string, tests: readonly TextTest[]): string {
  const contains = (part: string): string => `strpos(${text}, ${textLiteral(part)}) > 0`;
  const conditions = tests.map((test) => {
    // One character is found in half the time of several. Most texts have no backslash, and so nothing that begins with one.
    const escapes = test.filter((part) => part.startsWith('\\') && part.length > 1);
    const others = test.filter((part) => !escapes.includes(part)).map(contains);
    const escaped = `(${contains('\\')} AND (${escapes.map(contains).join(' OR ')}))`;
    return `(${[...others, ...(escapes.length > 0 ? [escaped] : [])].join(' OR ') || 'false'})`;
  });
  return conditions.join(' AND ') || 'true';
}

/** A time as a constant. @param ms since 1970 */
export function timeLiteral(ms: number): string {
  return `'${new Date(ms).toISOString()}'::timestamptz`;
}

/** A text as a constant, because COPY takes no parameters. One of this form is read alike under all settings. */
export function textLiteral(text: string): string {
  if (text.includes('\0')) throw new Error('a text of PostgreSQL has no NUL');
  return `E'${text.replaceAll('\\', '\\\\').replaceAll("'", "''")}'`;
}
