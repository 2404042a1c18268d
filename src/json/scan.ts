/**
 * Validates JSON (RFC 8259, exactly what JSON.parse accepts) without building values, and finds members of the outermost
 * object. It takes a few nanoseconds per character for any text, while JSON.parse takes up to a hundred for nested arrays,
 * and it can be paused.
 */
import { NONE, scalarEnd, skipSpace, stringMistake, stringRest } from './lexer.ts';
import { hasEscape, Names } from './strings.ts';

const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
/** Difference between the codes of an opening bracket or brace and the closing one. */
const TO_CLOSING = 2;

/** Limit of a payload's nesting. PostgreSQL's JSON parser is recursive and has a limit that depends on its stack. */
export const MAX_PAYLOAD_DEPTH = 1_000;

/** Characters that are scanned per turn of the event loop: less than a millisecond for any text. */
export const SLICE_CHARACTERS = 65_536;

/** A value in the text. */
export interface Span {
  /** Index of its first character. */
  readonly start: number;
  /** Index after its last character. */
  readonly end: number;
  /** Levels of objects and arrays in it: 0 for a string or a number, 1 for `{}`. */
  readonly depth: number;
}

/** `more`: valid so far, and not complete. */
export type ScanState = 'more' | 'done' | 'invalid';

/** What a paused scan expects next. */
const VALUE = 0;
const STRING = 1;
const KEY = 2;
const AFTER_VALUE = 3;

export class JsonScan {
  /** Index up to which the text is scanned; when done, the index after the value; when invalid, that of the mistake. */
  end = 0;
  /** Index of the text in the body, where it is a line of one. */
  offset = 0;
  readonly #names: readonly string[];
  readonly #keys: Names;
  readonly #spans: (Span | null)[];
  #text = '';
  #start = 0;
  #next = VALUE;
  #keyStart = 0;
  /** The closing characters of the enclosing objects and arrays, and their number. */
  #stack: Uint8Array = new Uint8Array(64);
  #depth = 0;
  /** Maximum of the depth in the current member of the outermost object, and in the members before it. */
  #deepest = 0;
  #deepestBefore = 0;
  /** Current member: the index of its name, NONE for a name that is not searched; and the start of its value. */
  #member = NONE;
  #memberStart = 0;
  /** Members with other names: where their names begin and end, and where their values begin. Null if not needed. */
  readonly #others: number[] | null;

  /**
   * @param names       of the members of the outermost object whose spans are needed
   * @param keepsOthers whether {@link others} are needed
   */
  constructor(names: readonly string[] = [], keepsOthers = false) {
    this.#names = names;
    this.#keys = new Names(names);
    this.#others = keepsOthers ? [] : null;
    this.#spans = names.map(() => null);
  }

