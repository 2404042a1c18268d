/** What the strings of a valid JSON text stand for. */
import { NONE } from './lexer.ts';

const BACKSLASH = 0x5c;
/** Most characters that a JSON string takes for one of what it stands for: `\u0061`. */
const LONGEST_ESCAPE = 6;

/** What the string between two indexes stands for. @param start index of its opening quote @param end index after its closing one */
export function stringText(text: string, start: number, end: number): string {
  if (!hasEscape(text, start, end)) return text.slice(start + 1, end - 1);
  return JSON.parse(text.slice(start, end)) as string; // A JSON string is a string.
}

/** Names that the keys of objects are compared with. */
export class Names {
  readonly #names: string[] = [];
  /** As JSON.stringify spells them, without quotes. */
  readonly #spelled: string[] = [];
  /** A key with escapes is longer than the shortest name, and at most as long as the longest one with all of it escaped. */
  #shortest = Number.POSITIVE_INFINITY;
  #longest = 0;

  constructor(names: readonly string[] = []) {
    for (const name of names) this.add(name);
  }

  add(name: string): void {
    this.#names.push(name);
    this.#spelled.push(JSON.stringify(name).slice(1, -1));
    this.#shortest = Math.min(this.#shortest, name.length);
    this.#longest = Math.max(this.#longest, LONGEST_ESCAPE * name.length);
  }

  /**
   * Which name a key spells, with escapes or without.
   * @param start index after its opening quote
   * @param end   index of its closing quote
   * @returns NONE if it is none of them
   */
  indexOf(text: string, start: number, end: number): number {
    const spelled = this.#spelled;
    const length = end - start;
    for (let index = 0; index < spelled.length; index += 1) {
      const name = spelled[index] as string; // The index is in range.
      if (name.length === length && text.startsWith(name, start)) return index;
    }
    if (length <= this.#shortest || length > this.#longest || !hasEscape(text, start, end)) return NONE;
    return this.#names.indexOf(stringText(text, start - 1, end + 1));
  }
}

export function hasEscape(text: string, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) if (text.charCodeAt(at) === BACKSLASH) return true;
  return false;
}

const ESCAPE = /\\(?:u([0-9a-fA-F]{4})|(.))/g;
const CONTROL: Readonly<Record<string, string>> = { b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' };

/** A JSON text with the escapes of its strings resolved; it is no JSON any more. */
export function unescaped(text: string): string {
  return text.replace(ESCAPE, (_, hex: string | undefined, character: string) =>
    hex === undefined ? (CONTROL[character] ?? character) : String.fromCharCode(Number.parseInt(hex, 16)),
  );
}
