/** Bare commits at intended times: the latency of an event without a service. */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { LatencyHistogram } from './latency.ts';
import type { CommitsJob, LoadReport } from './load-job.ts';
import { spinUntil } from './open-loop.ts';

const INSERT = {
  name: 'bare commit',
  text: 'INSERT INTO bench_rival_events (id, app_id, type_id, created_at, payload) VALUES ($1, $2, 1, now(), $3)',
};

const CONNECTIONS = 4;

export async function runCommits(job: CommitsJob): Promise<LoadReport> {
  // A commit that stalls must not hold up the next one.
  const pool = new pg.Pool({ ...job.address, max: CONNECTIONS, min: CONNECTIONS });
  await Promise.all(Array.from({ length: CONNECTIONS }, () => pool.query('SELECT pg_sleep(0.01)')));
  const latency = new LatencyHistogram();
  const total = Math.round(job.perSecond * job.seconds);
  const cpuBefore = process.cpuUsage();
  const started = performance.now();
  const countFrom = started + job.warmUpSeconds * 1_000;
  const underWay: Promise<void>[] = [];
  for (let sent = 0; sent < total; sent += 1) {
    const at = started + (sent * 1_000) / job.perSecond;
    await spinUntil(at);
    underWay.push(
      pool.query({ ...INSERT, values: [randomUUID(), job.appId, job.payload] }).then(() => {
        if (at >= countFrom) latency.record(performance.now() - at);
      }),
    );
  }
  await Promise.all(underWay);
  const seconds = (performance.now() - started) / 1_000;
  const cpu = process.cpuUsage(cpuBefore);
  await pool.end();
  return {
    seconds,
    statuses: {},
    unanswered: 0,
    dropped: 0,
    acknowledged: { events: 0, idSum: 0 },
    latency: latency.summary(),
    generatorMicros: (cpu.user + cpu.system) / total,
    refusals: [],
  };
}
