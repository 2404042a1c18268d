/**
 * Latencies of producers beside others, over both transports. hostile: clients without a token, who attack the service.
 * neighbours: an app that sends all that it can.
 */
import { createTokenText } from '../../src/base/token-text.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { addDashboardUser, trySignIn, wrongSignIn } from '../load/dashboard-user.ts';
import type { Latency } from '../load/latency.ts';
import { sumOfTable } from '../load/ledger.ts';
import type { LoadGenerator } from '../load/load-generator.ts';
import type { LoadJob, LoadReport, LoadRequest, OpenJob } from '../load/load-job.ts';
import { answersOf, checkLedger, checkStatuses, createRequest } from '../measure.ts';
import { SMALL_PAYLOAD_BYTES, transport } from '../rivals/contenders.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { startSpinners } from '../servers/spinners.ts';
import type { BenchApp, Workbench } from '../servers/workbench.ts';
import { runAccounts } from './hostile-accounts.ts';
import { addLatency } from './limits.ts';

const PRODUCERS_PER_SECOND = 200;
const MEBIBYTE = 1_048_576;
/** An attack begins this long before the producers are measured, and ends this long after. */
const LEAD_MS = 500;
const TAIL_SECONDS = 1;

/** The longest head that a transport takes, with room for its other lines. */
const HEADER_BYTES = { uws: 3_700, node: 15_500 } as const;
type TransportName = keyof typeof HEADER_BYTES;

const P99_GOAL = { atMost: 3 };
const NO_REFUSAL = { atMost: 0 };

interface Attack {
  readonly name: string;
  /** Null where the processors alone are kept busy, by two processes that have nothing to do with the service. */
  readonly job: ((target: Target) => LoadJob) | null;
}

interface Target {
  readonly port: number;
  readonly transport: TransportName;
  readonly seconds: number;
  /** Of a neighbor. */
  readonly other: BenchApp;
}

const SILENT_BODIES = 'silent bodies';
const SPACES = 'a header of spaces';
const NESTED = 'forged tokens with nested arrays';
const GUESSES = 'guessed passwords';

/** Half of it opens arrays and the other half closes them; or as many empty ones as there is room for, side by side. */
function nestedPayloads(bytes: number): string[] {
  const half = Math.floor(bytes / 2) - 1_000;
  return [
    `{"a":${'['.repeat(half)}${']'.repeat(half)}}`,
    `{"a":[${'[],'.repeat(Math.floor((2 * half) / 3))}[]]}`,
  ];
}

const ATTACKS: readonly Attack[] = [
  {
    name: SILENT_BODIES,
    job: ({ port, seconds }) => ({
      kind: 'silent',
      port,
      seconds,
      connections: 16,
      announcedBytes: MEBIBYTE,
      // Sooner, the attack is one of bandwidth: refused at once, they would send 300 MB a second.
      againMs: 1_000,
      requests: [{ method: 'POST', path: '/api/session' }],
    }),
  },
  {
    name: SPACES,
    job: ({ port, seconds, transport: name }) => ({
      ...attackers(port, seconds),
      connections: 4,
      perSecond: 10,
      requests: [
        { method: 'GET', path: '/', headers: { 'Accept-Encoding': `a${' '.repeat(HEADER_BYTES[name])}b` } },
      ],
    }),
  },
  {
    name: NESTED,
    job: ({ port, seconds }) => ({
      ...attackers(port, seconds),
      connections: 4,
      perSecond: 9,
      requests: nestedPayloads(MEBIBYTE).map((payload) => ({
        method: 'POST' as const,
        path: '/public/create_event',
        body: `{"payload":${payload},"typeName":"x","loggingToken":"${createTokenText('tdl')}"}`,
      })),
    }),
  },
  {
    name: GUESSES,
    job: ({ port, seconds }) => ({
      ...attackers(port, seconds),
      connections: 240,
      perSecond: 100,
      // As a proxy says of whom it forwards: twelve addresses.
      requests: Array.from({ length: 12 }, (_, index) => wrongSignIn(`198.51.100.${index + 1}`)),
    }),
  },
];

