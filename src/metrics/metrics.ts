/**
 * The metrics of one service for Prometheus. Components keep plain numbers and do not depend on this module, which reads
 * them at a scrape. prom-client's own instruments take 0.2 to 0.9 µs per labeled observation, and an event would need
 * several.
 */
import * as prometheus from 'prom-client';
import { Histogram } from './histogram.ts';

export type Labels = Readonly<Record<string, string>>;

/** One value of a metric with labels. */
export interface Sample {
  readonly labels: Labels;
  readonly value: number;
}

/** A histogram with its labels. */
export interface LabelledHistogram {
  readonly labels: Labels;
  readonly histogram: Histogram;
}

/** The current values of a metric: one number, or one per set of labels. */
export type Read = () => number | Iterable<Sample>;
export type ReadHistograms = () => Histogram | Iterable<LabelledHistogram>;

/** The exposition format's media type. */
export const EXPOSITION_TYPE = prometheus.Registry.PROMETHEUS_CONTENT_TYPE;

/**
 * Every method takes the metric's name, which ends with its unit as Prometheus recommends (`_seconds`, `_bytes`,
 * `_total`), and its HELP text. It throws if the name is taken or invalid.
 */
export class Metrics {
  // Not prom-client's global one: several services may run in one process.
  readonly #registry = new prometheus.Registry();

  /** @param labels of every sample: they identify this service */
  constructor(labels: Labels = {}) {
    this.#registry.setDefaultLabels({ ...labels });
  }

  /** A value that goes up and down. @param labelNames of the samples, if `read` returns samples */
  gauge(name: string, help: string, read: Read, labelNames: readonly string[] = []): void {
    new prometheus.Gauge({
      name,
      help,
      labelNames: [...labelNames],
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const { labels, value } of samplesOf(read)) this.set(labels, value);
      },
    });
  }

  /** A value that only increases. @param labelNames of the samples, if `read` returns samples */
  counter(name: string, help: string, read: Read, labelNames: readonly string[] = []): void {
    new prometheus.Counter({
      name,
      help,
      labelNames: [...labelNames],
      registers: [this.#registry],
      collect() {
        this.reset();
        for (const { labels, value } of samplesOf(read)) this.inc(labels, value);
      },
    });
  }

  histogram(name: string, help: string, read: ReadHistograms): void {
    this.#registry.registerMetric(new ReadHistogram(name, help, read));
  }

  /** All metrics in Prometheus' text format. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }
}

const NO_LABELS: Labels = {};

function samplesOf(read: Read): Iterable<Sample> {
  const values = read();
  return typeof values === 'number' ? [{ labels: NO_LABELS, value: values }] : values;
}

/** One sample in the form that prom-client expects. */
interface Line {
  readonly metricName: string;
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

/** What prom-client's registry writes for a histogram. Its types have a number here, where its code has a text. */
const HISTOGRAM = 'histogram' as unknown as prometheus.MetricType;

/** prom-client's instruments keep their own counts and accept no others: this one returns ours at a scrape. */
class ReadHistogram extends prometheus.Summary {
  readonly #name: string;
  readonly #read: ReadHistograms;

  constructor(name: string, help: string, read: ReadHistograms) {
    super({ name, help, percentiles: [], registers: [] });
    this.#name = name;
    this.#read = read;
  }

  override async get(): ReturnType<prometheus.Summary['get']> {
    const read = this.#read();
    const histograms = read instanceof Histogram ? [{ labels: NO_LABELS, histogram: read }] : [...read];
    const values = histograms.flatMap(({ labels, histogram }) => lines(this.#name, labels, histogram));
    return { ...(await super.get()), type: HISTOGRAM, values };
  }
}

function lines(name: string, labels: Labels, histogram: Histogram): Line[] {
  const buckets = histogram.buckets();
  return [
    ...buckets.map(({ bound, count }) => ({
      metricName: `${name}_bucket`,
      labels: { ...labels, le: bound === Number.POSITIVE_INFINITY ? '+Inf' : bound },
      value: count,
    })),
    { metricName: `${name}_sum`, labels, value: histogram.sum },
    { metricName: `${name}_count`, labels, value: buckets.at(-1)?.count ?? 0 },
  ];
}
