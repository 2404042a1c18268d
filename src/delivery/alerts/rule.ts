/**
 * The rule of an alert, as it is typed: JSON of one of four kinds. A threshold compares a count or a statistic, a ratio compares two of
 * them, `absent` waits for nothing, and `unusual` compares a quarter-hour with those of earlier weeks.
 */
import { nearest } from '../../base/did-you-mean.ts';
import { type MeasureStat, STATS } from '../../base/measures.ts';
import { spellPath } from '../../base/path-text.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS, QUARTER_HOUR_MS } from '../../base/time-units.ts';
import { WrongField } from '../../errors.ts';
import { fieldFilterOf } from '../../read/filter/counted-values.ts';
import { type Condition, parseFilter, parsePath } from '../../read/filter/parse-filter.ts';
import type { FieldFilter } from '../../storage/fields/field-scope.ts';

export type Measure = 'count' | MeasureStat;
export const MEASURES: readonly Measure[] = ['count', ...STATS, 'distinct'];

export interface Measured {
  readonly of: Measure;
  /** Path of the numbers, or of the different values; null: events are counted. */
  readonly field: readonly string[] | null;
  /** Name of an event type; null: all. */
  readonly type: string | null;
  readonly filter: FieldFilter | null;
}

interface Common {
  /** As it was typed. */
  readonly source: Fields;
  /** Path of the declared field whose values are judged apart; null: all events together. */
  readonly by: readonly string[] | null;
  readonly windowMs: number;
  /** For so long the condition must hold at each minute before it fires. */
  readonly forMs: number;
  /** A minute is judged so much later: for producers whose events arrive late. */
  readonly delayMs: number;
}

/** Which side of the threshold fires. */
export interface Threshold {
  readonly side: 'above' | 'below';
  readonly threshold: number;
}

export type Rule = Common &
  (
    | ({ readonly kind: 'threshold'; readonly measured: Measured } & Threshold)
    | ({ readonly kind: 'ratio'; readonly measured: Measured; readonly to: Measured } & Threshold)
    | { readonly kind: 'absent'; readonly measured: Measured }
    | { readonly kind: 'unusual'; readonly measured: Measured; readonly deviations: number }
  );

export interface RuleProblem {
  /** Path of the field in the rule, such as `ratio.type`; empty: the rule itself. */
  readonly field: string;
  /** Worded to follow the field's name, without a stop. */
  readonly problem: string;
}

const UNITS: Readonly<Record<string, number>> = { m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };
export const LONGEST_WINDOW_MS = 7 * DAY_MS;
export const LONGEST_FOR_MS = DAY_MS;
export const LONGEST_DELAY_MS = DAY_MS;
/** A statistic is worked out for each minute of `for`. */
export const LONGEST_FOR_OF_STATISTIC_MS = 4 * HOUR_MS;
/** Deviations from the median that are unusual where the rule does not say. */
const DEVIATIONS = 5;
const LONGEST_RULE = 4_000;
const NUMBERS: ReadonlySet<string> = new Set(MEASURES.filter((name) => name !== 'count'));

const MEASURED_KEYS = ['of', 'field', 'type', 'filter'] as const;
const KEYS = {
  threshold: [...MEASURED_KEYS, 'by', 'window', 'above', 'below', 'for', 'delay'],
  ratio: ['ratio', 'to', 'by', 'window', 'above', 'below', 'for', 'delay'],
  absent: ['absent', 'type', 'filter', 'by', 'window', 'for', 'delay'],
  unusual: ['unusual', ...MEASURED_KEYS, 'window', 'deviations', 'for', 'delay'],
} as const;

/** Reads a rule. @returns the problem with the first field that is wrong */
export function parseRule(text: string): Rule | RuleProblem {
  if (text.length > LONGEST_RULE)
    return { field: '', problem: `must have at most ${LONGEST_RULE} characters` };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { field: '', problem: `must be JSON such as {"of":"count","window":"5m","above":100}: ${reason}` };
  }
  try {
    return ruleOf(objectOf(value, ''));
  } catch (error) {
    // It leaves the parser from any depth.
    if (error instanceof WrongField) return { field: error.field, problem: error.problem };
    throw error;
  }
}

/** The rule of one of the values that a rule judges apart. @param series as JSON; empty: all events together */
export function ruleOfSeries(rule: Rule, series: string): Rule {
  if (rule.by === null || series === '') return rule;
  const { by: _, ...fields } = rule.source;
  const filter = `${spellPath(rule.by)}==${series}`;
  const part = (name: 'ratio' | 'to'): Fields => ({ ...objectOf(fields[name], name), filter });
  return ruleOf(
    rule.kind === 'ratio' ? { ...fields, ratio: part('ratio'), to: part('to') } : { ...fields, filter },
  );
}

/** What a rule measures: of a ratio both of its parts. */
export function partsOf(rule: Rule): readonly Measured[] {
  return rule.kind === 'ratio' ? [rule.measured, rule.to] : [rule.measured];
}

