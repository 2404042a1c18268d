/** The question of a query: a body in JSON, whose fields are those of a series where they have the same name. */

import { nearest } from '../../base/did-you-mean.ts';
import { STATS } from '../../base/measures.ts';
import { endsBefore } from '../../base/ranges.ts';
import { invalidField, Rejection } from '../../errors.ts';
import { objectOf } from '../../http/operation.ts';
import { Invalid, type Parameter, type Schema } from '../../http/query.ts';
import { scanDocument } from '../../json/mistake.ts';
import { JsonScan } from '../../json/scan.ts';
import type { WidthName } from '../../storage/counts/buckets.ts';
import type { Measure } from '../../storage/fields/event-groups.ts';
import type { Stat } from '../charts/number-stats.ts';
import { INTERVALS, type IntervalName, widthOf } from '../charts/series-rows.ts';
import { FILTER } from '../filter/filter-query.ts';
import { type Condition, parsePath } from '../filter/parse-filter.ts';
import { EXCEPT_TYPES, MAX_EXCEPT_TYPES, MAX_TYPES, SCOPE, timezone } from '../scope-query.ts';

export const MAX_BY = 3;
const MAX_STATS = 20;
export const MAX_GROUPS = 10_000;
const DEFAULT_GROUPS = 100;
/** Rows of an answer: each group has one for each bucket. */
export const MAX_ROWS = 100_000;

/** A path with its spelling in the question. */
export interface AskedPath {
  readonly sent: string;
  readonly path: readonly string[];
}

/** A statistic that is asked for. */
export interface AskedMeasure extends Measure {
  /** The spelling of the path. */
  readonly sent: string;
  readonly stats: readonly Stat[];
}

export interface QueryBody {
  readonly filter: readonly Condition[];
  readonly q: string | null;
  readonly word: string | null;
  readonly by: readonly AskedPath[];
  /** Beside the number of events. Each path has at most one of numbers and one of different values. */
  readonly measures: readonly AskedMeasure[];
  readonly from: number | null;
  readonly to: number | null;
  /** Null: not by bucket. */
  readonly buckets: 'auto' | WidthName | null;
  readonly timezone: string;
  readonly limit: number;
  readonly typeId: readonly string[];
  readonly typeName: readonly string[];
  readonly exceptTypeId: readonly string[];
  readonly hidden: 'include' | 'exclude';
}

const TEXTS = (description: string, most: number): Schema => ({
  description,
  type: ['string', 'array'],
  items: { type: 'string' },
  maxItems: most,
});
const OF_WORDS = [...STATS, 'distinct', 'count'] as const;

export const QUERY_BODY = objectOf(
  {
    filter: TEXTS(`${FILTER.filter.description} A text, or a list of which all must be met.`, 20),
    q: { type: 'string', description: FILTER.q.description },
    word: { type: 'string', description: FILTER.word.description },
    by: {
      ...TEXTS('The paths by whose values events are counted apart. They need not be declared.', MAX_BY),
      examples: [['country', 'plan']],
    },
    stats: {
      type: 'array',
      maxItems: MAX_STATS,
      items: {
        anyOf: [
          { const: 'count' },
          objectOf({ of: { type: 'string' }, stat: { type: 'string', enum: OF_WORDS } }),
        ],
      },
      description:
        'What each group has: `"count"`, its events, which it always has; or a statistic of a path. Absent: `["count"]`.',
      examples: [['count', { of: 'amount', stat: 'sum' }]],
    },
    from: { type: 'string', description: SCOPE.from.description },
    to: { type: 'string', description: SCOPE.to.description },
    interval: {
      type: 'string',
      enum: INTERVALS,
      description: 'The width of buckets. Absent: each group is counted as a whole alone.',
    },
    timezone: { type: 'string', description: 'IANA time zone on whose clock buckets start. Absent: UTC.' },
    limit: {
      type: 'integer',
      minimum: 1,
      maximum: MAX_GROUPS,
      default: DEFAULT_GROUPS,
      description: 'Most groups: those with the most events. All other events are a group of their own.',
    },
    typeId: TEXTS(SCOPE.typeId.description, MAX_TYPES),
    typeName: TEXTS(SCOPE.typeName.description, MAX_TYPES),
    exceptTypeId: TEXTS(EXCEPT_TYPES.exceptTypeId.description, MAX_EXCEPT_TYPES),
    hidden: { type: 'string', enum: ['include', 'exclude'], description: EXCEPT_TYPES.hidden.description },
  },
  {
    title: 'Query',
    optional: [
      ...['filter', 'q', 'word', 'by', 'stats', 'from', 'to', 'interval', 'timezone', 'limit'],
      ...['typeId', 'typeName', 'exceptTypeId', 'hidden'],
    ],
  },
);

