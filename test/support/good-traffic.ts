/** Well-behaved producers beside whatever else a test does, and what becomes of their latency. */
import { readFileSync } from 'node:fs';
import { HttpConnection } from './http-client.ts';

export interface Latency {
  readonly requests: number;
  /** Milliseconds from the request's first byte to its answer, of all. */
  readonly p50: number;
  /** The median of every second's p99, in milliseconds: what the machine does beside the test may spoil one of them. */
  readonly p99: number;
}

const PRODUCERS = 4;
/** Between an answer and the next request, in milliseconds: this is traffic, not load. */
const PAUSE_MS = 5;

/**
 * Posts events, each of which must be acknowledged, until the work is done.
 * @throws at the first answer other than 201
 */
export async function goodTraffic(
  port: number,
  loggingToken: string,
  during: () => Promise<void>,
): Promise<Latency> {
  const times: number[] = [];
  const seconds: number[][] = [];
  const beganAt = performance.now();
  const body = JSON.stringify({ loggingToken, typeName: 'good', payload: { a: 1 } });
  let isOver = false;
  const produce = async (): Promise<void> => {
    const connection = await HttpConnection.open(port);
    while (!isOver) {
      const startedAt = performance.now();
      await connection.send({ method: 'POST', path: '/public/create_event', body });
      const { status, body: answer } = await connection.response();
      times.push(performance.now() - startedAt);
      const second = Math.floor((startedAt - beganAt) / 1_000);
      seconds[second] ??= [];
      seconds[second].push(performance.now() - startedAt);
      if (status !== 201) throw new Error(`A good event was answered with ${status}: ${answer}`);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    connection.destroy();
  };
  const producing = Promise.all(Array.from({ length: PRODUCERS }, produce));
  await Promise.race([producing, during()]);
  isOver = true;
  await producing;
  const worst = seconds.flatMap((second) => (second.length < 20 ? [] : [percentile(second, 0.99)]));
  return { requests: times.length, p50: percentile(times, 0.5), p99: percentile(worst, 0.5) };
}

/** @param share 0.99 for p99 */
export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(share * (sorted.length - 1))] ?? Number.NaN;
}

/** Resident memory of a process in MiB. */
export function residentMiB(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1_024;
}

/** Resolves after this long: a span of traffic to measure over. */
export function span(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
