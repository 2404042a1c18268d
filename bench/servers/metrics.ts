/** The service's own account of where the time goes: GET /metrics before and after a round, and what lies between. */

/** Samples by their name with labels, exactly as the text format spells them. */
export type Samples = ReadonlyMap<string, number>;

/** Prometheus' text format, version 0.0.4, as far as we write it: no time stamps. */
export function parseMetrics(text: string): Samples {
  const samples = new Map<string, number>();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const end = line.lastIndexOf(' ');
    samples.set(line.slice(0, end), Number(line.slice(end + 1)));
  }
  return samples;
}

/** @returns null where the service has no metrics */
export async function readMetrics(port: number): Promise<Samples | null> {
  const response = await fetch(`http://127.0.0.1:${port}/metrics`);
  const text = await response.text();
  return response.status === 200 ? parseMetrics(text) : null;
}

/** The stages of a write, in their order. */
const STAGES = ['validate', 'token', 'limit', 'type', 'commit'] as const;

export interface Account {
  /** Mean microseconds that an event spent in each stage; waiting for others' work counts. */
  readonly stageMicros: Readonly<Record<string, number>>;
  readonly eventsPerBatch: number;
  readonly batchMs: number;
  readonly eventsStored: number;
  /** How late the event loop was since the first reading: at its 99th percentile, and at most. */
  readonly eventLoopLateMs: number;
  readonly eventLoopMostLateMs: number;
}

/** What happened between two readings of the same process. */
export function accountBetween(before: Samples, after: Samples): Account {
  const grown = (name: string): number => (after.get(name) ?? Number.NaN) - (before.get(name) ?? 0);
  const mean = (name: string, labels: string): number =>
    grown(`${name}_sum${labels}`) / grown(`${name}_count${labels}`);
  const late = (stat: string): number =>
    (after.get(`tidemark_event_loop_delay_seconds{stat="${stat}"}`) ?? Number.NaN) * 1_000;
  return {
    stageMicros: Object.fromEntries(
      STAGES.map((stage) => [stage, mean('tidemark_stage_seconds', `{stage="${stage}"}`) * 1e6]),
    ),
    eventsPerBatch: mean('tidemark_batch_events', ''),
    batchMs: mean('tidemark_batch_seconds', '') * 1_000,
    eventsStored: grown('tidemark_events_stored_total'),
    eventLoopLateMs: late('p99'),
    eventLoopMostLateMs: late('max'),
  };
}
