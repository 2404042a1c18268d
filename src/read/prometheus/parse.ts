/**
 * Expressions of PromQL as what {@link evaluate} computes: selectors, `increase` and `rate`, aggregations, arithmetic and comparisons.
 * The grammar is Prometheus' own. Every other expression is refused by a sentence that says what there is.
 */
import { parser } from '@prometheus-io/lezer-promql';
import { RE2JS } from 're2js';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../base/time-units.ts';

export const AGGREGATIONS = ['sum', 'count', 'avg', 'min', 'max', 'topk', 'bottomk'] as const;
export type Aggregation = (typeof AGGREGATIONS)[number];
export const RANGE_FUNCTIONS = ['increase', 'rate'] as const;
export type RangeFunction = (typeof RANGE_FUNCTIONS)[number];
const OPERATORS = ['+', '-', '*', '/', '%', '^', '==', '!=', '>', '<', '>=', '<='] as const;
export type Operator = (typeof OPERATORS)[number];

export interface Matcher {
  readonly label: string;
  /** Whether a label of this value passes. An absent label is the empty text. */
  readonly passes: (value: string) => boolean;
  /** Whether that takes a regular expression. */
  readonly isPattern: boolean;
  /** The one value that passes, where there is one. */
  readonly only?: string;
}

/** The samples of some series at each step, or what they grew by in the window before it. */
export interface Selector {
  readonly kind: 'selector';
  readonly matchers: readonly Matcher[];
  readonly offsetMs: number;
  readonly window: { readonly of: RangeFunction; readonly ms: number } | null;
}

export type Expression =
  | Selector
  | { readonly kind: 'number'; readonly value: number }
  | {
      readonly kind: 'aggregation';
      readonly of: Aggregation;
      /** `topk` and `bottomk`: how many. */
      readonly k: number;
      /** The labels that groups have, or those that they do not have. */
      readonly by: boolean;
      readonly labels: readonly string[];
      readonly from: Expression;
    }
  /** 1 where an expression has no sample. */
  | {
      readonly kind: 'absent';
      /** Labels of its selector that have one value. */
      readonly labels: Readonly<Record<string, string>>;
      readonly from: Expression;
    }
  | {
      readonly kind: 'operation';
      readonly of: Operator;
      /** A comparison that gives 0 or 1, and leaves nothing out. */
      readonly isBool: boolean;
      readonly left: Expression;
      readonly right: Expression;
    };

/** A problem of an expression, as a sentence. */
export class Unsupported extends Error {
  override readonly name = 'Unsupported';
}

export const SUPPORTED =
  'Supported are selectors, increase and rate with a range, offset, absent, ' +
  `${AGGREGATIONS.join(', ')} with by and without, numbers, arithmetic, and comparisons.`;

/** What says the same as a function or an operator that there is not. */
const NO_OR =
  '“or vector(0)” can be left out: a type without events in a range has an increase of 0, and absent finds a type that the app never had.';
const EACH = 'Ask for each expression by itself, or multiply by a comparison with bool.';
const INSTEAD: ReadonlyMap<string, string> = new Map([
  ['or', NO_OR],
  ['vector', NO_OR],
  ['and', EACH],
  ['unless', EACH],
  ['time', 'Choose the time by offset, or by the parameters of the request: time, or start, end and step.'],
  ['round', 'Counts are whole: increase extrapolates nothing. Round other values where they are shown.'],
  ['absent_over_time', 'Compare increase with 0, or use absent for a type that the app never had.'],
  ['irate', 'Use rate.'],
  ['delta', 'Use increase.'],
]);

const SECOND_MS = 1_000;
const LONGEST = 8_192;
/** Expressions within each other. */
const DEEPEST = 50;
/** Limits of all regular expressions together: their programs are matched with each name. */
const LONGEST_PATTERNS = 2_000;
const LARGEST_PROGRAMS = 4_000;

