/** The values of an expression at each step: columns, which are computed for all steps at once. */

import {
  type Aggregation,
  type Expression,
  isComparison,
  type Operator,
  type Selector,
  Unsupported,
} from './parse.ts';

/** A label's value by its name. */
export type Labels = Readonly<Record<string, string>>;

/** A series. A step without a sample is null. */
export interface Series {
  readonly labels: Labels;
  readonly values: readonly (number | null)[];
}

/** What a selector is asked for. */
export interface Wanted {
  readonly selector: Selector;
  /** Whether types are summed in any case: then an app has one series, without the label `type`. */
  readonly ofAllTypes: boolean;
}

/** Values of all parts of an expression together, so that its time and its memory are bounded. */
export const MOST_COMPUTED = 2_000_000;

/** The selectors of an expression, in the order in which {@link evaluate} asks for them. */
export function selectorsOf(expression: Expression, ofAllTypes = false): readonly Wanted[] {
  switch (expression.kind) {
    case 'number':
      return [];
    case 'selector':
      return [{ selector: expression, ofAllTypes }];
    case 'aggregation':
      return selectorsOf(expression.from, sumsTypes(expression));
    case 'absent':
      return selectorsOf(expression.from);
    case 'operation':
      return [...selectorsOf(expression.left), ...selectorsOf(expression.right)];
  }
}

function sumsTypes({ of, by, labels, from }: Extract<Expression, { kind: 'aggregation' }>): boolean {
  return of === 'sum' && from.kind === 'selector' && labels.includes('type') !== by;
}

/** Values between two pauses: some 20 µs. */
const VALUES_AT_ONCE = 1_024;

/** Computes columns, and yields where it may pause: after a column, and after a step of many columns. */
type Computing<T> = Generator<undefined, T>;

/**
 * Computes an expression.
 * @param steps how many there are
 * @param read  the series of a selector
 * @returns series, or of a {@link isScalar | scalar} its value at each step
 * @throws {Unsupported} where there would be too many values, or the series of an operation do not fit together
 */
export function* evaluate(
  expression: Expression,
  steps: number,
  read: (selector: Selector) => readonly Series[],
): Computing<readonly Series[] | number> {
  let values = 0;
  const counted = (series: readonly Series[]): readonly Series[] => {
    values += series.length * steps;
    if (values > MOST_COMPUTED)
      throw new Unsupported(
        `The expression takes more than ${MOST_COMPUTED.toLocaleString('en-US')} values: choose fewer series, or a longer step.`,
      );
    return series;
  };
  function* of(one: Expression): Computing<readonly Series[] | number> {
    switch (one.kind) {
      case 'number':
        return one.value;
      case 'selector':
        return counted(read(one));
      case 'aggregation': {
        const from = yield* of(one.from);
        return typeof from === 'number' ? from : counted(yield* aggregate(one, from, steps));
      }
      case 'absent': {
        const from = yield* of(one.from);
        const series = typeof from === 'number' ? [] : from;
        const values = Array.from({ length: steps }, (_, step) =>
          typeof from === 'number' || series.some((other) => (other.values[step] ?? null) !== null)
            ? null
            : 1,
        );
        return counted([{ labels: one.labels, values }]);
      }
      case 'operation': {
        const result = yield* operate(one, yield* of(one.left), yield* of(one.right));
        return typeof result === 'number' ? result : counted(result);
      }
    }
  }
  return yield* of(expression);
}

function* operate(
  { of, isBool }: { readonly of: Operator; readonly isBool: boolean },
  left: readonly Series[] | number,
  right: readonly Series[] | number,
): Computing<readonly Series[] | number> {
  const compares = isComparison(of);
  const compute = COMPUTE[of];
  /** @param kept what a comparison that is true leaves */
  const resultOf = (a: number, b: number, kept: number): number | null => {
    const result = compute(a, b);
    if (!compares || isBool) return result;
    return result === 1 ? kept : null;
  };
  const labelsOf = ({ labels }: Series): Labels => (compares && !isBool ? labels : withoutName(labels));
  function* each(series: readonly Series[], result: (value: number) => number | null): Computing<Series[]> {
    const results: Series[] = [];
    for (const one of series) {
      const values = one.values.map((value) => (value === null ? null : result(value)));
      results.push({ labels: labelsOf(one), values });
      yield;
    }
    return results;
  }
  if (typeof left === 'number')
    return typeof right === 'number'
      ? compute(left, right)
      : yield* each(right, (value) => resultOf(left, value, value));
  if (typeof right === 'number') return yield* each(left, (value) => resultOf(value, right, value));
  const others = new Map(right.map((one) => [keyOf(withoutName(one.labels)), one]));
  if (
    others.size < right.length ||
    new Set(left.map(({ labels }) => keyOf(withoutName(labels)))).size < left.length
  )
    throw new Unsupported(
      'Several series of an operand have the same labels: an operation needs one on each side.',
    );
  const results: Series[] = [];
  for (const one of left) {
    const other = others.get(keyOf(withoutName(one.labels)));
    if (other === undefined) continue;
    const values = one.values.map((value, step) => {
      const second = other.values[step] ?? null;
      return value === null || second === null ? null : resultOf(value, second, value);
    });
    results.push({ labels: labelsOf(one), values });
    yield;
  }
  return results;
}