const DEEP = 'deep bodies, ten at once';
const DEEP_PACED = 'deep bodies, ten a second';
const BATCHES = 'batches of 10,000 without pause';
const LARGE = 'batches of 8 MiB without pause';

function batchOf({ typeId, loggingToken }: BenchApp, events: number, payload: string): LoadRequest {
  const event = `{"typeId":"${typeId}","payload":${payload}}`;
  return {
    method: 'POST',
    path: '/v1/events',
    headers: { Authorization: `Bearer ${loggingToken}` },
    body: `{"events":[${Array.from({ length: events }, () => event).join(',')}]}`,
  };
}

function deepEvents({ loggingToken }: BenchApp): LoadRequest[] {
  return nestedPayloads(MEBIBYTE).map((payload) => ({
    method: 'POST',
    path: '/public/create_event',
    body: `{"payload":${payload},"typeName":"x","loggingToken":"${loggingToken}"}`,
  }));
}

/**
 * What another producer takes from this one by its use of the processors alone: a batch keeps the process that sends it and a
 * session of the database busy. What no service could give back is told apart from what this one could.
 */
const BUSY = 'two busy processes';
const NEIGHBORS: readonly Attack[] = [
  { name: BUSY, job: null },
  {
    name: DEEP_PACED,
    job: ({ port, seconds, other }) => ({
      ...attackers(port, seconds),
      connections: 10,
      perSecond: 10,
      requests: deepEvents(other),
    }),
  },
  {
    name: DEEP,
    job: ({ port, seconds, other }) => ({
      kind: 'closed',
      port,
      seconds,
      connections: 10,
      requests: deepEvents(other),
    }),
  },
  {
    name: BATCHES,
    job: ({ port, seconds, other }) => ({
      kind: 'closed',
      port,
      seconds,
      connections: 2,
      requests: [batchOf(other, 10_000, `{"text":"${'x'.repeat(100)}"}`)],
    }),
  },
  {
    name: LARGE,
    job: ({ port, seconds, other }) => ({
      kind: 'closed',
      port,
      seconds,
      connections: 2,
      requests: [batchOf(other, 80, `{"text":"${'x'.repeat(100_000)}"}`)],
    }),
  },
];

function attackers(
  port: number,
  seconds: number,
): Pick<OpenJob, 'kind' | 'port' | 'seconds' | 'warmUpSeconds'> {
  return { kind: 'open', port, seconds, warmUpSeconds: 0 };
}

/** What a time with or without an attack was like. */
interface Spell {
  readonly producers: LoadReport;
  /** Null where there was no attack. */
  readonly attackers: LoadReport | null;
  /** Seconds until the owner of the account that is guessed at had signed in; NaN where that did not happen. */
  readonly ownerSeconds: number;
}

interface Battlefield {
  readonly port: number;
  readonly transport: TransportName;
  readonly seconds: number;
  readonly good: LoadGenerator;
  readonly bad: LoadGenerator;
  readonly app: BenchApp;
  readonly other: BenchApp;
  /** Where the owner signs in from: an address that the service has not seen. */
  readonly newAddress: () => string;
}

function producersJob({ port, seconds, app }: Battlefield): OpenJob {
  return {
    kind: 'open',
    port,
    connections: 64,
    seconds,
    perSecond: PRODUCERS_PER_SECOND,
    warmUpSeconds: 0,
    requests: [createRequest(app, SMALL_PAYLOAD_BYTES)],
  };
}