const strict = parser.configure({ strict: true });
type Node = ReturnType<typeof strict.parse>['topNode'];

/** Whether an expression is a number at each step, and not series. */
export function isScalar(expression: Expression): boolean {
  if (expression.kind === 'operation') return isScalar(expression.left) && isScalar(expression.right);
  return expression.kind === 'number';
}

/** @throws {Unsupported} with a sentence about what is wrong */
export function parseExpression(text: string): Expression {
  return new Reader(text).root();
}

/** What the regular expressions of a request have taken of their limits. */
interface Taken {
  characters: number;
  instructions: number;
}

/** The matchers of selectors without a range, as in `match[]`. @throws {Unsupported} */
export function parseSelectors(texts: readonly string[]): readonly (readonly Matcher[])[] {
  const taken = { characters: 0, instructions: 0 };
  return texts.map((text) => matchersOf(new Reader(text, taken).root()));
}

function matchersOf(expression: Expression): readonly Matcher[] {
  if (expression.kind !== 'selector' || expression.window !== null || expression.offsetMs !== 0)
    throw new Unsupported(`match[] must be a selector, such as tidemark_events_total{app="…"}.`);
  return expression.matchers;
}

class Reader {
  readonly #text: string;
  readonly #taken: Taken;

  constructor(text: string, taken: Taken = { characters: 0, instructions: 0 }) {
    this.#text = text;
    this.#taken = taken;
  }