/** Whether a rule fires on values that are low: those that have no events, too. */
export function firesBelow(rule: Rule): boolean {
  return rule.kind === 'absent' || ('side' in rule && rule.side === 'below');
}

export function isRuleProblem(rule: Rule | RuleProblem): rule is RuleProblem {
  return 'problem' in rule;
}

/** The problem as one clause. */
export function ruleProblemText({ field, problem }: RuleProblem): string {
  return field === '' ? `the rule ${problem}` : `the field ${JSON.stringify(field)} of the rule ${problem}`;
}

type Fields = Readonly<Record<string, unknown>>;

function objectOf(value: unknown, field: string): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new WrongField(field, 'must be an object such as {"of":"count","window":"5m","above":100}');
  return value as Fields;
}

function ruleOf(fields: Fields): Rule {
  const kind = (['absent', 'unusual', 'ratio'] as const).find((name) => name in fields) ?? 'threshold';
  checkKeys(fields, KEYS[kind], '');
  if (kind === 'absent' || kind === 'unusual') {
    if (fields[kind] !== true) throw new WrongField(kind, 'must be true');
  }
  const by = fields.by === undefined ? null : pathOf(fields.by, 'by');
  const forMs = fields.for === undefined ? 0 : duration(fields.for, 'for', LONGEST_FOR_MS);
  const delayMs = fields.delay === undefined ? 0 : duration(fields.delay, 'delay', LONGEST_DELAY_MS);
  if (kind === 'unusual') return unusual(fields, forMs, delayMs);
  const common = {
    source: fields,
    by,
    forMs,
    delayMs,
    windowMs: duration(fields.window, 'window', LONGEST_WINDOW_MS),
  };
  if (kind === 'absent') {
    return checkRead({
      kind,
      ...common,
      measured: measuredOf({ type: fields.type, filter: fields.filter }, ''),
    });
  }
  if (kind === 'threshold') {
    if (fields.of === undefined)
      throw new WrongField(
        'of',
        `is missing: it must be one of ${MEASURES.join(', ')}; or use absent, ratio or unusual`,
      );
    return checkRead({ kind, ...common, measured: measuredOf(fields, ''), ...thresholdOf(fields) });
  }
  const part = (name: 'ratio' | 'to'): Measured => {
    const inner = objectOf(fields[name], name);
    checkKeys(inner, MEASURED_KEYS, name);
    return measuredOf({ of: 'count', ...inner }, name);
  };
  return checkRead({ kind, ...common, measured: part('ratio'), to: part('to'), ...thresholdOf(fields) });
}

function unusual(fields: Fields, forMs: number, delayMs: number): Rule {
  if (fields.window !== undefined && fields.window !== '15m')
    throw new WrongField('window', 'must be "15m" or absent: quarter-hours are compared');
  const { deviations = DEVIATIONS } = fields;
  if (typeof deviations !== 'number' || !(deviations >= 1 && deviations <= 1_000))
    throw new WrongField('deviations', 'must be a number from 1 to 1000');
  const measured = measuredOf({ of: 'count', ...fields }, '');
  const common = { source: fields, by: null, windowMs: QUARTER_HOUR_MS, forMs, delayMs };
  return checkRead({ kind: 'unusual', ...common, measured, deviations });
}

/** Counts of two fields together are not kept, and what a statistic takes grows with its minutes. */
function checkRead(rule: Rule): Rule {
  const { by, forMs } = rule;
  const parts = partsOf(rule);
  if (forMs > LONGEST_FOR_OF_STATISTIC_MS && parts.some(({ of }) => of !== 'count'))
    throw new WrongField(
      'for',
      `must be at most ${spellDuration(LONGEST_FOR_OF_STATISTIC_MS)} of a statistic, which is worked out for each of its minutes`,
    );
  if (by !== null && parts.some(({ filter }) => filter !== null))
    throw new WrongField('filter', 'cannot be combined with by');
  return rule;
}

function measuredOf(fields: Fields, within: string): Measured {
  const at = (name: string): string => (within === '' ? name : `${within}.${name}`);
  const { of = 'count', field, type, filter } = fields;
  if (typeof of !== 'string' || !isMeasure(of)) {
    const meant = typeof of === 'string' ? nearest(of, MEASURES) : null;
    throw new WrongField(at('of'), `must be one of ${MEASURES.join(', ')}${didYouMean(meant)}`);
  }
  if (NUMBERS.has(of) && field === undefined)
    throw new WrongField(
      at('field'),
      `is missing: it is the path of the declared field whose ${of} is meant`,
    );
  if (of === 'count' && field !== undefined)
    throw new WrongField(
      at('field'),
      'cannot be combined with "of":"count", which counts events: use filter',
    );
  if (type !== undefined && (typeof type !== 'string' || type === ''))
    throw new WrongField(at('type'), 'must be the name of an event type');
  return {
    of,
    field: field === undefined ? null : pathOf(field, at('field')),
    type: type ?? null,
    filter: filter === undefined ? null : filterOf(filter, at('filter')),
  };
}