async function spell(field: Battlefield, attack: Attack | null): Promise<Spell> {
  if (attack === null)
    return {
      producers: await field.good.run(producersJob(field)),
      attackers: null,
      ownerSeconds: Number.NaN,
    };
  const seconds = LEAD_MS / 1_000 + field.seconds + TAIL_SECONDS;
  const attacking = attack.job === null ? spin(seconds) : field.bad.run(attack.job({ ...field, seconds }));
  await new Promise((resolve) => setTimeout(resolve, LEAD_MS));
  const [producers, ownerSeconds] = await Promise.all([
    field.good.run(producersJob(field)),
    attack.name === GUESSES ? ownerSignsIn(field) : Number.NaN,
  ]);
  return { producers, attackers: await attacking, ownerSeconds };
}

/** Keeps two processors busy. */
async function spin(seconds: number): Promise<null> {
  await startSpinners(seconds).ended;
  return null;
}

/** Tries once a second, as a person does. @returns seconds until it went well; NaN where it did not in the time there was */
async function ownerSignsIn({ port, seconds, newAddress }: Battlefield): Promise<number> {
  const address = newAddress();
  const started = performance.now();
  const passed = (): number => (performance.now() - started) / 1_000;
  while (passed() < seconds) {
    const { status } = await trySignIn(port, { 'X-Forwarded-For': address });
    if (status === 200) return passed();
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
  return Number.NaN;
}

/** Requests of producers that were not answered with 201. */
function refusedOf({ statuses, unanswered, dropped }: LoadReport): number {
  const answered = Object.values(statuses).reduce((sum, count) => sum + count, 0);
  return answered - (statuses[201] ?? 0) + unanswered + dropped;
}

async function runOn(
  bench: Workbench,
  findings: Findings,
  name: TransportName,
  setting: {
    seconds: number;
    rounds: number;
    attacks: readonly Attack[];
    app: BenchApp;
    other: BenchApp;
    generators: readonly [LoadGenerator, LoadGenerator];
  },
): Promise<LoadReport[]> {
  const { seconds, rounds, attacks, app, other, generators } = setting;
  const service = await bench.startService({
    limits: 'lifted',
    settings: { HTTP_TRANSPORT: name, TRUST_PROXY: '1' },
  });
  let addresses = 0;
  const field: Battlefield = {
    port: service.port,
    transport: name,
    seconds,
    good: generators[0],
    bad: generators[1],
    app,
    other,
    newAddress: () => `203.0.113.${++addresses}`,
  };
  const warmUp = await spell({ ...field, seconds: Math.min(3, seconds) }, null);
  const alone: LoadReport[] = [];
  const beside = new Map<string, Spell[]>();
  for (let round = 0; round < rounds; round += 1) {
    alone.push((await spell(field, null)).producers);
    for (const attack of attacks)
      beside.set(attack.name, [...(beside.get(attack.name) ?? []), await spell(field, attack)]);
  }
  addLatency(findings, `${name}: producers alone`, alone);
  for (const [attack, spells] of beside) addAttack(findings, `${name}, ${attack}`, spells, alone);
  addControl(findings, name, beside);
  checkStatuses(findings, `${name}: producers alone`, [warmUp.producers, ...alone], [201]);
  await service.stop();
  return [warmUp.producers, ...alone, ...[...beside.values()].flat().map(({ producers }) => producers)];
}

function addAttack(
  findings: Findings,
  name: string,
  spells: readonly Spell[],
  alone: readonly LoadReport[],
): void {
  const producers = spells.map((one) => one.producers);
  const refused = producers.map(refusedOf);
  const of = (reports: readonly LoadReport[], key: keyof Latency): number[] =>
    reports.map(({ latency }) => latency?.[key] ?? Number.NaN);
  addLatency(findings, `${name}: producers`, producers);
  findings.figure(`${name}: producers refused`, '', refused);
  const attacks = spells.flatMap(({ attackers: report }) => report ?? []);
  if (attacks.length > 0)
    findings.figure(
      `${name}: attackers' answers`,
      '',
      attacks.map((report) => answersOf(report)),
    );
  if (name.endsWith(GUESSES))
    findings.figure(
      `${name}: owner signed in after`,
      's',
      spells.map(({ ownerSeconds }) => ownerSeconds),
    );
  findings.ratio(`${name}: p50 to alone`, pairwise(of(producers, 'p50'), of(alone, 'p50')));
  const isControl = attacks.length === 0;
  findings.ratio(
    `${name}: p99 to alone`,
    pairwise(of(producers, 'p99'), of(alone, 'p99')),
    isControl ? undefined : P99_GOAL,
  );
  findings.goal(`${name}: producers refused`, '', Math.max(...refused), NO_REFUSAL);
  if (isControl) return;
  const reached = attacks.every((report) => answersOf(report) + report.unanswered > 0);
  findings.check(`${name}: the attack reached the service`, reached, reached ? 'each time' : 'not each time');
}

/** How much longer producers wait beside each neighbor than beside processes that are as busy, where there was such a time. */
function addControl(findings: Findings, name: string, beside: ReadonlyMap<string, readonly Spell[]>): void {
  const p99 = (spells: readonly Spell[]): number[] =>
    spells.map(({ producers }) => producers.latency?.p99 ?? Number.NaN);
  const control = beside.get(BUSY);
  if (control === undefined) return;
  for (const [attack, spells] of beside)
    if (attack !== BUSY)
      findings.ratio(`${name}, ${attack}: p99 to ${BUSY}`, pairwise(p99(spells), p99(control)));
}

async function run(
  bench: Workbench,
  findings: Findings,
  options: RunOptions,
  attacks: readonly Attack[],
): Promise<void> {
  findings.note(
    `Producers: open loop, ${PRODUCERS_PER_SECOND} events a second on 64 connections. An attack and the time without it are neighbors. A refusal has its latency too: it counts beside the number of refusals.`,
  );
  const { seconds, rounds } = byLength(options, {
    full: { seconds: 15, rounds: 3 },
    quick: { seconds: 8, rounds: 1 },
    smoke: { seconds: 3, rounds: 1 },
  });
  const generators = [bench.startGenerator(), bench.startGenerator()] as const;
  const app = await bench.makeApp('producers');
  const other = await bench.makeApp('neighbor');
  await addDashboardUser(bench, [app.appId]);
  const transports: TransportName[] = (await transport()) === 'node:http' ? ['node'] : ['uws', 'node'];
  const reported: LoadReport[] = [];
  for (const name of transports)
    reported.push(
      ...(await runOn(bench, findings, name, { seconds, rounds, attacks, app, other, generators })),
    );
  // What got no answer may be stored or not.
  const isKnown = reported.every(({ unanswered }) => unanswered === 0);
  if (isKnown) checkLedger(findings, 'producers', reported, await sumOfTable(bench.sql, 'events', [app.id]));
  else findings.note('Requests without an answer: the ledger could not be compared.');
}

export const HOSTILE: Scenario = {
  name: 'hostile',
  about:
    'Attacks without a token beside producers, and attacks of an account beside others that write, read and sign in: latencies to those without, refusals, memory.',
  run: async (bench, findings, options) => {
    findings.note(
      'Silent bodies: 16 connections that send 1 MiB less a byte to /api/session and fall silent, a second after they were ended again. A header of spaces: Accept-Encoding, 10 a second. ' +
        'Made-up tokens: 9 bodies of 1 MiB a second. Guessed passwords: 100 a second for one account, 240 at once, from 12 addresses.',
    );
    await run(bench, findings, options, ATTACKS);
    await bench.tidy();
    await runAccounts(bench, findings, options);
  },
};

export const NEIGHBOURS: Scenario = {
  name: 'neighbours',
  about: 'An app that sends all that it can beside another one: the latency of that one to without.',
  run: async (bench, findings, options) => {
    findings.note(
      'Limits lifted. Deep bodies: events of 1 MiB of nested arrays, on ten connections, ten a second or without pause. Batches: on two connections without pause. Two busy processes count in a loop and send nothing: what the processors alone take.',
    );
    await run(bench, findings, options, NEIGHBORS);
  },
};
