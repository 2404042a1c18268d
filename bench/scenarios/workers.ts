/** workers: what an event costs with one, two and four processes at equal load, and what its commits wait for. */

import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadGenerator } from '../load/load-generator.ts';
import type { LoadReport } from '../load/load-job.ts';
import {
  answersOf,
  type Contender,
  checkLedger,
  checkStatuses,
  closedRound,
  createRequest,
  type Round,
  withCost,
} from '../measure.ts';
import { SMALL_PAYLOAD_BYTES, startWorkers } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Workbench } from '../servers/workbench.ts';
import { nameOf } from './latency.ts';

export const WORKERS = [1, 2, 4] as const;
const CONNECTIONS = 64;
const SATURATING = 256;
/** Less than two shared cores can take, so that all have the same load. */
const PER_SECOND = 6_000;
const CPU_GOAL = 1.05;
const SAMPLE_MS = 10;
/** Events that wait for their counts when the load ends are folded within a second: that long their cost is counted. */
const FOLD_MS = 1_500;

interface Turn {
  readonly service: number;
  readonly database: number;
  readonly report: LoadReport;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    `Equal load: open loop, ${PER_SECOND.toLocaleString('en-GB')} events/s over ${CONNECTIONS} connections; saturated: closed loop over ${SATURATING}. Each process has two connections that commit.`,
  );
  const { seconds, rounds } = byLength(options, {
    full: { seconds: 6, rounds: 5 },
    quick: { seconds: 3, rounds: 3 },
    smoke: { seconds: 2, rounds: 1 },
  });
  const app = await bench.makeApp('workers');
  const requests = [createRequest(app, SMALL_PAYLOAD_BYTES)];
  const contenders = await startWorkers(bench, WORKERS, requests, findings);
  const generator = bench.startGenerator();
  const pace = { connections: CONNECTIONS, warmUpSeconds: 0, requests };
  const load = async (contender: Contender): Promise<Turn> => {
    const { port } = contender;
    const cost = await withCost(bench, contender, async () => {
      const report = await generator.run({ kind: 'open', port, seconds, perSecond: PER_SECOND, ...pace });
      await new Promise((resolve) => setTimeout(resolve, FOLD_MS));
      return report;
    });
    const answers = answersOf(cost.result);
    return {
      service: (cost.serverMs * 1_000) / answers,
      database: (cost.databaseMs * 1_000) / answers,
      report: cost.result,
    };
  };
  const turns = new Map<Contender, Turn[]>();
  const reports: LoadReport[] = [];
  for (const contender of contenders) {
    reports.push((await load(contender)).report);
    turns.set(contender, []);
  }
  for (let round = 0; round < rounds; round += 1) {
    for (const contender of round % 2 === 0 ? contenders : [...contenders].reverse())
      turns.get(contender)?.push(await load(contender));
  }
  addTurns(findings, contenders, turns);
  const flood = { connections: SATURATING, seconds, rounds };
  for (const [name, one] of await saturate(bench, generator, contenders, flood)) {
    const { rounds: saturated, waits } = one;
    addSaturated(findings, name, one);
    addWaits(findings, name, waits);
    reports.push(...saturated.map(({ report }) => report));
  }
  reports.push(...[...turns.values()].flat().map(({ report }) => report));
  checkStatuses(findings, 'workers', reports, [201]);
  checkLedger(findings, 'workers', reports, await sumOfTable(bench.sql, 'events', [app.id]));
}

function addTurns(
  findings: Findings,
  contenders: readonly Contender[],
  turns: ReadonlyMap<Contender, readonly Turn[]>,
): void {
  const of = (contender: Contender | undefined): readonly Turn[] => (contender && turns.get(contender)) ?? [];
  const both = (contender: Contender | undefined): number[] =>
    of(contender).map(({ service, database }) => service + database);
  for (const contender of contenders) {
    const { name } = contender;
    findings.figure(
      `${name}: CPU of the service`,
      'µs/event',
      of(contender).map(({ service }) => service),
    );
    findings.figure(
      `${name}: CPU of PostgreSQL`,
      'µs/event',
      of(contender).map(({ database }) => database),
    );
    if (contender === contenders[0]) continue;
    findings.ratio(
      `CPU of an event, ${name} to ${nameOf(1)}`,
      pairwise(both(contender), both(contenders[0])),
      {
        atMost: CPU_GOAL,
      },
    );
  }
}

interface Saturated {
  readonly rounds: Round[];
  /** Bytes of PostgreSQL's log (WAL) for each event, by round. */
  readonly logged: number[];
  waits: Waits;
}

