/**
 * The metrics of one service, and the text format of Prometheus, version 0.0.4:
 * https://prometheus.io/docs/instrumenting/exposition_formats/. Components keep plain numbers and do not depend on this module,
 * which reads them at a scrape: an event adds to several, and none may cost it a microsecond.
 */
import { Histogram } from './histogram.ts';

export type Labels = Readonly<Record<string, string>>;

/** One value of a metric with labels. */
export interface Sample {
  readonly labels: Labels;
  readonly value: number;
}

export interface LabelledHistogram {
  readonly labels: Labels;
  readonly histogram: Histogram;
}

/** The current values of a metric: one number, or one per set of labels. */
export type Read = () => number | Iterable<Sample>;
export type ReadHistograms = () => Histogram | Iterable<LabelledHistogram>;

/** The exposition format's media type. */
export const EXPOSITION_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;
const NO_LABELS: Labels = {};

/**
 * Every method takes the metric's name, which ends with its unit as Prometheus recommends (`_seconds`, `_bytes`,
 * `_total`), and its HELP text. It throws if the name is taken or invalid.
 */
export class Metrics {
  readonly #labels: Labels;
  readonly #families = new Map<string, () => string>();

  /** @param labels of every sample: they identify this service */
  constructor(labels: Labels = {}) {
    this.#labels = labels;
  }

  /** A value that goes up and down. */
  gauge(name: string, help: string, read: Read): void {
    this.#add(name, 'gauge', help, () => this.#linesOf(name, read));
  }

  /** A value that only increases. */
  counter(name: string, help: string, read: Read): void {
    this.#add(name, 'counter', help, () => this.#linesOf(name, read));
  }

  histogram(name: string, help: string, read: ReadHistograms): void {
    this.#add(name, 'histogram', help, () => {
      const histograms = read();
      const labelled =
        histograms instanceof Histogram ? [{ labels: NO_LABELS, histogram: histograms }] : [...histograms];
      return labelled.map((one) => this.#linesOfHistogram(name, one)).join('');
    });
  }

  /** All metrics in Prometheus' text format. */
  text(): string {
    return [...this.#families.values()].map((family) => family()).join('\n');
  }

  #add(name: string, type: string, help: string, lines: () => string): void {
    if (!NAME.test(name)) throw new Error(`${name} is not a name of a metric.`);
    if (this.#families.has(name)) throw new Error(`There is a metric ${name} already.`);
    this.#families.set(name, () => headOf(name, type, help) + lines());
  }

  #linesOf(name: string, read: Read): string {
    const values = read();
    const samples = typeof values === 'number' ? [{ labels: NO_LABELS, value: values }] : values;
    let text = '';
    for (const { labels, value } of samples) text += lineOf(name, { ...labels, ...this.#labels }, value);
    return text;
  }

  #linesOfHistogram(name: string, { labels, histogram }: LabelledHistogram): string {
    const all = { ...labels, ...this.#labels };
    const buckets = histogram.buckets();
    return [
      ...buckets.map(({ bound, count }) =>
        lineOf(`${name}_bucket`, { ...all, le: numberText(bound) }, count),
      ),
      lineOf(`${name}_sum`, all, histogram.sum),
      lineOf(`${name}_count`, all, buckets.at(-1)?.count ?? 0),
    ].join('');
  }
}

/** The two lines before the samples of a metric. @param help of one line */
export function headOf(name: string, type: string, help: string): string {
  return `# HELP ${name} ${help.replaceAll('\\', '\\\\')}\n# TYPE ${name} ${type}\n`;
}

/** The line of a sample. */
export function lineOf(name: string, labels: Labels, value: number): string {
  let text = '';
  for (const label in labels) text += `${text === '' ? '{' : ','}${label}="${escaped(labels[label] ?? '')}"`;
  return `${name}${text === '' ? '' : `${text}}`} ${numberText(value)}\n`;
}

/** A text as it is in UTF-8: half of a surrogate pair becomes U+FFFD. */
export function wellFormed(text: string): string {
  return Buffer.from(text).toString();
}

function escaped(value: string): string {
  const text = wellFormed(value);
  return /[\\"\n]/.test(text) ? text.replace(/[\\"]/g, '\\$&').replaceAll('\n', '\\n') : text;
}

function numberText(value: number): string {
  if (Number.isFinite(value)) return String(value);
  return Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';
}