  /** Begins with the value at `start`, after optional white space. Ignores text after the value. */
  begin(text: string, start: number): void {
    this.#text = text;
    this.#start = start;
    this.end = start;
    this.#next = VALUE;
    this.#depth = 0;
    this.#deepest = 0;
    this.#deepestBefore = 0;
    this.#member = NONE;
    this.#spans.fill(null);
    if (this.#others !== null) this.#others.length = 0;
  }

  /** Releases the text. */
  forget(): void {
    this.begin('', 0);
  }

  /**
   * Continues the scan. One function with its state in local variables, because a call per token doubles the time.
   * @param characters pauses after about this many; numbers and white space are not interrupted
   */
  step(characters: number): ScanState {
    const text = this.#text;
    const stop = Math.min(text.length, this.end + characters);
    let at = this.end;
    let depth = this.#depth;
    let deepest = this.#deepest;
    let next = this.#next;
    let stack: Uint8Array = this.#stack;
    scan: for (;;) {
      if (next === VALUE) {
        let code = text.charCodeAt(at);
        if (code <= SPACE) {
          at = skipSpace(text, at);
          code = text.charCodeAt(at);
        }
        if (at >= stop) break;
        if (code === OPEN_BRACKET || code === OPEN_BRACE) {
          const closing = code + TO_CLOSING;
          if (depth === stack.length) stack = this.#stack = twiceAsLong(stack);
          stack[depth] = closing;
          depth += 1;
          if (depth > deepest) deepest = depth;
          at += 1;
          code = text.charCodeAt(at);
          if (code <= SPACE) {
            at = skipSpace(text, at);
            code = text.charCodeAt(at);
          }
          if (code !== closing) {
            if (closing === CLOSE_BRACKET) continue;
            if (code !== QUOTE) return this.#failed(at);
            at += 1;
            this.#keyStart = at;
            next = KEY;
          }
        } else if (code === QUOTE) {
          at += 1;
          next = STRING;
        } else {
          const end = scalarEnd(text, at, code);
          if (end === NONE) return this.#failed(at);
          at = end;
        }
      }
      if (next === STRING || next === KEY) {
        const rest = stringRest(text, at, stop);
        if (rest === NONE) return this.#failed(stringMistake(text, at));
        at = rest;
        if (text.charCodeAt(at) !== QUOTE) break;
        at += 1;
        if (next === KEY) {
          const keyEnd = at - 1;
          at = skipSpace(text, at);
          if (text.charCodeAt(at) !== COLON) return this.#failed(at);
          at += 1;
          next = VALUE;
          if (depth === 1) {
            this.#beginMember(keyEnd, at);
            deepest = 1;
          }
          continue;
        }
      }
      next = VALUE;
      for (;;) {
        if (depth <= 1 && this.#endsAt(at, depth, deepest)) return 'done';
        if (at >= stop) {
          next = AFTER_VALUE;
          break scan;
        }
        let code = text.charCodeAt(at);
        if (code <= SPACE) {
          at = skipSpace(text, at);
          code = text.charCodeAt(at);
        }
        const closing = stack[depth - 1];
        at += 1;
        if (code === closing) {
          depth -= 1;
        } else if (code !== COMMA) {
          return this.#failed(at - 1);
        } else if (closing === CLOSE_BRACKET) {
          continue scan;
        } else {
          at = skipSpace(text, at);
          if (text.charCodeAt(at) !== QUOTE) return this.#failed(at);
          at += 1;
          this.#keyStart = at;
          next = KEY;
          continue scan;
        }
      }
    }
    this.end = at;
    this.#next = next;
    this.#depth = depth;
    this.#deepest = deepest;
    return at >= text.length ? 'invalid' : 'more';
  }

  /** @param at index of the first character that JSON does not have there */
  #failed(at: number): 'invalid' {
    this.end = at;
    return 'invalid';
  }

  get text(): string {
    return this.#text;
  }

  /** Whether the value is an object. */
  get isObject(): boolean {
    return this.#text.charCodeAt(skipSpace(this.#text, this.#start)) === OPEN_BRACE;
  }

  /** The text of the value, after the scan is done. */
  get value(): string {
    return this.#text.slice(skipSpace(this.#text, this.#start), this.end);
  }

  /** Levels of objects and arrays of the value, after the scan is done. */
  get depth(): number {
    return this.#deepestBefore;
  }

  /** Levels of the member that a paused scan is in, as far as it has come; 0 where it is in another one. */
  depthSoFar(name: string): number {
    return this.#names[this.#member] === name ? this.#deepest - 1 : 0;
  }

  /** The text of a member's value, as {@link span} finds it. */
  member(name: string): string | null {
    const span = this.span(name);
    return span === null ? null : this.#text.slice(span.start, span.end);
  }

  /**
   * The value of a member of the outermost object, after the scan is done. As in JSON.parse the last of several members
   * with the same name counts, and a name may contain escapes.
   * @returns null if there is no such member
   */
  span(name: string): Span | null {
    return this.#spans[this.#names.indexOf(name)] ?? null;
  }

  /**
   * The searched members as JSON.parse would return them, for validation by a schema: after the scan is done. Strings may be
   * slices, which keep the whole text in memory.
   * @param depth levels of objects and arrays that are read; deeper ones are empty
   * @returns null if the value is not an object
   */
  fields(depth = 0): Record<string, unknown> | null {
    if (!this.isObject) return null;
    const fields: Record<string, unknown> = {};
    for (let index = 0; index < this.#names.length; index += 1) {
      const span = this.#spans[index] ?? null;
      if (span !== null) fields[this.#names[index] as string] = fieldAt(this.#text, span, depth);
    }
    return fields;
  }

  /**
   * Visits the members of the outermost object whose names were not searched, after the scan is done.
   * @param visit gets the text, where the name begins and ends in it, with its escapes, and where the value begins
   * @returns the first result that is not null
   */
  firstOfOthers<T>(
    visit: (text: string, name: number, nameEnd: number, value: number) => T | null,
  ): T | null {
    const others = this.#others ?? [];
    for (let at = 0; at < others.length; at += 3) {
      const value = skipSpace(this.#text, others[at + 2] ?? 0);
      const result = visit(this.#text, others[at] ?? 0, others[at + 1] ?? 0, value);
      if (result !== null) return result;
    }
    return null;
  }

  #beginMember(keyEnd: number, valueStart: number): void {
    this.#member = this.#keys.indexOf(this.#text, this.#keyStart, keyEnd);
    if (this.#member === NONE) {
      this.#others?.push(this.#keyStart, keyEnd, valueStart);
      return;
    }
    this.#memberStart = skipSpace(this.#text, valueStart);
  }

  /** Handles the end of a member's value, or of the outermost value. @returns true for the latter */
  #endsAt(at: number, depth: number, deepest: number): boolean {
    if (deepest > this.#deepestBefore) this.#deepestBefore = deepest;
    if (depth === 0) {
      this.end = at;
      return true;
    }
    if (this.#member !== NONE) {
      this.#spans[this.#member] = { start: this.#memberStart, end: at, depth: deepest - 1 };
      this.#member = NONE;
    }
    return false;
  }
}

function twiceAsLong(stack: Uint8Array): Uint8Array {
  const longer = new Uint8Array(2 * stack.length);
  longer.set(stack);
  return longer;
}

function fieldAt(text: string, { start, end, depth }: Span, levels: number): unknown {
  if (depth > levels) return text.charCodeAt(start) === OPEN_BRACE ? {} : [];
  if (text.charCodeAt(start) === QUOTE && !hasEscape(text, start, end)) return text.slice(start + 1, end - 1);
  return JSON.parse(text.slice(start, end));
}
