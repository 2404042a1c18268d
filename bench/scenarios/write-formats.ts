/** write-formats: what a stored row costs by each way of writing and counting it that could be chosen. */

import { createEventIds } from '../../src/ingest/event-id.ts';
import type { DatabaseAddress, Sql } from '../../src/storage/database/connect.ts';
import { CopyConnection } from '../../src/storage/database/copy-connection.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { type EventRow, timestamp } from '../../src/storage/write/accepted-event.ts';
import { copyGroup } from '../../src/storage/write/engine-writes.ts';
import type { Findings } from '../findings.ts';
import { pairwise } from '../judge.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import type { Workbench } from '../servers/workbench.ts';

const CONNECTIONS = 2;
const APPS = 20;
const TYPES = 3;
const GROUP_SIZES = [60, 250] as const;

/** A way of writing: what a group's messages are, and how its schema counts. */
interface Way {
  readonly name: string;
  /** Schema of its own, with tables of the same shape. */
  readonly schema: string;
  readonly messages: (events: readonly EventRow[]) => Buffer;
  readonly commands: number;
  readonly isCounted: boolean;
}

const WAYS: readonly Way[] = [
  {
    name: 'text, counted by a trigger',
    schema: 'bench_trigger',
    messages: (events) => textMessages([[COPY_EVENTS, eventLines(events)]]),
    commands: 1,
    isCounted: true,
  },
  {
    name: 'text, with deltas',
    schema: 'bench_text',
    messages: (events) =>
      textMessages([
        [COPY_EVENTS, eventLines(events)],
        [COPY_DELTAS, deltaLines(events)],
      ]),
    commands: 2,
    isCounted: true,
  },
  {
    name: 'binary, with deltas (the service)',
    schema: 'bench_binary',
    messages: (events) => copyGroup(ENGINES.postgres.writes, events).messages,
    commands: 2,
    isCounted: true,
  },
  {
    name: 'text, not counted',
    schema: 'bench_uncounted',
    messages: (events) => textMessages([[COPY_EVENTS, eventLines(events)]]),
    commands: 1,
    isCounted: false,
  },
];

const COPY_EVENTS = 'COPY events (id, app_id, type_id, created_at, payload) FROM STDIN';
const COPY_DELTAS = 'COPY count_deltas (app_id, type_id, bucket, count) FROM STDIN';

function eventLines(events: readonly EventRow[]): string {
  let lines = '';
  for (const { id, appId, typeId, createdAt, payload } of events)
    lines += `${id}\t${appId}\t${typeId}\t${timestamp(createdAt)}\t${payload.replaceAll('\\', '\\\\')}\n`;
  return lines;
}

