/**
 * Finds payloads that cannot meet a condition without parsing them from the beginning: where the name of its field stands
 * in the text, the value that follows decides. What may be hidden by escapes, in arrays or in an object is left to the exact
 * test.
 */
import { skipSpace } from '../../json/lexer.ts';
import { Occurrences } from '../../json/occurrences.ts';
import { scalarEnd, stringEnd } from '../../json/walk.ts';
import type { Prefilter } from '../../storage/fields/row-filter.ts';
import { spellings } from './narrowing.ts';
import type { Condition } from './parse-filter.ts';
import { type ScalarTest, scalarTestOf } from './payload-matcher.ts';

const COLON = 0x3a;
const QUOTE = 0x22;
const OPEN_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const OPEN_BRACE = 0x7b;

/** @returns null if no condition can be checked this way */
export function prefilterOf(conditions: readonly Condition[]): ((text: string) => Prefilter) | null {
  for (const { isNegated, path, test } of conditions) {
    const scalar = isNegated ? null : scalarTestOf(test);
    const [member = '', ...escapes] = spellings(path.at(-1) ?? '', '"');
    if (scalar === null || escapes.length === 0) continue;
    // Without its first quote: JSON is full of quotes, and a search stops at each place that begins like what it looks for.
    const [name, ...hidden] = [member.slice(1), ...escapes].map(bytewise);
    return (text) => {
      const names = new Occurrences(name ?? '').in(text);
      const hiding = hidden.map((part) => new Occurrences(part).in(text));
      return (start, end) => {
        for (const part of hiding) if (part.from(start) < end) return true;
        for (let at = names.from(start + 1); at < end; at = names.from(at + 1))
          if (text.charCodeAt(at - 1) === QUOTE && mayHold(text, at + names.length, scalar)) return true;
        return false;
      };
    };
  }
  return null;
}

/** UTF-8 as a text with a character for each byte. */
function bytewise(text: string): string {
  return Buffer.from(text).toString('latin1');
}

/**
 * Whether a member has a value that may meet the test.
 * @param nameEnd the index after its name
 */
function mayHold(text: string, nameEnd: number, test: ScalarTest): boolean {
  const after = skipSpace(text, nameEnd);
  // Any other string that is spelled so leads nowhere.
  if (text.charCodeAt(after) !== COLON) return false;
  const value = skipSpace(text, after + 1);
  switch (text.charCodeAt(value)) {
    case OPEN_BRACE:
      return false;
    case OPEN_BRACKET:
      return true;
    case QUOTE: {
      const inner = text.slice(value + 1, stringEnd(text, value) - 1);
      return !isPlain(inner) || test.ofString(inner);
    }
    default:
      return test.ofOther(text.slice(value, scalarEnd(text, value)));
  }
}

/** Without escapes, and with a byte for each character. */
function isPlain(text: string): boolean {
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code > 0x7e || code === BACKSLASH) return false;
  }
  return true;
}