  root(): Expression {
    const text = this.#text;
    if (text.length > LONGEST)
      throw new Unsupported(
        `The expression must have at most ${LONGEST.toLocaleString('en-US')} characters.`,
      );
    const [child] = expressionsIn(this.#parsed());
    if (child === undefined) throw new Unsupported('The expression is empty.');
    return this.#read(child, 0);
  }

  #parsed(): Node {
    try {
      return strict.parse(this.#text).topNode;
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      const at = Number(error.message.slice(error.message.lastIndexOf(' ')));
      const rest = this.#text.slice(at, at + 20);
      const found = rest === '' ? 'the expression ends too early' : `unexpected ${JSON.stringify(rest)}`;
      throw new Unsupported(`parse error at character ${at + 1}: ${found}.`);
    }
  }

  #read(node: Node, depth: number): Expression {
    if (depth > DEEPEST) throw new Unsupported(`At most ${DEEPEST} expressions may be within each other.`);
    switch (node.name) {
      case 'NumberDurationLiteral':
        return { kind: 'number', value: numberOf(this.#textOf(node)) };
      case 'ParenExpr':
        return this.#read(this.#only(node), depth + 1);
      case 'UnaryExpr': {
        const of = this.#read(this.#only(node), depth + 1);
        return this.#textOf(node).startsWith('+') ? of : this.#negative(of);
      }
      case 'BinaryExpr':
        return this.#operation(node, depth);
      case 'AggregateExpr':
        return this.#aggregation(node, depth);
      case 'FunctionCall':
        return this.#call(node, depth);
      case 'VectorSelector':
      case 'OffsetExpr':
        return this.#selector(node, null);
      case 'MatrixSelector':
        throw new Unsupported(`A range, such as [5m], must be in ${RANGE_FUNCTIONS.join(' or ')}.`);
      default:
        throw this.#unsupported(node);
    }
  }

  #negative(of: Expression): Expression {
    if (of.kind === 'number') return { kind: 'number', value: -of.value };
    return { kind: 'operation', of: '*', isBool: false, left: { kind: 'number', value: -1 }, right: of };
  }

  #operation(node: Node, depth: number): Expression {
    const [left, right] = expressionsIn(node);
    const between = children(node).filter(({ from }) => from !== left?.from && from !== right?.from);
    const modifier = between.find(({ name }) => name === 'BoolModifier');
    const matching = between.find(({ name }) => name.endsWith('Clause') || name.startsWith('Fill'));
    const matchesLabels = matching ?? (modifier && child(modifier, 'MatchingModifierClause'));
    if (left === undefined || right === undefined || matchesLabels !== undefined)
      throw this.#unsupported(matchesLabels ?? node);
    const [operator] = between;
    const sign = operator === undefined ? '' : this.#textOf(operator);
    const of = OPERATORS.find((one) => one === sign);
    if (of === undefined) throw this.#unsupported(operator ?? node);
    const isBool = modifier !== undefined;
    const read = { left: this.#read(left, depth + 1), right: this.#read(right, depth + 1) };
    // A sign stands before the power, though the grammar reads it with its number: -2^2 is -(2^2).
    if (of === '^' && left.name === 'NumberDurationLiteral' && this.#textOf(left).startsWith('-')) {
      const power = this.#negative(read.left);
      return this.#negative({ kind: 'operation', of, isBool, left: power, right: read.right });
    }
    const compares = isComparison(of);
    if (isBool && !compares) throw new Unsupported('bool belongs to comparisons alone.');
    if (compares && !isBool && isScalar(read.left) && isScalar(read.right))
      throw new Unsupported('A comparison of two numbers needs bool: 1 == bool 1.');
    return { kind: 'operation', of, isBool, ...read };
  }

  #aggregation(node: Node, depth: number): Expression {
    const { of, args } = this.#called(node, 'AggregateOp', AGGREGATIONS);
    const takesNumber = of === 'topk' || of === 'bottomk';
    const [last] = args.slice(-1);
    if (last === undefined || args.length !== (takesNumber ? 2 : 1))
      throw new Unsupported(`${of} takes ${takesNumber ? 'a number and an expression' : 'one expression'}.`);
    const from = this.#read(last, depth + 1);
    if (isScalar(from)) throw new Unsupported(`${of} takes series, not a number.`);
    let k = 0;
    if (takesNumber) {
      const number = this.#read(args[0] ?? last, depth + 1);
      if (number.kind !== 'number' || !(number.value >= 1 && number.value < 1e9))
        throw new Unsupported(`The first argument of ${of} must be a number of at least 1.`);
      k = Math.floor(number.value);
    }
    const modifier = child(node, 'AggregateModifier');
    const grouping = modifier && child(modifier, 'GroupingLabels');
    const labels = grouping === undefined ? [] : children(grouping).map((label) => this.#name(label));
    const without = modifier !== undefined && child(modifier, 'Without') !== undefined;
    return { kind: 'aggregation', of, k, by: !without, labels, from };
  }

  #call(node: Node, depth: number): Expression {
    const { of, args } = this.#called(node, 'FunctionIdentifier', [...RANGE_FUNCTIONS, 'absent'] as const);
    const [argument] = args;
    if (of === 'absent') {
      if (argument === undefined || args.length !== 1) throw new Unsupported('absent takes one expression.');
      const from = this.#read(argument, depth + 1);
      if (isScalar(from)) throw new Unsupported('absent takes series, not a number.');
      const matchers = from.kind === 'selector' ? from.matchers : [];
      const labels = matchers.flatMap(({ label, only }) =>
        only === undefined || label === '__name__' ? [] : [[label, only] as const],
      );
      return { kind: 'absent', labels: Object.fromEntries(labels), from };
    }
    const wanted = new Unsupported(
      `${of} takes a selector with a range, such as ${of}(tidemark_events_total[5m]).`,
    );
    if (argument === undefined || args.length !== 1) throw wanted;
    let matrix = argument;
    while (matrix.name === 'ParenExpr') matrix = this.#only(matrix);
    const inner = matrix.name === 'OffsetExpr' ? expressionsIn(matrix)[0] : matrix;
    if (inner?.name !== 'MatrixSelector') {
      if (matrix.name === 'VectorSelector') throw wanted;
      throw this.#unsupported(inner ?? matrix);
    }
    const range = child(inner, 'DurationExpr');
    const ms = range === undefined ? Number.NaN : this.#duration(range);
    if (!(ms > 0)) throw new Unsupported('A range must be longer than 0.');
    return this.#selector(matrix, { of, ms });
  }