function deltaLines(events: readonly EventRow[]): string {
  const counts = new Map<string, number>();
  for (const { appId, typeId, createdAt } of events) {
    const key = `${appId}\t${typeId}\t${timestamp(Math.floor(createdAt / 60_000) * 60_000)}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  let lines = '';
  for (const [key, count] of counts) lines += `${key}\t${count}\n`;
  return lines;
}

/** The messages of COPY commands in the text format, as one write. */
function textMessages(copies: readonly (readonly [statement: string, lines: string])[]): Buffer {
  const query = message('Q', `${copies.map(([statement]) => statement).join(';')}\0`);
  return Buffer.concat([query, ...copies.flatMap(([, lines]) => [message('d', lines), message('c', '')])]);
}

function message(type: string, body: string): Buffer {
  const bytes = Buffer.byteLength(body);
  const buffer = Buffer.allocUnsafe(5 + bytes);
  buffer.write(type, 0, 'latin1');
  buffer.writeInt32BE(bytes + 4, 1);
  buffer.write(body, 5);
  return buffer;
}

/** A schema as the service's, with a partition for today; the trigger is the one that counted before the writer did. */
async function makeSchema(sql: Sql, { schema }: Way): Promise<void> {
  await sql.unsafe(`
    CREATE SCHEMA ${schema};
    SET search_path = ${schema}, public;
    CREATE TABLE ${schema}.events (LIKE public.events, UNIQUE (app_id, created_at, id)) PARTITION BY RANGE (created_at);
    CREATE TABLE ${schema}.events_today PARTITION OF ${schema}.events FOR VALUES FROM ('2000-01-01Z') TO ('2200-01-01Z');
    CREATE TABLE ${schema}.count_deltas (LIKE public.count_deltas INCLUDING DEFAULTS INCLUDING INDEXES);
    RESET search_path`);
  if (schema !== 'bench_trigger') return;
  await sql.unsafe(`
    CREATE FUNCTION ${schema}.count_new_events() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO ${schema}.count_deltas (app_id, type_id, bucket, count)
      SELECT app_id, type_id, date_bin('1 minute', created_at, 'epoch'), count(*) FROM new_events GROUP BY 1, 2, 3;
      RETURN NULL;
    END $$;
    CREATE TRIGGER count_new_events AFTER INSERT ON ${schema}.events
      REFERENCING NEW TABLE AS new_events FOR EACH STATEMENT EXECUTE FUNCTION ${schema}.count_new_events()`);
}

const newId = createEventIds();

/** Events of several apps, each payload a slice of a larger text as it comes from a request. */
function group(size: number): EventRow[] {
  const createdAt = Date.now();
  return Array.from({ length: size }, (_, n) => {
    const fields = `"path":"/articles/${1_000 + n}","referrer":"https://example.org/","user":"u-4711","seconds":42`;
    const body = `{"payload":{${fields},"text":"${'abcdefghijklmnopqrstuvwxyz'.repeat(3)}"}}`;
    const payload = body.slice('{"payload":'.length, -1);
    return { id: newId(createdAt), appId: 1 + (n % APPS), typeId: 1 + (n % TYPES), createdAt, payload };
  });
}

interface Cost {
  readonly databaseMicros: number;
  readonly ownMicros: number;
}

/** CPU of a row, of PostgreSQL with all of its processes and of this one. */
async function costOf(
  bench: Workbench,
  way: Way,
  connections: readonly CopyConnection[],
  job: { readonly size: number; readonly groups: number },
): Promise<Cost> {
  let left = job.groups;
  const events = Array.from({ length: job.groups }, () => group(job.size));
  const before = { database: bench.databaseCpu(), own: process.cpuUsage() };
  await Promise.all(
    connections.map(async (connection) => {
      while (left > 0) {
        left -= 1;
        await connection.copy({
          messages: way.messages(events[left] ?? []),
          commands: way.commands,
          release: () => undefined,
        });
      }
    }),
  );
  const own = process.cpuUsage(before.own);
  const rows = job.groups * job.size;
  return {
    databaseMicros: ((bench.databaseCpu() - before.database) * 1_000) / rows,
    ownMicros: (own.user + own.system) / rows,
  };
}

async function storedIn(sql: Sql, { schema }: Way): Promise<{ rows: number; counted: number }> {
  const [sums] = await sql<{ rows: number; counted: number }[]>`
    SELECT (SELECT count(*)::integer FROM ${sql(schema)}.events) AS rows,
           (SELECT coalesce(sum(count), 0)::integer FROM ${sql(schema)}.count_deltas) AS counted`;
  return sums ?? { rows: 0, counted: 0 };
}

function connectionsOf(address: DatabaseAddress, { schema }: Way): CopyConnection[] {
  return Array.from(
    { length: CONNECTIONS },
    (_, n) => new CopyConnection(address, `bench ${n}`, undefined, { search_path: schema }),
  );
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  findings.note(
    `${APPS} apps, ${TYPES} types, ${group(1)[0]?.payload.length} bytes of payload, ${CONNECTIONS} connections; CPU by /proc, in rounds of changing order.`,
  );
  const { rounds, rows } = byLength(options, {
    full: { rounds: 7, rows: 60_000 },
    quick: { rounds: 3, rows: 30_000 },
    smoke: { rounds: 1, rows: 10_000 },
  });
  const { sql } = bench;
  const contenders = WAYS.map((way) => ({ way, connections: connectionsOf(bench.connection, way) }));
  for (const way of WAYS) await makeSchema(sql, way);
  for (const size of GROUP_SIZES) {
    const job = { size, groups: Math.ceil(rows / size) };
    const costs = new Map<string, Cost[]>(WAYS.map(({ name }) => [name, []]));
    for (let round = -1; round < rounds; round += 1) {
      for (const { way, connections } of round % 2 === 0 ? contenders : contenders.toReversed()) {
        await sql.unsafe(`TRUNCATE ${way.schema}.events, ${way.schema}.count_deltas`);
        const cost = await costOf(bench, way, connections, job);
        // The first round warms up.
        if (round >= 0) costs.get(way.name)?.push(cost);
        const stored = await storedIn(sql, way);
        const expected = job.groups * job.size;
        findings.checkAll(
          'every row is stored, and counted where rows are',
          stored.rows === expected && stored.counted === (way.isCounted ? expected : 0),
        );
      }
    }
    addFigures(findings, size, costs);
  }
  for (const { connections } of contenders)
    await Promise.all(connections.map((connection) => connection.close()));
}

function addFigures(findings: Findings, size: number, costs: ReadonlyMap<string, readonly Cost[]>): void {
  const database = (name: string): number[] => (costs.get(name) ?? []).map((cost) => cost.databaseMicros);
  const own = (name: string): number[] => (costs.get(name) ?? []).map((cost) => cost.ownMicros);
  for (const { name } of WAYS) {
    findings.figure(`groups of ${size}: ${name}: PostgreSQL`, 'µs a row', database(name));
    findings.figure(`groups of ${size}: ${name}: Node`, 'µs a row', own(name));
  }
  const [trigger, text, binary] = WAYS.map(({ name }) => name);
  if (trigger === undefined || text === undefined || binary === undefined) return;
  const ratio = (title: string, ours: number[], theirs: number[]): void =>
    findings.ratio(`groups of ${size}: ${title}`, pairwise(ours, theirs));
  ratio("PostgreSQL's CPU, binary with deltas to text with a trigger", database(binary), database(trigger));
  ratio("PostgreSQL's CPU, binary with deltas to text with deltas", database(binary), database(text));
  ratio("Node's CPU, binary with deltas to text with a trigger", own(binary), own(trigger));
  ratio("Node's CPU, binary with deltas to text with deltas", own(binary), own(text));
}

export const WRITE_FORMATS: Scenario = {
  name: 'write-formats',
  about:
    'CPU of a stored row by format of COPY and way of counting: what the writer does beside what it could do.',
  run,
};
