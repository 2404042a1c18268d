/** latency: what an event waits at a share of the most that the service can take, with one process, then with two. */

import type { Findings } from '../findings.ts';
import { spreadOf } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadReport, OpenJob } from '../load/load-job.ts';
import { answersOf, type Contender, checkLedger, checkStatuses, createRequest } from '../measure.ts';
import { SMALL_PAYLOAD_BYTES, startFloor, startWorkers } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Workbench } from '../servers/workbench.ts';
import { addLatency } from './limits.ts';

export const SHARES = [10, 25, 50, 75, 90, 95] as const;
export const PROCESSES = [1, 2] as const;
const CONNECTIONS = 256;
/** More than any two cores can take: what is answered of it is the saturated rate. */
const FLOOD_PER_SECOND = 60_000;
/** Up to this share p99 is at most so many times p50. */
const TAIL_GOAL = { upTo: 75, atMost: 5 };
const HIGH_GOAL = { at: 90, atMostMs: 60 };
const FLOOR_SHARE = 50;
/** What the embedded PostgreSQL writes between two checkpoints: as many files of its log are used again after the first one. */
const LOG_BYTES = 2_200_000_000;
const LOG_PART_BYTES = 16_000_000;
export const FLOOR_AT_HALF = `floor, at the rate of one process, ${FLOOR_SHARE} %`;

export function nameOf(processes: number): string {
  return processes === 1 ? 'one process' : `${processes} processes`;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    `Open loop over ${CONNECTIONS} connections, one app, limits lifted. A latency counts from the time at which its request was due.`,
  );
  findings.note(
    'The saturated rate is what the same generator gets answered when it offers more, the median of the rounds. Load generator, service and database share the cores.',
  );
  findings.note(
    'Each number of processes runs alone: the garbage collections of idle ones were stalls in the tail of the one under load.',
  );
  findings.note(
    'As in a database that has run for a while, PostgreSQL uses files of its log again: it has written 2.2 GB of it, and a checkpoint, before the load. ' +
      'A new database makes its files first: each of 16 MB stops all commits while it is filled with zeros.',
  );
  await warmLog(bench);
  const app = await bench.makeApp('latency');
  const request = createRequest(app, SMALL_PAYLOAD_BYTES);
  const reports: LoadReport[] = [];
  let rateOfFloor = Number.NaN;
  for (const processes of PROCESSES) {
    const [contender] = await startWorkers(bench, [processes], [request], findings);
    if (contender === undefined) continue;
    const saturated = await addShares(bench, findings, contender, { options, reports });
    if (processes === 1) rateOfFloor = (saturated * FLOOR_SHARE) / 100;
    await bench.tidy();
  }
  const { seconds, rounds } = lengthOf(options);
  const floor = await startFloor(bench, app);
  const generator = bench.startGenerator();
  const ofFloor: LoadReport[] = [];
  // Shows what of it the generator adds, and that cores are shared.
  for (let round = 0; round < rounds; round += 1)
    ofFloor.push(await generator.run(jobOf(floor, rateOfFloor, seconds)));
  addShare(findings, FLOOR_AT_HALF, ofFloor, null);
  checkStatuses(findings, 'latency, floor', ofFloor, [201]);
  checkStatuses(findings, 'latency', reports, [201]);
  checkLedger(findings, 'latency', reports, await sumOfTable(bench.sql, 'events', [app.id]));
}

/** Has PostgreSQL make the files of its log, which it uses again after a checkpoint. */
async function warmLog({ sql }: Workbench): Promise<void> {
  for (let written = 0; written < LOG_BYTES; written += LOG_PART_BYTES)
    await sql`SELECT pg_logical_emit_message(false, 'tidemark bench', repeat('x', ${LOG_PART_BYTES}::integer))`;
  await sql`CHECKPOINT`;
}

function lengthOf(options: RunOptions): {
  readonly seconds: number;
  readonly rounds: number;
  readonly shares: readonly number[];
} {
  return byLength(options, {
    full: { seconds: 8, rounds: 3, shares: SHARES },
    quick: { seconds: 4, rounds: 1, shares: [10, 50, 75, 90] },
    smoke: { seconds: 2, rounds: 1, shares: [50] },
  });
}

function jobOf({ port, requests }: Contender, perSecond: number, seconds: number): OpenJob {
  const warmUpSeconds = seconds / 4;
  return { kind: 'open', port, connections: CONNECTIONS, seconds, perSecond, warmUpSeconds, requests };
}

/** Finds the saturated rate of a contender, then its latencies at shares of it. @returns events per second */
async function addShares(
  bench: Workbench,
  findings: Findings,
  contender: Contender,
  { options, reports }: { readonly options: RunOptions; readonly reports: LoadReport[] },
): Promise<number> {
  const { seconds, rounds, shares } = lengthOf(options);
  const generator = bench.startGenerator();
  const offer = async (perSecond: number): Promise<LoadReport> => {
    const report = await generator.run(jobOf(contender, perSecond, seconds));
    reports.push(report);
    return report;
  };
  const rates: number[] = [];
  // The first round warms up.
  await offer(FLOOD_PER_SECOND);
  for (let round = 0; round < rounds; round += 1) {
    const flood = await offer(FLOOD_PER_SECOND);
    rates.push(answersOf(flood) / flood.seconds);
  }
  const saturated = spreadOf(rates).median;
  findings.figure(`${contender.name}: saturated`, '/s', rates);
  for (const share of shares) {
    const ofShare: LoadReport[] = [];
    for (let round = 0; round < rounds; round += 1) ofShare.push(await offer((saturated * share) / 100));
    addShare(findings, `${contender.name}, ${share} %`, ofShare, share);
  }
  return saturated;
}

/** @param share null where no goal is set */
function addShare(
  findings: Findings,
  name: string,
  reports: readonly LoadReport[],
  share: number | null,
): void {
  findings.figure(
    `${name}: answers`,
    '/s',
    reports.map((report) => answersOf(report) / report.seconds),
  );
  const dropped = reports.map((report) => report.dropped);
  if (dropped.some((times) => times > 0)) findings.figure(`${name}: due and never sent`, '', dropped);
  addLatency(findings, name, reports);
  const tails = reports.map(({ latency }) => (latency?.p99 ?? Number.NaN) / (latency?.p50 ?? Number.NaN));
  const goal = share !== null && share <= TAIL_GOAL.upTo ? ([{ atMost: TAIL_GOAL.atMost }] as const) : [];
  findings.ratio(`p99 to p50, ${name}`, tails, ...goal);
  if (share !== HIGH_GOAL.at) return;
  const high = spreadOf(reports.map(({ latency }) => latency?.p99 ?? Number.NaN)).median;
  findings.goal(`p99, ${name}`, 'ms', high, { atMost: HIGH_GOAL.atMostMs });
}

/** The median of a percentile at a share, for the drawing. */
export function percentileAt(
  figures: readonly { readonly name: string; readonly values: readonly number[] }[],
  processes: number,
  share: number,
  percentile: 'p50' | 'p99',
): number {
  const name = `${nameOf(processes)}, ${share} %: ${percentile}`;
  return spreadOf(figures.find((figure) => figure.name === name)?.values ?? []).median;
}

export const LATENCY: Scenario = {
  name: 'latency',
  about: 'Latency against offered load, 10 to 95 % of the saturated rate, one process and two.',
  run,
};