  /** What a node calls, which is one of `known`, and its arguments. @param part the node's part with the name */
  #called<Name extends string>(
    node: Node,
    part: string,
    known: readonly Name[],
  ): { readonly of: Name; readonly args: readonly Node[] } {
    const name = child(node, part);
    const text = name === undefined ? '' : this.#textOf(name).toLowerCase();
    const of = known.find((one) => one === text);
    const body = child(node, 'FunctionCallBody');
    if (of === undefined || body === undefined) throw this.#unsupported(name ?? node);
    return { of, args: expressionsIn(body) };
  }

  /** @param node a selector of samples or of a range, or one of these with an offset */
  #selector(node: Node, window: Selector['window']): Selector {
    let [selector, offsetMs] = [node, 0];
    if (node.name === 'OffsetExpr') {
      const duration = child(node, 'OffsetDurationExpr');
      selector = this.#only(node);
      offsetMs = duration === undefined ? 0 : this.#duration(duration);
    }
    if (selector.name === 'MatrixSelector' && window !== null) selector = this.#only(selector);
    if (selector.name !== 'VectorSelector') throw this.#unsupported(selector);
    const matchers: Matcher[] = [];
    for (const part of children(selector)) {
      if (part.name === 'Identifier') matchers.push(equals('__name__', this.#textOf(part)));
      else for (const matcher of children(part)) matchers.push(this.#matcher(matcher));
    }
    if (matchers.length === 0)
      throw new Unsupported('A selector needs a name or a matcher: tidemark_events_total.');
    return { kind: 'selector', matchers, offsetMs, window };
  }

  #matcher(node: Node): Matcher {
    const [name, operator, value] = children(node);
    // A quoted name alone is that of the metric.
    if (name !== undefined && operator === undefined) return equals('__name__', this.#name(name));
    if (name === undefined || operator === undefined || value === undefined) throw this.#unsupported(node);
    const label = this.#name(name);
    const text = stringOf(this.#textOf(value));
    const sign = this.#textOf(operator);
    if (sign === '=') return equals(label, text);
    if (sign === '!=') return { label, passes: (sent) => sent !== text, isPattern: false };
    // What tools make of a choice among names is no more than a set.
    const names = alternativesOf(text);
    const matches = names === null ? this.#pattern(text) : (sent: string): boolean => names.has(sent);
    return { label, passes: sign === '=~' ? matches : (sent) => !matches(sent), isPattern: names === null };
  }

  /** A regular expression of RE2, whose time is linear in a text, anchored at both ends. */
  #pattern(text: string): (sent: string) => boolean {
    const taken = this.#taken;
    taken.characters += text.length;
    if (taken.characters > LONGEST_PATTERNS)
      throw new Unsupported(
        `Regular expressions must have at most ${LONGEST_PATTERNS.toLocaleString('en-US')} characters together.`,
      );
    const tooLarge = new Unsupported('The regular expressions are too large: use fewer repetitions.');
    // A program that is too large takes long to be made, too. Groups without captures are smaller than the estimate.
    if (estimatedInstructions(text) > 4 * LARGEST_PROGRAMS) throw tooLarge;
    let pattern: RE2JS;
    try {
      pattern = RE2JS.compile(text, RE2JS.DOTALL);
    } catch (error) {
      const reason = error instanceof Error ? error.message : String(error);
      throw new Unsupported(`The regular expression ${JSON.stringify(text)} is not one of RE2: ${reason}.`);
    }
    taken.instructions += pattern.programSize();
    if (taken.instructions > LARGEST_PROGRAMS) throw tooLarge;
    return (sent) => pattern.matches(sent);
  }

  /** Milliseconds. */
  #duration(node: Node): number {
    const text = this.#textOf(node).trim();
    const isNegative = text.startsWith('-');
    const ms = durationOf(isNegative || text.startsWith('+') ? text.slice(1).trim() : text);
    if (ms === null)
      throw new Unsupported(`${JSON.stringify(text)} must be a duration, such as 5m or 1h30m.`);
    return isNegative ? -ms : ms;
  }

  #only(node: Node): Node {
    const [inner] = expressionsIn(node);
    if (inner === undefined) throw this.#unsupported(node);
    return inner;
  }

  #name(node: Node): string {
    const text = this.#textOf(node);
    return /^["'`]/.test(text) ? stringOf(text) : text;
  }

  #textOf(node: Node): string {
    return this.#text.slice(node.from, node.to);
  }

  #unsupported(node: Node): Unsupported {
    const text = this.#textOf(node);
    const shown = text.length > 40 ? `${text.slice(0, 40)}…` : text;
    const instead = INSTEAD.get(text.toLowerCase());
    return new Unsupported(
      `${shown} is not supported. ${instead === undefined ? '' : `${instead} `}${SUPPORTED}`,
    );
  }
}

