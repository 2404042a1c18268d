/** new-types: events that name their type, known and new ones. cold-herd: thousands of apps that nothing is known of yet. */
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadGenerator } from '../load/load-generator.ts';
import type { LoadReport, LoadRequest } from '../load/load-job.ts';
import { answersOf, checkLedger, checkStatuses, interleavedRounds, withCost } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Spawned } from '../servers/spawned.ts';
import { startSpinners } from '../servers/spinners.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { addRounds } from './comparisons.ts';

/** Apps that share the new types: each of them may have 10,000, and makes one at a time. */
const APPS = 50;
const CONNECTIONS = 64;

/** @param name of the type; `{g}` in it is replaced by a number that is never used again */
function namedRequest(app: Pick<BenchApp, 'loggingToken'>, name: string, payload: object): LoadRequest {
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
    smoke: { seconds: 1, rounds: 1 },
  });
  const generator = bench.startGenerator();
  const apps = await bench.makeApps(APPS, 'new-types');
  const settings = { NEW_TYPES_PER_MINUTE: '0' };
  const { port, pid } = await bench.startService({ limits: 'lifted', settings });
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

/** Apps that send their first event, and those that go on after a restart. */
const HERD_APPS = 3_000;
const KNOWN_APPS = 10_000;
const HERD_CONNECTIONS = 256;
/** Longer than a herd may take. */
const SPIN_SECONDS = 120;
/** New types of one batch. */
const BATCH_TYPES = 1_000;
const HERD_GOAL = { atLeast: 5_000 };
const FIRST_TYPE = 'signed up';

interface Herd {
  readonly report: LoadReport;
  /** CPU in microseconds an event. */
  readonly serverMicros: number;
  readonly databaseMicros: number;
}

/** Each app sends one event, as fast as the connections allow. */
async function sendHerd(
  bench: Workbench,
  generator: LoadGenerator,
  service: Pick<Spawned, 'port' | 'pid'>,
  apps: readonly Pick<BenchApp, 'loggingToken'>[],
): Promise<Herd> {
  const { result, serverMs, databaseMs } = await withCost(bench, service, () =>
    generator.run({
      kind: 'closed',
      port: service.port,
      connections: HERD_CONNECTIONS,
      seconds: SPIN_SECONDS,
      once: true,
      requests: apps.map((app) => namedRequest(app, FIRST_TYPE, {})),
    }),
  );
  const micros = (ms: number): number => (ms * 1_000) / apps.length;
  return { report: result, serverMicros: micros(serverMs), databaseMicros: micros(databaseMs) };
}

/** @returns its milliseconds */
async function sendNewTypes(
  findings: Findings,
  port: number,
  app: Pick<BenchApp, 'loggingToken'>,
): Promise<number> {
  const events = Array.from({ length: BATCH_TYPES }, (_, n) => ({ typeName: `new ${n}`, payload: {} }));
  const started = performance.now();
  const answer = await fetch(`http://127.0.0.1:${port}/v1/events`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${app.loggingToken}`, 'Content-Type': 'application/json' },
    body: JSON.stringify({ events }),
  });
  const { stored } = (await answer.json()) as { stored?: number };
  const ms = performance.now() - started;
  findings.checkAll(
    `cold-herd: a batch of ${BATCH_TYPES} new types is stored`,
    answer.ok && stored === BATCH_TYPES,
  );
  return ms;
}

async function runHerd(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    `Closed loop by autocannon, ${HERD_CONNECTIONS} connections, each app sends one event. First events: of ${HERD_APPS} apps without types. After a restart: of ${KNOWN_APPS} apps that have the type, by a service that has just started. Busy: beside two processes that count in a loop.`,
  );
  const rounds = byLength(options, { full: 5, quick: 2, smoke: 1 });
  const generator = bench.startGenerator();
  const { installation } = bench;
  const reports: LoadReport[] = [];
  const ids: number[] = [];
  const measured = new Map<string, Herd[]>();
  const batches = new Map<string, number[]>();
  let service = await bench.startService({ limits: 'lifted' });
  const known = await installation.seedApps(KNOWN_APPS, 'herd, known');
  await bench.sql`
    INSERT INTO event_types (public_id, app_id, name)
    SELECT 'typ_herd_' || id, id, ${FIRST_TYPE} FROM unnest(${known.map(({ id }) => id)}::integer[]) AS known (id)`;
  ids.push(...known.map(({ id }) => id));
  const warmUp = await installation.seedApps(HERD_APPS, 'herd, warm-up');
  ids.push(...warmUp.map(({ id }) => id));
  reports.push((await sendHerd(bench, generator, service, warmUp)).report);
  for (let round = 0; round < rounds; round += 1) {
    for (const [suffix, isBusy] of [
      ['', false],
      [', busy', true],
    ] as const) {
      const fresh = await installation.seedApps(HERD_APPS + 1, 'herd');
      ids.push(...fresh.map(({ id }) => id));
      const [batchApp, ...apps] = fresh;
      if (batchApp === undefined) throw new Error('No app was made.');
      ids.splice(ids.indexOf(batchApp.id), 1);
      const busy = isBusy ? startSpinners(SPIN_SECONDS) : null;
      const first = await sendHerd(bench, generator, service, apps);
      const batchMs = await sendNewTypes(findings, service.port, batchApp);
      await service.stop();
      service = await bench.startService({ limits: 'lifted' });
      const again = await sendHerd(bench, generator, service, known);
      await busy?.stop();
      for (const [name, herd] of [
        [`first events${suffix}`, first],
        [`after a restart${suffix}`, again],
      ] as const) {
        reports.push(herd.report);
        measured.set(name, [...(measured.get(name) ?? []), herd]);
      }
      batches.set(suffix, [...(batches.get(suffix) ?? []), batchMs]);
    }
  }
  for (const [name, herds] of measured) {
    const each = (of: (herd: Herd) => number): number[] => herds.map(of);
    const rate = each(({ report }) => answersOf(report, /^2/) / report.seconds);
    findings.figure(`${name}: events`, '/s', rate);
    findings.figure(
      `${name}: p99`,
      'ms',
      each(({ report }) => report.latency?.p99 ?? Number.NaN),
    );
    findings.figure(
      `${name}: server CPU`,
      'µs/event',
      each(({ serverMicros }) => serverMicros),
    );
    findings.figure(
      `${name}: database CPU`,
      'µs/event',
      each(({ databaseMicros }) => databaseMicros),
    );
    findings.figure(
      `${name}: refused`,
      '',
      each(({ report }) => answersOf(report, /^[45]/)),
    );
    if (!name.endsWith('busy')) findings.goal(`${name}: events`, '/s', Math.min(...rate), HERD_GOAL);
  }
  for (const [suffix, ms] of batches)
    findings.figure(`a batch of ${BATCH_TYPES} new types${suffix}`, 'ms', ms);
  checkStatuses(findings, 'cold-herd', reports, [201]);
  checkLedger(findings, 'cold-herd', reports, await sumOfTable(bench.sql, 'events', ids));
  const [doubled] = await bench.sql<{ names: number }[]>`
    SELECT count(*)::float8 AS names FROM (
      SELECT FROM event_types WHERE app_id = ANY(${ids}::integer[]) GROUP BY app_id HAVING count(*) <> 1) AS more`;
  findings.check('cold-herd: each app has one type', doubled?.names === 0, `${doubled?.names} have not`);
}

export const COLD_HERD: Scenario = {
  name: 'cold-herd',
  about:
    'Thousands of apps at once whose token and type are not in memory: their first events, and after a restart.',
  run: runHerd,
};
