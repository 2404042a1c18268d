/** bad-input: how fast bad requests are refused, and what good traffic beside them feels of it. */
import { createTokenText } from '../../src/base/token-text.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadReport, LoadRequest } from '../load/load-job.ts';
import { checkLedger, checkStatuses, closedRound, createRequest, type Round } from '../measure.ts';
import { SMALL_PAYLOAD_BYTES } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { addLatency } from './limits.ts';

const CONNECTIONS = 64;
const GOOD_PER_SECOND = 200;
/** Well-formed tokens that do not exist: more than are sent in one round trip to the database. */
const UNKNOWN_TOKENS = 500;

interface Kind {
  readonly name: string;
  readonly status: number;
  readonly requests: readonly LoadRequest[];
}

function kindsOf(app: BenchApp): Kind[] {
  const good = createRequest(app, SMALL_PAYLOAD_BYTES);
  const body = good.body ?? '';
  const unknown = Array.from({ length: UNKNOWN_TOKENS }, () =>
    body.replace(app.loggingToken, createTokenText('tdl')),
  );
  return [
    { name: 'invalid JSON', status: 400, requests: [{ ...good, body: body.slice(0, -1) }] },
    { name: 'missing field', status: 400, requests: [{ ...good, body: body.replace('"payload"', '"pay"') }] },
    { name: 'unknown token', status: 401, requests: unknown.map((one) => ({ ...good, body: one })) },
  ];
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    'Refusals: closed loop by autocannon, 64 connections. Good traffic: open loop, 200 events a second.',
  );
  const { seconds, rounds } = byLength(options, {
    full: { seconds: 5, rounds: 3 },
    quick: { seconds: 3, rounds: 1 },
    smoke: { seconds: 2, rounds: 1 },
  });
  const [bad, good] = [bench.startGenerator(), bench.startGenerator()];
  const app = await bench.makeApp('bad-input');
  const { port, pid } = await bench.startService({ limits: 'lifted' });
  const kinds = kindsOf(app);
  const goodJob = {
    kind: 'open',
    port,
    connections: 64,
    seconds,
    perSecond: GOOD_PER_SECOND,
    warmUpSeconds: 0,
    requests: [createRequest(app, SMALL_PAYLOAD_BYTES)],
  } as const;
  const reported: LoadReport[] = [await good.run(goodJob)];
  const alone: LoadReport[] = [];
  const beside = new Map<string, { round: Round; good: LoadReport }[]>();
  for (let index = 0; index < rounds; index += 1) {
    alone.push(await good.run(goodJob));
    for (const { name, requests } of kinds) {
      const contender = { name, port, pid, requests };
      const [round, report] = await Promise.all([
        closedRound(bench, bad, contender, { connections: CONNECTIONS, seconds }),
        good.run(goodJob),
      ]);
      beside.set(name, [...(beside.get(name) ?? []), { round, good: report }]);
    }
  }
  addLatency(findings, 'good traffic alone', alone);
  reported.push(...alone);
  const p99 = (reports: readonly LoadReport[]): number[] =>
    reports.map(({ latency }) => latency?.p99 ?? Number.NaN);
  for (const { name, status } of kinds) {
    const found = beside.get(name) ?? [];
    const reports = found.map((one) => one.good);
    checkStatuses(
      findings,
      name,
      found.map(({ round }) => round.report),
      [status],
    );
    findings.figure(
      `${name}: refusals`,
      '/s',
      found.map(({ round }) => round.refused),
    );
    addLatency(findings, `good traffic beside ${name}`, reports);
    findings.ratio(`p99 of good traffic beside ${name}`, pairwise(p99(reports), p99(alone)));
    reported.push(...reports);
  }
  checkStatuses(findings, 'good traffic', reported, [201]);
  checkLedger(findings, 'good traffic', reported, await sumOfTable(bench.sql, 'events', [app.id]));
}

export const BAD_INPUT: Scenario = {
  name: 'bad-input',
  about:
    'Invalid JSON, missing fields, unknown tokens: refusals a second, and what good traffic beside them feels.',
  run,
};
