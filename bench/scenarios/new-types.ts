/** new-types: events that name their type, known and new ones. */
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../ledger.ts';
import type { LoadRequest } from '../load-job.ts';
import { checkLedger, checkStatuses, interleavedRounds } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { BenchApp, Workbench } from '../workbench.ts';
import { addRounds } from './comparisons.ts';

/** Apps that share the new types: each of them may have 10,000, and makes one at a time. */
const APPS = 50;
const CONNECTIONS = 64;

/** @param name of the type; `{g}` in it is replaced by a number that is never used again */
function namedRequest(app: BenchApp, name: string, payload: object): LoadRequest {
  const body = JSON.stringify({ loggingToken: app.loggingToken, typeName: name, payload });
  return { method: 'POST', path: '/public/create_event', body };
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    'Closed loop by autocannon, 64 connections, 50 apps. Every request is made afresh: the generator costs more.',
  );
  const round = byLength(options, {
    full: { seconds: 4, rounds: 5 },
    quick: { seconds: 2, rounds: 3 },
    guard: { seconds: 2, rounds: 3 },
    smoke: { seconds: 1, rounds: 1 },
  });
  const generator = bench.startGenerator();
  const apps = await bench.makeApps(APPS, 'new-types');
  const { port, pid } = await bench.startService({ limits: 'lifted' });
  const known = {
    name: 'known types',
    port,
    pid,
    requests: apps.map((app) => namedRequest(app, 'page viewed', { n: '{g}' })),
  };
  const fresh = {
    name: 'new types',
    port,
    pid,
    requests: apps.map((app) => namedRequest(app, 'type {g}', {})),
  };
  const results = await interleavedRounds(bench, generator, [known, fresh], {
    connections: CONNECTIONS,
    ...round,
  });
  const [ofKnown, ofNew] = [results.get(known.name), results.get(fresh.name)];
  if (ofKnown === undefined || ofNew === undefined) throw new Error('A contender was not measured.');
  addRounds(findings, known.name, ofKnown.rounds);
  addRounds(findings, fresh.name, ofNew.rounds);
  const rates = (rounds: readonly { accepted: number }[]): number[] => rounds.map(({ accepted }) => accepted);
  findings.ratio('new to known types', pairwise(rates(ofNew.rounds), rates(ofKnown.rounds)));

  const newReports = [ofNew.warmUp, ...ofNew.rounds].map(({ report }) => report);
  const reports = [...newReports, ...[ofKnown.warmUp, ...ofKnown.rounds].map(({ report }) => report)];
  checkStatuses(findings, 'new-types', reports, [201]);
  const ids = apps.map(({ id }) => id);
  checkLedger(findings, 'new-types', reports, await sumOfTable(bench.sql, 'events', ids));
  const [types] = await bench.sql<{ made: number }[]>`
    SELECT count(*)::float8 AS made FROM event_types WHERE app_id = ANY(${ids}::integer[]) AND name LIKE 'type %'`;
  const acknowledged = newReports.reduce((sum, { acknowledged }) => sum + acknowledged.events, 0);
  findings.check(
    'new-types: one type was made for each new name',
    types?.made === acknowledged,
    `${types?.made} types, ${acknowledged} new names`,
  );
}

export const NEW_TYPES: Scenario = {
  name: 'new-types',
  about: 'Events that name their type: known types, and a new one with every event.',
  run,
};