const COMPUTE: Readonly<Record<Operator, (a: number, b: number) => number>> = {
  '+': (a, b) => a + b,
  '-': (a, b) => a - b,
  '*': (a, b) => a * b,
  '/': (a, b) => a / b,
  '%': (a, b) => a % b,
  '^': (a, b) => a ** b,
  '==': (a, b) => Number(a === b),
  '!=': (a, b) => Number(a !== b),
  '>': (a, b) => Number(a > b),
  '<': (a, b) => Number(a < b),
  '>=': (a, b) => Number(a >= b),
  '<=': (a, b) => Number(a <= b),
};

function* aggregate(
  { of, by, labels, k }: Extract<Expression, { kind: 'aggregation' }>,
  series: readonly Series[],
  steps: number,
): Computing<readonly Series[]> {
  const groups = new Map<string, { readonly labels: Labels; readonly members: Series[] }>();
  for (const one of series) {
    const own = Object.entries(one.labels).filter(
      ([name]) => labels.includes(name) === by && (by || name !== '__name__'),
    );
    const group = Object.fromEntries(own);
    const key = keyOf(group);
    const known = groups.get(key);
    if (known === undefined) groups.set(key, { labels: group, members: [one] });
    else known.members.push(one);
  }
  const results: Series[] = [];
  for (const { labels: own, members } of groups.values()) {
    if (of === 'topk' || of === 'bottomk') {
      results.push(...(yield* largest(members, k, of === 'topk', steps)));
      continue;
    }
    const values: (number | null)[] = [];
    const atOnce = Math.max(1, Math.floor(VALUES_AT_ONCE / members.length));
    for (let step = 0; step < steps; step += 1) {
      values.push(together(of, members, step));
      if (step % atOnce === 0) yield;
    }
    results.push({ labels: own, values });
  }
  return results;
}

function together(
  of: Exclude<Aggregation, 'topk' | 'bottomk'>,
  members: readonly Series[],
  step: number,
): number | null {
  let count = 0;
  let sum = 0;
  let least = Number.NaN;
  let most = Number.NaN;
  for (const { values } of members) {
    const value = values[step] ?? null;
    if (value === null) continue;
    count += 1;
    sum += value;
    // What is no number counts only where nothing else is.
    if (Number.isNaN(least) || value < least) least = value;
    if (Number.isNaN(most) || value > most) most = value;
  }
  if (count === 0) return null;
  switch (of) {
    case 'sum':
      return sum;
    case 'count':
      return count;
    case 'avg':
      return sum / count;
    case 'min':
      return least;
    case 'max':
      return most;
  }
}

/** The series with the largest values at each step, those of the earlier ones among equals. */
function* largest(
  members: readonly Series[],
  k: number,
  isTop: boolean,
  steps: number,
): Computing<readonly Series[]> {
  const kept = members.map(() => new Array<number | null>(steps).fill(null));
  const sign = isTop ? -1 : 1;
  for (let step = 0; step < steps; step += 1) {
    const present = members.flatMap(({ values }, index) => {
      const value = values[step] ?? null;
      return value === null ? [] : [{ index, value }];
    });
    // What is no number comes last.
    present.sort(
      (a, b) =>
        Number(Number.isNaN(a.value)) - Number(Number.isNaN(b.value)) || sign * (a.value - b.value) || 0,
    );
    for (const { index, value } of present.slice(0, k)) {
      const own = kept[index];
      if (own !== undefined) own[step] = value;
    }
    yield;
  }
  return members.map(({ labels }, index) => ({ labels, values: kept[index] ?? [] }));
}

/** What is left of labels where the metric is no more what its name says. */
export function withoutName({ __name__: _, ...labels }: Labels): Labels {
  return labels;
}

/** Equal for the same labels. */
function keyOf(labels: Labels): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
}
