/**
 * The figures of the process itself, under the names that Prometheus' clients use. prom-client's own collection has a
 * second timer for the event loop and an observer of the garbage collector, neither of which can be stopped again.
 */
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import type { Metrics, Sample } from './metrics.ts';

/** The timer whose lateness is measured; also in every value that Node gives. */
const RESOLUTION_MS = 10;

const NS_PER_SECOND = 1e9;
const US_PER_SECOND = 1e6;

/** Registers the process's figures. @returns what ends their collection */
export function registerProcessMetrics(metrics: Metrics): () => void {
  metrics.counter('process_cpu_seconds_total', 'User and system time of the process.', () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / US_PER_SECOND;
  });
  const startedAt = Date.now() / 1_000 - process.uptime();
  metrics.gauge(
    'process_start_time_seconds',
    'Start of the process, in seconds since 1970.',
    () => startedAt,
  );
  metrics.gauge('process_resident_memory_bytes', 'Resident memory of the process.', () =>
    process.memoryUsage.rss(),
  );
  metrics.gauge('nodejs_heap_size_total_bytes', "V8's heap.", () => process.memoryUsage().heapTotal);
  metrics.gauge(
    'nodejs_heap_size_used_bytes',
    "What is used of V8's heap.",
    () => process.memoryUsage().heapUsed,
  );
  metrics.gauge(
    'nodejs_external_memory_bytes',
    "Memory outside of V8's heap that its objects hold, buffers included.",
    () => process.memoryUsage().external,
  );

  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  metrics.gauge(
    'tidemark_event_loop_delay_seconds',
    `How late a timer of ${RESOLUTION_MS} ms came since the last scrape.`,
    () => delaysSinceLast(delay),
    ['quantile'],
  );
  return () => delay.disable();
}

function delaysSinceLast(delay: IntervalHistogram): Sample[] {
  const sample = (quantile: string, ns: number): Sample => ({
    labels: { quantile },
    value: Math.max(0, ns / NS_PER_SECOND - RESOLUTION_MS / 1_000),
  });
  const samples = [
    sample('0.5', delay.percentile(50)),
    sample('0.99', delay.percentile(99)),
    sample('max', delay.max),
  ];
  // Node's own reset also forgets the last tick: a stall that begins before the next one is not seen.
  delay.reset();
  return samples;
}
