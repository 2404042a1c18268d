/** latency: what an event waits at a share of the most that the service can take, with one process and two. */

import type { Findings } from '../findings.ts';
import { spreadOf } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadReport } from '../load/load-job.ts';
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
const TAIL_GOAL = 3;
const GOAL_SHARE = 50;
export const FLOOR_AT_HALF = `floor, at the rate of one process, ${GOAL_SHARE} %`;

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
  const { seconds, rounds, shares } = byLength(options, {
    full: { seconds: 8, rounds: 3, shares: SHARES },
    quick: { seconds: 4, rounds: 1, shares: [10, 50, 90] },
    smoke: { seconds: 2, rounds: 1, shares: [50] },
  });
  const app = await bench.makeApp('latency');
  const request = createRequest(app, SMALL_PAYLOAD_BYTES);
  const contenders = await startWorkers(bench, PROCESSES, [request], findings);
  const floor = await startFloor(bench, app);
  const generator = bench.startGenerator();
  const offer = ({ port }: Contender, perSecond: number): Promise<LoadReport> =>
    generator.run({
      kind: 'open',
      port,
      connections: CONNECTIONS,
      seconds,
      perSecond,
      warmUpSeconds: seconds / 4,
      requests: [request],
    });
  const reports: LoadReport[] = [];
  const inTurn = (round: number): readonly Contender[] =>
    round % 2 === 0 ? contenders : [...contenders].reverse();
  const floods = new Map<Contender, number[]>(contenders.map((contender) => [contender, []]));
  for (let round = 0; round <= rounds; round += 1) {
    for (const contender of inTurn(round)) {
      const flood = await offer(contender, FLOOD_PER_SECOND);
      reports.push(flood);
      // The first round warms up.
      if (round > 0) floods.get(contender)?.push(answersOf(flood) / flood.seconds);
    }
  }
  const saturated = new Map<Contender, number>();
  for (const [contender, rates] of floods) {
    saturated.set(contender, spreadOf(rates).median);
    findings.figure(`${contender.name}: saturated`, '/s', rates);
  }
  const [one] = contenders;
  const rateOfFloor =
    ((one === undefined ? Number.NaN : (saturated.get(one) ?? Number.NaN)) * GOAL_SHARE) / 100;
  const ofFloor: LoadReport[] = [];
  for (const share of shares) {
    const found = new Map<Contender, LoadReport[]>(contenders.map((contender) => [contender, []]));
    for (let round = 0; round < rounds; round += 1) {
      for (const contender of inTurn(round)) {
        const perSecond = ((saturated.get(contender) ?? Number.NaN) * share) / 100;
        found.get(contender)?.push(await offer(contender, perSecond));
      }
      // Shows what of it the generator adds, and that cores are shared.
      if (share === GOAL_SHARE) ofFloor.push(await offer(floor, rateOfFloor));
    }
    for (const [{ name }, ofShare] of found) {
      reports.push(...ofShare);
      addShare(findings, `${name}, ${share} %`, ofShare, share);
    }
  }
  addShare(findings, FLOOR_AT_HALF, ofFloor, null);
  checkStatuses(findings, 'latency, floor', ofFloor, [201]);
  checkStatuses(findings, 'latency', reports, [201]);
  checkLedger(findings, 'latency', reports, await sumOfTable(bench.sql, 'events', [app.id]));
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
  const goal = share === GOAL_SHARE ? ([{ atMost: TAIL_GOAL }] as const) : [];
  findings.ratio(`p99 to p50, ${name}`, tails, ...goal);
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
