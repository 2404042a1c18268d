/**
 * Metrics of the process, under the names that Prometheus' clients use.
 */
import { type IntervalHistogram, monitorEventLoopDelay } from 'node:perf_hooks';
import { logStats } from '../process/log-output.ts';
import type { Metrics, Sample } from './metrics.ts';

/** Interval of the timer whose delay is measured. Node includes it in every value. */
const RESOLUTION_MS = 10;

const NS_PER_SECOND = 1e9;
const US_PER_SECOND = 1e6;

/** Registers the metrics of the process. @returns a function that stops their collection */
export function registerProcessMetrics(metrics: Metrics): () => void {
  metrics.counter('process_cpu_seconds_total', 'User and system time of the process.', () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / US_PER_SECOND;
  });
  const startedAt = Date.now() / 1_000 - process.uptime();
  metrics.gauge(
    'process_start_time_seconds',
    'Start time of the process, in seconds since the Unix epoch.',
    () => startedAt,
  );
  metrics.gauge('process_resident_memory_bytes', 'Resident memory of the process.', () =>
    process.memoryUsage.rss(),
  );
  metrics.gauge('nodejs_heap_size_total_bytes', "V8's heap.", () => process.memoryUsage().heapTotal);
  metrics.gauge('nodejs_heap_size_used_bytes', 'Used V8 heap.', () => process.memoryUsage().heapUsed);
  metrics.gauge(
    'nodejs_external_memory_bytes',
    "Memory outside V8's heap that its objects use, buffers included.",
    () => process.memoryUsage().external,
  );
  metrics.counter(
    'tidemark_log_lines_dropped_total',
    'Lines of the log that were dropped, because standard error was not read or could not be written.',
    () => logStats().dropped,
  );
  metrics.gauge(
    'tidemark_log_waiting_bytes',
    'Lines of the log that the reader of standard error has not taken yet; at 1 MiB further ones are dropped.',
    () => logStats().waitingBytes,
  );

  const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  delay.enable();
  metrics.gauge(
    'tidemark_event_loop_delay_seconds',
    `Delay of a ${RESOLUTION_MS} ms timer since the last scrape.`,
    () => delaysSinceLast(delay),
  );
  return () => delay.disable();
}

function delaysSinceLast(delay: IntervalHistogram): Sample[] {
  const sample = (stat: string, ns: number): Sample => ({
    labels: { stat },
    value: Math.max(0, ns / NS_PER_SECOND - RESOLUTION_MS / 1_000),
  });
  const samples = [
    sample('p50', delay.percentile(50)),
    sample('p99', delay.percentile(99)),
    sample('max', delay.max),
  ];
  // Node's own reset also drops the last tick, so a stall that begins before the next one would be missed.
  delay.reset();
  return samples;
}
