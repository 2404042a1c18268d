/** Query parameters, each declared once: what validates a request is what the API's description shows. */
import { Ajv, type ValidateFunction } from 'ajv';
import { nearest } from '../base/did-you-mean.ts';
import { OWN_SCHEMAS } from '../base/own-schemas.ts';
import { Rejection } from '../errors.ts';

/** JSON Schema, 2020-12. */
export type Schema = Readonly<Record<string, unknown>>;

/** What is wrong with a value, worded to follow the parameter's name: "must be …". */
export class Invalid {
  readonly problem: string;

  constructor(problem: string) {
    this.problem = problem;
  }
}

/** A query parameter whose value becomes a `T`. */
export interface Parameter<T> {
  readonly description: string;
  /** Schema of the value: a text, a number, or an array of texts where the parameter may be given several times. */
  readonly schema: Schema;
  /** What a value must be, worded to follow the name. */
  readonly rule: string;
  readonly required?: boolean;
  /** Whether an empty value counts as absent; otherwise it is a value like any other. */
  readonly skipsEmpty?: boolean;
  /** @param value what the schema has found valid; undefined where the parameter is absent */
  readonly convert: (value: unknown) => T | Invalid;
}

export type Parameters = Readonly<Record<string, Parameter<unknown>>>;

/** What the parameters of a query become. */
export type Values<P extends Parameters> = {
  readonly [K in keyof P]: P[K] extends Parameter<infer T> ? T : never;
};

const ajv = new Ajv(OWN_SCHEMAS);

/** What other interfaces call a parameter, the contract's routes among them. */
const OTHER_NAMES: Readonly<Record<string, readonly string[]>> = {
  startDate: ['from'],
  start: ['from'],
  since: ['from', 'after'],
  endDate: ['to'],
  end: ['to'],
  until: ['to'],
  before: ['to'],
  offset: ['cursor'],
  page: ['cursor'],
  after: ['cursor'],
  sort: ['order'],
  query: ['q'],
  search: ['q'],
  tz: ['timezone'],
  bucket: ['interval'],
  groupBy: ['by'],
};

/** The parameters of a route's query. */
export class Query<P extends Parameters = Parameters> {
  readonly parameters: P;
  readonly #check: (values: never) => string | null;
  readonly #isValid: ReadonlyMap<string, ValidateFunction>;

  /** @param check what no parameter can say alone: a sentence about values that do not fit together, else null */
  constructor(parameters: P, check: (values: Values<P>) => string | null = () => null) {
    this.parameters = parameters;
    this.#check = check;
    this.#isValid = new Map(
      Object.entries(parameters).map(([name, { schema }]) => [name, ajv.compile(schema)]),
    );
  }

  /**
   * The refusal of a query with a parameter that the route does not have; null where it has none. For routes of our own alone:
   * the contract's ignore such parameters, and so do those of other protocols.
   */
  unknown(query: string): Rejection | null {
    if (query === '') return null;
    const known = Object.keys(this.parameters);
    const name = [...new URLSearchParams(query).keys()].find((sent) => !known.includes(sent));
    if (name === undefined) return null;
    const meant = OTHER_NAMES[name]?.find((other) => known.includes(other)) ?? nearest(name, known);
    const advice = meant === null ? knownOnes(known) : `did you mean ${meant}?`;
    const shown = name.length > LONGEST_SHOWN ? `${name.slice(0, LONGEST_SHOWN)}…` : name;
    return invalidParameters(`${shown} is not a parameter of this route: ${advice}`, shown);
  }

  /**
   * @param query as it was sent, percent-encoded, without the question mark. It is read as an HTML form's: `+` is a
   *              space, an escape that is none stands for itself, bytes that are no UTF-8 become U+FFFD.
   * @returns the values, or the refusal that names the first parameter at fault
   */
  parse(query: string): Values<P> | Rejection {
    const given = new URLSearchParams(query);
    const values: Record<string, unknown> = {};
    for (const [name, parameter] of Object.entries(this.parameters)) {
      const value = this.#read(name, parameter, given.getAll(name));
      if (value instanceof Rejection) return value;
      values[name] = value;
    }
    // Each of them was made by the parameter of its name.
    const read = values as Values<P>;
    const problem = this.#check(read as never);
    return problem === null ? read : invalidParameters(problem, firstOf(this.parameters, problem));
  }

  #read(name: string, parameter: Parameter<unknown>, given: readonly string[]): unknown {
    const { schema, required = false, skipsEmpty = false, rule, convert } = parameter;
    const isList = schema.type === 'array';
    if (!isList && given.length > 1) return invalidParameters(`${name} is given more than once.`, name);
    const [first, ...others] = skipsEmpty ? given.filter((sent) => sent !== '') : given;
    if (first === undefined && required) return invalidParameters(`${name} is missing.`, name);
    let value: unknown;
    if (first !== undefined) value = isList ? [...new Set([first, ...others])] : typed(schema, first);
    if (value !== undefined && this.#isValid.get(name)?.(value) !== true)
      return invalidParameters(`${name} ${rule}.`, name);
    const converted = convert(value);
    return converted instanceof Invalid
      ? invalidParameters(`${name} ${converted.problem}.`, name)
      : converted;
  }
}