/** A rule in words, such as `count of "error" in 5m above 100, for 2m`. */
export function describeRule(rule: Rule): string {
  const fields = rule.source as Readonly<Record<string, object>>; // As parseRule has read it.
  const measured = (part: Readonly<Record<string, unknown>>, of: string): string =>
    [
      part.of === undefined || part.of === 'count' ? of : `${part.of} of ${part.field} of`,
      part.type === undefined ? 'events' : JSON.stringify(part.type),
      ...(part.filter === undefined ? [] : [`with ${[part.filter].join('')}`]),
    ]
      .filter(Boolean)
      .join(' ');
  const by = fields.by === undefined ? '' : ` of each ${fields.by}`;
  const late = rule.delayMs === 0 ? '' : `, judged ${spellDuration(rule.delayMs)} later`;
  const holds = `${rule.forMs === 0 ? '' : `, for ${spellDuration(rule.forMs)}`}${late}`;
  const within = `in ${spellDuration(rule.windowMs)}`;
  switch (rule.kind) {
    case 'absent':
      return `no ${measured(fields, '')}${by} ${within}${holds}`;
    case 'unusual':
      return `unusual ${measured(fields, 'count of')} ${within}${holds}`;
    case 'ratio':
      return `${measured({ ...fields.ratio }, 'count of')} / ${measured({ ...fields.to }, 'count of')}${by} ${within} ${rule.side} ${rule.threshold}${holds}`;
    case 'threshold':
      return `${measured(fields, 'count of')}${by} ${within} ${rule.side} ${rule.threshold}${holds}`;
  }
}

function isMeasure(text: string): text is Measure {
  return (MEASURES as readonly string[]).includes(text);
}

function filterOf(value: unknown, field: string): FieldFilter {
  const [text, ...others] = Array.isArray(value) ? value : [value];
  if (typeof text !== 'string') throw new WrongField(field, 'must be a condition such as "status:500"');
  if (others.length > 0)
    throw new WrongField(field, 'must be one condition: counts of two fields together are not kept');
  const condition: Condition | { readonly column: number; readonly problem: string } = parseFilter(text);
  if ('problem' in condition)
    throw new WrongField(field, `is wrong at column ${condition.column}: ${condition.problem}`);
  const filter = fieldFilterOf({ filter: [condition] });
  if (filter === null)
    throw new WrongField(
      field,
      'must be that a declared field has one of some values, such as "status:500,502"',
    );
  return filter;
}

function pathOf(value: unknown, field: string): readonly string[] {
  if (typeof value !== 'string') throw new WrongField(field, 'must be a path such as "order.country"');
  const path = parsePath(value);
  if ('problem' in path) throw new WrongField(field, `is wrong at column ${path.column}: ${path.problem}`);
  return path;
}

function duration(value: unknown, field: string, longest: number): number {
  if (value === undefined) throw new WrongField(field, 'is missing: write a duration such as "5m"');
  const [, count, unit = ''] = (typeof value === 'string' && /^(\d{1,5})([mhd])$/.exec(value)) || [];
  const ms = Number(count) * (UNITS[unit] ?? Number.NaN);
  const mayBeNone = field === 'for' || field === 'delay';
  if (Number.isNaN(ms) || (ms === 0 && !mayBeNone))
    throw new WrongField(field, 'must be whole minutes, hours or days, such as "5m", "2h" or "1d"');
  if (ms > longest) throw new WrongField(field, `must be at most ${longest / DAY_MS} days`);
  return ms;
}

function thresholdOf({ above, below }: Fields): Threshold {
  if ((above === undefined) === (below === undefined))
    throw new WrongField(
      above === undefined ? 'above' : 'below',
      above === undefined ? 'or below is missing' : 'cannot be combined with above',
    );
  const [side, threshold] = above === undefined ? (['below', below] as const) : (['above', above] as const);
  if (typeof threshold !== 'number' || !Number.isFinite(threshold))
    throw new WrongField(side, 'must be a number');
  return { side, threshold };
}

function checkKeys(fields: Fields, known: readonly string[], within: string): void {
  for (const name of Object.keys(fields)) {
    if (known.includes(name)) continue;
    const meant = nearest(name, known);
    const advice = meant === null ? `: it may have ${known.join(', ')}` : didYouMean(meant);
    throw new WrongField(within === '' ? name : `${within}.${name}`, `is not known here${advice}`);
  }
}

function didYouMean(meant: string | null): string {
  return meant === null ? '' : `: did you mean ${JSON.stringify(meant)}?`;
}

/** A duration as rules spell it. */
export function spellDuration(ms: number): string {
  if (ms > 0 && ms % DAY_MS === 0) return `${ms / DAY_MS}d`;
  return ms > 0 && ms % HOUR_MS === 0 ? `${ms / HOUR_MS}h` : `${ms / MINUTE_MS}m`;
}