/** Closed loops in turn, with what the sessions that commit do meanwhile. */
async function saturate(
  bench: Workbench,
  generator: LoadGenerator,
  contenders: readonly Contender[],
  flood: { connections: number; seconds: number; rounds: number },
): Promise<Map<string, Saturated>> {
  const found = new Map(
    contenders.map(({ name }): [string, Saturated] => [name, { rounds: [], logged: [], waits: new Map() }]),
  );
  for (let turn = 0; turn < flood.rounds; turn += 1) {
    for (const contender of turn % 2 === 0 ? contenders : [...contenders].reverse()) {
      const one = found.get(contender.name);
      if (one === undefined) continue;
      const before = await logPosition(bench);
      const watching = watchCommits(bench);
      const round = await closedRound(bench, generator, contender, flood);
      one.rounds.push(round);
      one.waits = compact(one.waits, await watching.end());
      one.logged.push(((await logPosition(bench)) - before) / answersOf(round.report));
    }
  }
  return found;
}

async function logPosition({ sql }: Workbench): Promise<number> {
  const [row] = await sql<{ bytes: number }[]>`SELECT (pg_current_wal_lsn() - '0/0')::float8 AS bytes`;
  return row?.bytes ?? Number.NaN;
}

function compact(one: Waits, other: Waits): Waits {
  const sum = new Map(one);
  for (const [doing, times] of other) sum.set(doing, (sum.get(doing) ?? 0) + times);
  return sum;
}

function addSaturated(findings: Findings, name: string, { rounds, logged }: Saturated): void {
  findings.figure(`${name}, saturated: log`, 'bytes/event', logged);
  findings.figure(
    `${name}, saturated: answers`,
    '/s',
    rounds.map(({ accepted }) => accepted),
  );
  findings.figure(
    `${name}, saturated: CPU of the service`,
    'µs/event',
    rounds.map(({ serverMicros }) => serverMicros),
  );
  findings.figure(
    `${name}, saturated: CPU of PostgreSQL`,
    'µs/event',
    rounds.map(({ databaseMicros }) => databaseMicros),
  );
}

/** What sessions that commit do, by how often they were seen doing it. */
type Waits = ReadonlyMap<string, number>;

/** Samples the sessions of the service whose last statement was a COPY. */
function watchCommits(bench: Workbench): { end(): Promise<Waits> } {
  const waits = new Map<string, number>();
  let isOver = false;
  const sampling = (async () => {
    while (!isOver) {
      const rows = await bench.sql<{ doing: string; times: number }[]>`
        SELECT CASE WHEN state <> 'active' THEN 'idle' ELSE coalesce(wait_event_type || ' ' || wait_event, 'runs') END AS doing,
               count(*)::float8 AS times
          FROM pg_stat_activity
         WHERE datname = current_database() AND application_name LIKE 'tidemark%' AND query LIKE 'COPY%'
         GROUP BY 1`;
      for (const { doing, times } of rows) waits.set(doing, (waits.get(doing) ?? 0) + times);
      await new Promise((resolve) => setTimeout(resolve, SAMPLE_MS));
    }
  })();
  return {
    end: async () => {
      isOver = true;
      await sampling;
      return waits;
    },
  };
}

/** Waiting for the log: its writing and syncing, and that of another session, which covers one's own. */
const LOG = /^(?:IO Wal|LWLock WALWrite)/;
/** Locks that sessions share: those of rows and relations, and the light ones of the server's own memory. */
const LOCK = /^(?:Lock|LWLock|BufferPin) /;

function addWaits(findings: Findings, name: string, waits: Waits): void {
  const busy = [...waits].filter(([doing]) => doing !== 'idle');
  const all = busy.reduce((sum, [, times]) => sum + times, 0);
  findings.check(`${name}: sessions that commit were seen`, all > 0, `${all} samples`);
  const share = (is: (doing: string) => boolean): number =>
    (busy.reduce((sum, [doing, times]) => sum + (is(doing) ? times : 0), 0) * 100) / all;
  findings.figure(`${name}, saturated: time of a commit in the log`, '%', [
    share((doing) => LOG.test(doing)),
  ]);
  findings.figure(`${name}, saturated: time of a commit in locks`, '%', [
    share((doing) => LOCK.test(doing) && !LOG.test(doing)),
  ]);
  for (const [doing, times] of busy.sort(([, a], [, b]) => b - a).slice(0, 6))
    findings.figure(`${name}, saturated: ${doing}`, '%', [(times * 100) / all]);
}

export const WORKERS_SCENARIO: Scenario = {
  name: 'workers',
  about:
    'CPU of an event with one, two and four processes at equal load, and what commits wait for in PostgreSQL.',
  run,
};
