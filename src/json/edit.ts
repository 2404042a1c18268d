/**
 * Removes and replaces values in a text that is known to be JSON, found by the names that lead to them. Everything else stays as it
 * is, byte by byte: spaces, escapes, the order of members, the spelling of numbers. Unlike path-walk.ts, which reads the last of several
 * members of one name, it edits all of them.
 */
import { skipSpace } from './lexer.ts';
import { firstItem, isClosing, memberValue, nextItem, stringEnd, valueEnd } from './walk.ts';

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const OPEN_BRACE = 0x7b;

/** What to do with a value. @param json its text @returns the text in its place; null: its member goes, with its name */
export type Replace = (json: string) => string | null;

/** The names that lead on from an object. */
export interface EditStep {
  readonly next: Map<string, EditStep>;
  /** What is done with the values that a path ends at; null: no path ends here. */
  replace: Replace | null;
}

export function newEditStep(): EditStep {
  return { next: new Map(), replace: null };
}

/** Adds a path. Where a shorter path leads to a value around it, that one decides. */
export function addEdit(root: EditStep, path: readonly string[], replace: Replace): void {
  let step = root;
  for (const name of path) {
    const known = step.next.get(name) ?? newEditStep();
    step.next.set(name, known);
    step = known;
  }
  step.replace = replace;
}

interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Applies edits. Every member of a name is edited, also where an object has several of that name, and however the name is escaped. A
 * path that comes to an array goes on in each of its elements; an array that a path ends at is one value.
 * @returns the same text where nothing was found
 */
export function editValues(text: string, root: EditStep): string {
  const edits: Edit[] = [];
  visit(text, skipSpace(text, 0), root, edits);
  if (edits.length === 0) return text;
  const parts: string[] = [];
  let at = 0;
  for (const { start, end, text: replacement } of edits) {
    parts.push(text.slice(at, start), replacement);
    at = end;
  }
  parts.push(text.slice(at));
  return parts.join('');
}

/** @returns the index after the value */
function visit(text: string, at: number, step: EditStep, edits: Edit[]): number {
  const code = text.charCodeAt(at);
  if (code === OPEN_BRACE) return visitMembers(text, at, step, edits);
  if (code === OPEN_BRACKET) return visitElements(text, at, step, edits);
  return valueEnd(text, at);
}

function visitElements(text: string, start: number, step: EditStep, edits: Edit[]): number {
  let at = firstItem(text, start);
  while (!isClosing(text, at)) at = nextItem(text, visit(text, at, step, edits));
  return at + 1;
}

function visitMembers(text: string, start: number, step: EditStep, edits: Edit[]): number {
  let at = firstItem(text, start);
  /** Where the last member ends that stays; null: none does so far. */
  let keptEnd: number | null = null;
  while (text.charCodeAt(at) === QUOTE) {
    const keyEnd = stringEnd(text, at);
    const value = memberValue(text, keyEnd);
    const following = step.next.get(nameOf(text, at, keyEnd));
    const replace = following?.replace ?? null;
    const isInner = following !== undefined && replace === null;
    const end = isInner ? visit(text, value, following, edits) : valueEnd(text, value);
    const after = skipSpace(text, end);
    const isLast = text.charCodeAt(after) !== COMMA;
    const replacement = replace === null ? undefined : replace(text.slice(value, end));
    if (replacement === null)
      removeMember(edits, { start: at, end, keptEnd, next: isLast ? null : skipSpace(text, after + 1) });
    else keptEnd = end;
    if (typeof replacement === 'string') edits.push({ start: value, end, text: replacement });
    if (isLast) return after + 1;
    at = skipSpace(text, after + 1);
  }
  return at + 1;
}

/** @param member.next where the next member begins; null: it is the last one, and the comma before it goes, too */
function removeMember(
  edits: Edit[],
  { start, end, keptEnd, next }: { start: number; end: number; keptEnd: number | null; next: number | null },
): void {
  if (next !== null || keptEnd === null) {
    edits.push({ start, end: next ?? end, text: '' });
    return;
  }
  // Members that were removed since the last one that stays are a part of what goes.
  while ((edits.at(-1)?.start ?? Number.NEGATIVE_INFINITY) >= keptEnd) edits.pop();
  edits.push({ start: keptEnd, end, text: '' });
}

function nameOf(text: string, start: number, end: number): string {
  const name = text.slice(start + 1, end - 1);
  return name.includes('\\') ? String(JSON.parse(text.slice(start, end))) : name;
}
