/** Reads Prometheus' text format (version 0.0.4) as strictly as the format is described. */

export interface ExposedSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export interface Family {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly samples: readonly ExposedSample[];
}

const HEADER = /^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$/;
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/y;

export class Exposition {
  readonly families: readonly Family[];

  /** @throws where a line, or what the lines say together, is not allowed */
  constructor(text: string) {
    if (!text.endsWith('\n')) throw new Error('The last line has no end.');
    const families: (Family & { samples: ExposedSample[] })[] = [];
    const seen = new Set<string>();
    let help: readonly [name: string, text: string] | null = null;
    for (const line of text.split('\n')) {
      if (line === '') continue;
      const [, kind, name = '', rest = ''] = HEADER.exec(line) ?? [];
      if (kind === 'HELP') help = [name, rest];
      else if (kind === 'TYPE') {
        if (help?.[0] !== name) throw new Error(`${name} has no HELP before its TYPE.`);
        if (families.some((family) => family.name === name)) throw new Error(`${name} comes twice.`);
        families.push({ name, help: help[1], type: parseType(rest), samples: [] });
      } else {
        const family = families.at(-1);
        const sample = parseSample(line);
        if (family === undefined || !belongs(sample.name, family)) throw new Error(`Out of place: ${line}`);
        if (seen.has(key(sample))) throw new Error(`Twice: ${line}`);
        seen.add(key(sample));
        family.samples.push(sample);
      }
    }
    this.families = families;
    for (const family of families) check(family);
  }

  /** The value of the one sample of this name with exactly these labels; undefined where there is none. */
  find(name: string, labels: Readonly<Record<string, string>> = {}): number | undefined {
    const wanted = key({ name, labels });
    return this.families.flatMap(({ samples }) => samples).find((sample) => key(sample) === wanted)?.value;
  }

  /** The same, which must be there. */
  value(name: string, labels: Readonly<Record<string, string>> = {}): number {
    const value = this.find(name, labels);
    if (value === undefined) throw new Error(`There is no ${key({ name, labels })}.`);
    return value;
  }

  /** Every sample of this name that is not zero, by the values of its labels joined with blanks. */
  nonZero(name: string): Readonly<Record<string, number>> {
    const samples = this.families
      .flatMap((family) => family.samples)
      .filter((sample) => sample.name === name && sample.value !== 0);
    return Object.fromEntries(samples.map(({ labels, value }) => [Object.values(labels).join(' '), value]));
  }
}

function parseType(text: string): Family['type'] {
  if (text === 'counter' || text === 'gauge' || text === 'histogram') return text;
  throw new Error(`No type of ours: ${text}`);
}

function parseSample(line: string): ExposedSample {
  const [, name = '', labelText = '', valueText = ''] = SAMPLE.exec(line) ?? [];
  if (name === '') throw new Error(`Not a sample: ${line}`);
  const labels: Record<string, string> = {};
  LABEL.lastIndex = 0;
  while (LABEL.lastIndex < labelText.length) {
    const [, label = '', value = ''] = LABEL.exec(labelText) ?? [];
    if (label === '' || label in labels) throw new Error(`Bad labels: ${line}`);
    labels[label] = value.replace(/\\(.)/g, (_, escaped) => (escaped === 'n' ? '\n' : escaped));
  }
  const value = Number(valueText);
  if (Number.isNaN(value)) throw new Error(`No number: ${line}`);
  return { name, labels, value };
}

function belongs(name: string, family: Family): boolean {
  if (family.type !== 'histogram') return name === family.name;
  return ['_bucket', '_sum', '_count'].some((suffix) => name === family.name + suffix);
}

function key({ name, labels }: Pick<ExposedSample, 'name' | 'labels'>): string {
  return `${name}${JSON.stringify(Object.entries(labels).sort())}`;
}

function check({ name, type, samples }: Family): void {
  if ((type === 'counter') !== name.endsWith('_total')) throw new Error(`A ${type} is called ${name}.`);
  if (type !== 'gauge' && samples.some(({ value }) => value < 0)) throw new Error(`${name} is negative.`);
  if (type === 'histogram') checkHistogram(name, samples);
}

function checkHistogram(name: string, samples: readonly ExposedSample[]): void {
  const series = new Map<string, ExposedSample[]>();
  for (const sample of samples) {
    const members = series.get(seriesOf(sample)) ?? [];
    series.set(seriesOf(sample), [...members, sample]);
  }
  for (const [labels, members] of series) {
    const buckets = members.filter((sample) => sample.name === `${name}_bucket`);
    const bounds = buckets.map((sample) =>
      sample.labels.le === '+Inf' ? Infinity : Number(sample.labels.le),
    );
    const isAscending = (values: readonly number[], strictly: boolean): boolean =>
      values.every(
        (value, i) => i === 0 || value > (values[i - 1] ?? 0) || (!strictly && value === values[i - 1]),
      );
    const count = members.find((sample) => sample.name === `${name}_count`)?.value;
    if (!isAscending(bounds, true) || bounds.at(-1) !== Infinity) throw new Error(`${name}${labels}: bounds`);
    if (
      !isAscending(
        buckets.map(({ value }) => value),
        false,
      )
    )
      throw new Error(`${name}${labels}: counts`);
    if (count === undefined || count !== buckets.at(-1)?.value) throw new Error(`${name}${labels}: _count`);
    if (!members.some((sample) => sample.name === `${name}_sum`)) throw new Error(`${name}${labels}: _sum`);
  }
}

/** What tells one series of a histogram from another: all labels but the bound. */
function seriesOf({ labels }: ExposedSample): string {
  const { le: _, ...own } = labels;
  return JSON.stringify(Object.entries(own).sort());
}