export function isComparison(operator: Operator): boolean {
  return OPERATORS.indexOf(operator) >= OPERATORS.indexOf('==');
}

function equals(label: string, text: string): Matcher {
  return { label, passes: (sent) => sent === text, isPattern: false, only: text };
}

/** The names of `a|b|(c|d)` where it is no more than that; null for any other expression. */
function alternativesOf(pattern: string): ReadonlySet<string> | null {
  const [, inner = pattern] = /^\(([^()]*)\)$/.exec(pattern) ?? [];
  const isPlain = /^(?:[^\\.+*?()[\]{}^$|]|\\[\\.+*?()[\]{}^$|/-]|\|)*$/.test(inner);
  if (!isPlain) return null;
  // An escaped bar is no end of a name.
  const names = inner.match(/(?:[^\\|]|\\.)+|(?<=^|\|)(?=\||$)/gs) ?? [''];
  return new Set(names.map((name) => name.replace(/\\(.)/gs, '$1')));
}

const REPETITION = /\{(\d{1,4})(?:,(\d{0,4}))?\}/y;

/**
 * How many instructions the program of a regular expression has, estimated from its text: one for each character, escape, class and
 * operator, and two for a group, as often as they are repeated.
 */
export function estimatedInstructions(pattern: string): number {
  const outer: number[] = [];
  // Instructions of the group around this place, and of the last part of it, which a repetition repeats.
  let [sum, last] = [0, 0];
  for (let at = 0, end = 0; at < pattern.length; at = end) {
    REPETITION.lastIndex = at;
    const [repetition, least, most] = REPETITION.exec(pattern) ?? [];
    end = repetition === undefined ? partEnd(pattern, at) : at + repetition.length;
    const part = pattern.slice(at, end);
    if (part === '(') {
      outer.push(sum);
      [sum, last] = [0, 0];
    } else if (part === ')') {
      last = sum + 2;
      sum = last + (outer.pop() ?? 0);
    } else if (repetition !== undefined) {
      const more = Math.max(Number(least), Number(most ?? 0), 1) - 1;
      sum += last * more;
      last += last * more;
    } else {
      last = '?*+'.includes(part) ? last + 1 : 1;
      sum += part.startsWith('\\Q') ? part.length : 1;
    }
  }
  return outer.reduce((all, one) => all + one, sum);
}