/** A text as a value of the schema's type; left as it is where it is none. */
function typed({ type }: Schema, sent: string): unknown {
  // Digits alone: no sign, no exponent, no space. JSON has no Infinity.
  if (type === 'integer' && /^\d+$/.test(sent)) return Math.min(Number(sent), Number.MAX_VALUE);
  if (type === 'boolean' && (sent === 'true' || sent === 'false')) return sent === 'true';
  return sent;
}

/**
 * @param param  the parameter at fault, where it is one
 * @param fields of the body, beside those of every refusal
 */
export function invalidParameters(
  details: string,
  param?: string,
  fields?: Readonly<Record<string, unknown>>,
): Rejection {
  return new Rejection('invalidParameters', details, {
    ...(param !== undefined && { param }),
    ...(fields && { fields }),
  });
}

const LONGEST_SHOWN = 64;

function knownOnes(names: readonly string[]): string {
  return names.length === 0 ? 'it has none.' : `it has ${names.join(', ')}.`;
}

/** The parameter that a sentence about several begins with. */
function firstOf(parameters: Parameters, sentence: string): string | undefined {
  return Object.keys(parameters).find((name) => sentence.startsWith(`${name} `));
}

/** A whole number. @param options.largest what larger numbers are reduced to */
export function wholeNumber(
  description: string,
  options: { minimum: number; absent: number; maximum?: number; largest?: number },
): Parameter<number> {
  const { minimum, absent, maximum, largest = Number.POSITIVE_INFINITY } = options;
  const atMost = maximum === undefined ? '' : ` and at most ${maximum}`;
  return {
    description,
    schema: { type: 'integer', minimum, ...(maximum !== undefined && { maximum }), default: absent },
    rule: `must be a whole number of at least ${minimum}${atMost}`,
    convert: (value) => Math.min((value as number | undefined) ?? absent, largest),
  };
}

/** One of a few words. */
export function oneOf<const W extends string>(
  description: string,
  words: readonly W[],
  absent: NoInfer<W>,
): Parameter<W> {
  return {
    description,
    schema: { type: 'string', enum: words, default: absent },
    rule: `must be ${words.slice(0, -1).join(', ')} or ${words.at(-1)}`,
    // The schema lets no other through.
    convert: (value) => (value as W | undefined) ?? absent,
  };
}

/** `true` or `false`. */
export function flag(description: string): Parameter<boolean> {
  return {
    description,
    schema: { type: 'boolean', default: false },
    rule: 'must be true or false',
    convert: (value) => value === true,
  };
}

/** Texts, each once; empty ones count as absent. */
export function texts(
  description: string,
  options: { most: number; items?: Schema },
): Parameter<readonly string[]> {
  const { most, items = {} } = options;
  return {
    description,
    schema: { type: 'array', items: { type: 'string', ...items }, maxItems: most },
    rule: `may be given at most ${most} times`,
    skipsEmpty: true,
    convert: (value) => (value as readonly string[] | undefined) ?? [],
  };
}

/** A text that becomes something else; an empty one counts as absent. */
export function text<T>(
  description: string,
  options: { schema?: Schema; rule?: string; convert: (value: string) => T | Invalid },
): Parameter<T | null> {
  const { schema = {}, rule = 'must be a text', convert } = options;
  return {
    description,
    schema: { type: 'string', ...schema },
    rule,
    skipsEmpty: true,
    convert: (value) => (value === undefined ? null : convert(value as string)),
  };
}