// An object's schema has properties.
const FIELDS = Object.keys(QUERY_BODY.properties as object);

/** @returns the question, or the refusal that names the field at fault and says what would work */
export function parseQueryBody(text: string): QueryBody | Rejection {
  const problem = text === '' ? null : scanDocument(new JsonScan(), text);
  if (problem !== null) return problem;
  const body: unknown = text === '' ? {} : JSON.parse(text);
  if (typeof body !== 'object' || body === null || Array.isArray(body))
    return new Rejection('invalidBody', 'The body must be a JSON object.');
  const sent = body as Readonly<Record<string, unknown>>; // Its values are looked at one by one.
  const unknown = Object.keys(sent).find((name) => !FIELDS.includes(name));
  if (unknown !== undefined) return notAField(unknown);
  try {
    return read(sent);
  } catch (error) {
    if (error instanceof WrongField) return invalidField(error.field, error.problem);
    throw error;
  }
}

function notAField(name: string): Rejection {
  const meant = nearest(name, FIELDS);
  const advice = meant === null ? `it has ${FIELDS.join(', ')}` : `did you mean ${meant}?`;
  return invalidField(name.slice(0, 64), `is not one of this route: ${advice}`);
}

/** Leaves the reading of a body from any depth; {@link parseQueryBody} returns it as a value. */
class WrongField {
  readonly field: string;
  readonly problem: string;

  constructor(field: string, problem: string) {
    this.field = field;
    this.problem = problem;
  }
}

function read(body: Readonly<Record<string, unknown>>): QueryBody {
  const by = pathsOf('by', body.by, MAX_BY);
  const query = {
    filter: converted('filter', FILTER.filter, textsOf('filter', body.filter, 20)),
    q: textOf('q', body.q, FILTER.q),
    word: textOf('word', body.word, FILTER.word),
    by,
    measures: measuresOf(body.stats),
    from: textOf('from', body.from, SCOPE.from),
    to: textOf('to', body.to, SCOPE.to),
    buckets: bucketsOf(body.interval),
    timezone: textOf('timezone', body.timezone, timezone('')) ?? 'UTC',
    limit: limitOf(body.limit),
    typeId: textsOf('typeId', body.typeId, MAX_TYPES),
    typeName: textsOf('typeName', body.typeName, MAX_TYPES),
    exceptTypeId: textsOf('exceptTypeId', body.exceptTypeId, MAX_EXCEPT_TYPES),
    hidden: hiddenOf(body.hidden),
  };
  const { from, to } = query;
  if (from !== null && to !== null && from >= to)
    throw new WrongField('from', `must be before to${endsBefore(from, to)}`);
  return query;
}

function converted<T>(field: string, { convert }: Parameter<T>, value: unknown): T {
  const made = convert(value);
  if (made instanceof Invalid) throw new WrongField(field, made.problem);
  return made;
}

function textOf<T>(field: string, value: unknown, parameter: Parameter<T | null>): T | null {
  if (value === undefined || value === null || value === '') return null;
  if (typeof value !== 'string') throw new WrongField(field, 'must be a text');
  const most = parameter.schema.maxLength;
  if (typeof most === 'number' && value.length > most) throw new WrongField(field, parameter.rule);
  return converted(field, parameter, value);
}