/** The end of a quotation, an escape, a class or a character. */
function partEnd(pattern: string, at: number): number {
  const after = (text: string, from: number): number => {
    const found = pattern.indexOf(text, from);
    return found < 0 ? pattern.length : found + text.length;
  };
  if (pattern.startsWith('\\Q', at)) return after('\\E', at + 2);
  if (pattern[at] === '\\') return /^[pPx]\{/.test(pattern.slice(at + 1, at + 3)) ? after('}', at) : at + 2;
  if (pattern[at] !== '[') return at + 1;
  let end = at + (pattern[at + 1] === '^' ? 2 : 1);
  // The first bracket of a class is a character of it.
  if (pattern[end] === ']') end += 1;
  while (end < pattern.length && pattern[end] !== ']')
    if (pattern.startsWith('[:', end)) end = after(':]', end);
    else end += pattern[end] === '\\' ? 2 : 1;
  return end + 1;
}

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: SECOND_MS,
  m: MINUTE_MS,
  h: HOUR_MS,
  d: DAY_MS,
  w: 7 * DAY_MS,
  y: 365 * DAY_MS,
};
/** No time is further away. */
const LONGEST_MS = 100 * 365 * DAY_MS;
const LONGEST_DURATION = 100;

/** A duration of Prometheus (`1h30m`), or a number of seconds, in milliseconds; null where it is none. */
export function durationOf(text: string): number | null {
  if (text.length > LONGEST_DURATION) return null;
  if (/^(?:\d+(?:ms|[smhdwy]))+$/.test(text)) {
    const parts = text.match(/\d+|\D+/g) ?? [];
    let sum = 0;
    for (let at = 0; at < parts.length; at += 2) sum += Number(parts[at]) * (UNITS[parts[at + 1] ?? ''] ?? 0);
    return Math.min(sum, LONGEST_MS);
  }
  const seconds = /^[\d.]+(?:e[+-]?\d+)?$/i.test(text) ? Number(text) : Number.NaN;
  return Number.isNaN(seconds) ? null : Math.min(Math.round(seconds * SECOND_MS), LONGEST_MS);
}

function numberOf(signed: string): number {
  if (!/^[+-]/.test(signed)) return magnitudeOf(signed);
  const magnitude = magnitudeOf(signed.slice(1).trim());
  return signed.startsWith('-') ? -magnitude : magnitude;
}

function magnitudeOf(text: string): number {
  if (/^inf$/i.test(text)) return Number.POSITIVE_INFINITY;
  if (/^nan$/i.test(text)) return Number.NaN;
  const number = Number(text.replaceAll('_', ''));
  if (!Number.isNaN(number)) return number;
  const ms = durationOf(text);
  if (ms === null) throw new Unsupported(`${JSON.stringify(text)} must be a number.`);
  return ms / SECOND_MS;
}

const ESCAPES: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};

/** A string as it is written: in back quotes as it is, in other ones with the escapes of Go. */
function stringOf(written: string): string {
  const inner = written.slice(1, -1);
  if (written.startsWith('`')) return inner;
  return inner.replace(
    /\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([0-7]{3})|(.))/gis,
    (whole: string, ...[x, u, long, octal, one]: (string | undefined)[]) => {
      const hex = x ?? u ?? long;
      const code =
        hex !== undefined ? Number.parseInt(hex, 16) : octal !== undefined ? Number.parseInt(octal, 8) : null;
      if (code !== null) return code <= 0x10_ffff ? String.fromCodePoint(code) : whole;
      return ESCAPES[one ?? ''] ?? one ?? whole;
    },
  );
}

function children(node: Node): Node[] {
  const found: Node[] = [];
  for (let one = node.firstChild; one !== null; one = one.nextSibling)
    if (one.name !== 'LineComment') found.push(one);
  return found;
}

function child(node: Node, name: string): Node | undefined {
  return children(node).find((one) => one.name === name);
}

/** The children that are expressions: those whose names the grammar ends so, and literals. */
function expressionsIn(node: Node): Node[] {
  return children(node).filter(
    ({ name }) =>
      /(?:Expr|Selector|Literal|Call)$/.test(name) &&
      !/Duration(?:Expr)$/.test(name) &&
      name !== 'OffsetDurationExpr',
  );
}