function textsOf(field: string, value: unknown, most: number): readonly string[] {
  if (value === undefined || value === null) return [];
  const list: unknown[] = Array.isArray(value) ? value : [value];
  const texts = list.filter((one): one is string => typeof one === 'string');
  if (texts.length < list.length) throw new WrongField(field, 'must be a text or a list of texts');
  if (texts.length > most) throw new WrongField(field, `must have at most ${most} texts`);
  return [...new Set(texts.filter((one) => one !== ''))];
}

function pathsOf(field: string, value: unknown, most: number): readonly AskedPath[] {
  const texts = textsOf(field, value, Number.POSITIVE_INFINITY);
  if (texts.length > most)
    throw new WrongField(field, `must have at most ${most} paths, and has ${texts.length}`);
  const paths = texts.map((sent) => ({ sent, path: pathOf(field, sent) }));
  const spelled = paths.map(({ path }) => JSON.stringify(path));
  if (new Set(spelled).size < spelled.length)
    throw new WrongField(field, 'must not have a path more than once');
  return paths;
}

function pathOf(field: string, sent: string): readonly string[] {
  const path = parsePath(sent);
  if (!('problem' in path)) return path;
  throw new WrongField(
    field,
    `must have paths such as order.country: ${JSON.stringify(sent.slice(0, 100))} is wrong at column ${path.column}: ${path.problem}`,
  );
}

function measuresOf(value: unknown): readonly AskedMeasure[] {
  if (value === undefined || value === null) return [];
  const list: unknown[] = Array.isArray(value) ? value : [value];
  if (list.length > MAX_STATS) throw new WrongField('stats', `must have at most ${MAX_STATS} statistics`);
  const measures = new Map<string, AskedMeasure>();
  for (const one of list) {
    if (one === 'count') continue;
    const { of, stat } = statisticOf(one);
    const path = pathOf('stats', of);
    const kind = stat === 'distinct' ? 'distinct' : 'number';
    const key = `${kind} ${of}`;
    measures.set(key, { sent: of, path, kind, stats: [...(measures.get(key)?.stats ?? []), stat] });
  }
  return [...measures.values()];
}

function statisticOf(value: unknown): { readonly of: string; readonly stat: Stat } {
  const wanted = `must have "count" and statistics such as {"of":"amount","stat":"sum"}, where stat is ${OF_WORDS.slice(0, -1).join(', ')} or ${OF_WORDS.at(-1)}`;
  if (typeof value !== 'object' || value === null) throw new WrongField('stats', wanted);
  const { of, stat } = value as { of?: unknown; stat?: unknown }; // Looked at below.
  const word = OF_WORDS.find((known) => known === stat);
  if (typeof of !== 'string' || word === undefined) throw new WrongField('stats', wanted);
  return { of, stat: word };
}

function bucketsOf(value: unknown): QueryBody['buckets'] {
  if (value === undefined || value === null || value === '') return null;
  const name = INTERVALS.find((known) => known === value);
  if (name === undefined)
    throw new WrongField('interval', `must be ${INTERVALS.slice(0, -1).join(', ')} or ${INTERVALS.at(-1)}`);
  return name === 'auto' ? name : widthOf(name as Exclude<IntervalName, 'auto'>);
}

function limitOf(value: unknown): number {
  if (value === undefined || value === null) return DEFAULT_GROUPS;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MAX_GROUPS) return value;
  throw new WrongField('limit', `must be a whole number from 1 to ${MAX_GROUPS}`);
}

function hiddenOf(value: unknown): 'include' | 'exclude' {
  if (value === undefined || value === null || value === 'include') return 'include';
  if (value === 'exclude') return value;
  throw new WrongField('hidden', 'must be include or exclude');
}
