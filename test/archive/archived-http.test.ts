/** The read API over days that are in the archive alone: the same answers; and what it says where the archive does not answer. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { archiveDueDays } from '../../src/archive/archiving.ts';
import { openArchiveStore } from '../../src/archive/store.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { connect } from '../../src/storage/database/connect.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { testDatabase } from '../support/database.ts';
import { sized } from '../support/fuzz.ts';
import { hurryRounds, startTestService, type TestService, until } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';

hurryRounds();

const DAY_MS = 86_400_000;
const START = Date.parse('2026-03-28T00:00:00Z');
const EVENTS = 6_000;

type Mode = 'well' | 'whole' | 'away' | 'silent' | 'cut' | 'lies' | 'empty';

/** Some of S3, which fails as it is told. */
class FakeBucket {
  readonly objects = new Map<string, Buffer>();
  mode: Mode = 'well';
  /** Requests that are not answered. */
  readonly open = new Set<ServerResponse>();
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => void this.#answer(request, response));
  }

  static async start(): Promise<FakeBucket> {
    const bucket = new FakeBucket();
    await new Promise<void>((resolve) => {
      bucket.#server.listen(0, '127.0.0.1', resolve);
    });
    return bucket;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const key = request.url ?? '';
    if (request.method === 'PUT') this.objects.set(key, Buffer.concat(chunks));
    if (request.method === 'DELETE') this.objects.delete(key);
    const object = this.objects.get(key);
    if (request.method !== 'GET') response.end();
    else if (object === undefined || this.mode === 'empty')
      response.writeHead(404).end('<Code>NoSuchKey</Code>');
    else this.#give(object, request.headers.range, response);
  }

  #give(object: Buffer, range: string | undefined, response: ServerResponse): void {
    const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? [];
    const part = first === undefined ? object : object.subarray(Number(first), Number(last) + 1);
    const status = first === undefined ? 200 : 206;
    if (this.mode === 'away') response.destroy();
    else if (this.mode === 'silent') {
      this.open.add(response);
      response.on('close', () => this.open.delete(response));
    } else if (this.mode === 'cut') {
      response.writeHead(status, { 'content-length': part.length });
      response.write(part.subarray(0, part.length >> 1), () => response.destroy());
    } else if (this.mode === 'lies') {
      const other = Buffer.from(part);
      other[other.length >> 1] = 255 - (other[other.length >> 1] ?? 0);
      response.writeHead(status).end(other);
    } else if (this.mode === 'whole') response.end(object);
    else response.writeHead(status).end(part);
  }
}

let bucket: FakeBucket;
let service: TestService;
let appId: string;
let token: string;
let ids: readonly string[];

beforeAll(async () => {
  bucket = await FakeBucket.start();
  const settings = {
    ARCHIVE_URL: 's3://events/archive',
    AWS_ENDPOINT_URL: bucket.endpoint,
    ...{ AWS_ACCESS_KEY_ID: 'key', AWS_SECRET_ACCESS_KEY: 'secret', AWS_REGION: 'us-east-1' },
  };
  const database = await testDatabase('postgres18', { prepared: true });
  service = await startTestService({
    database,
    config: { ...settings, READ_CONNECTIONS: 2, READ_LIMIT_PER_MINUTE: 0 },
  });
  const { sql } = service;
  ({ appId } = service.app);
  token = (await createResourceToken(sql, { name: 'test', appIds: [appId], expiresInSeconds: null }))
    .resourceToken;
  await ENGINES.postgres.createPartitions(sql, { from: START, until: START + 3 * DAY_MS });
  const [app] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
  const type = await service.newType(service.app, 'order');
  const types = await sql<
    { id: number }[]
  >`SELECT id FROM event_types WHERE public_id IN (${type.typeId}, ${service.type.typeId}) ORDER BY id`;
  const newId = createEventIds();
  const rows = Array.from({ length: EVENTS + 60 }, (_, index) => {
    const at = index < EVENTS ? START + index * 14_000 : START + DAY_MS + (index - EVENTS) * 1_000;
    const payload = `{"n":${index},"path":"/${index % 7}", "text": "<ä>"}`;
    return { id: newId(at), appId: app?.id ?? 0, typeId: types[index % 2]?.id ?? 0, at, payload };
  });
  ids = rows.map(({ id }) => id);
  await storeRows(sql, 'postgres', rows);
});

afterAll(async () => {
  await service.stop();
  await service.database.drop();
  await bucket.stop();
});

afterEach(() => {
  bucket.mode = 'well';
});

/** Archives the first day, whose rows leave. */
async function leave(): Promise<void> {
  const alone = connect(service.database.address, { connections: 1, name: 'test archive' });
  try {
    const storage = await openStorage(alone);
    const store = openArchiveStore(service.config);
    const problems: unknown[] = [];
    await archiveDueDays({
      ...{ sql: alone, storage, store, installationId: 'here', filter: { app: appId } },
      ...{ until: START + DAY_MS, keepRows: false, reachMs: 7 * DAY_MS },
      onDay: ({ problem }) => problems.push(problem),
    });
    expect(problems).toEqual([null]);
  } finally {
    await alone.end();
  }
}

interface Answer {
  readonly status: number;
  readonly retryAfter: string | null;
  readonly body: string;
}

async function get(path: string, init: RequestInit = {}): Promise<Answer> {
  const headers = { authorization: `Bearer ${token}` };
  const response = await fetch(`${service.url}${path}`, { headers, ...init });
  return {
    status: response.status,
    retryAfter: response.headers.get('retry-after'),
    body: await response.text(),
  };
}

/** Gives the objects another key: nothing of them is in memory any more. */
async function forget(): Promise<void> {
  const { sql } = service;
  const copied = await sql<{ before: string; key: string }[]>`
    UPDATE archived_parts AS part SET key = old.key || '-again' FROM archived_parts AS old
     WHERE old.app_id = part.app_id AND old.day = part.day AND old.part = part.part
    RETURNING old.key AS before, part.key`;
  for (const { before, key } of copied) {
    const path = `/events/archive/`;
    bucket.objects.set(path + key, bucket.objects.get(path + before) ?? Buffer.alloc(0));
  }
}

const archivedPage = (): string =>
  `/public/get_events?appId=${appId}&startDate=2026-03-28&endDate=2026-03-28&limit=3`;
const localPage = (): string =>
  `/public/get_events?appId=${appId}&startDate=2026-03-29&endDate=2026-03-29&limit=3`;

test('every read answers byte for byte as before the rows left', async () => {
  const app = `/v1/apps/${appId}`;
  const from = '2026-03-28T03:00:07.001Z';
  const paths = [
    archivedPage(),
    `/public/get_events?appId=${appId}&order=desc&offset=100&limit=100`,
    `/public/get_events?appId=${appId}&startDate=${from}&offset=4000&limit=1000`,
    `${app}/events?total=exact&limit=5&from=${from}&to=2026-03-28T09:12:33.444Z`,
    `${app}/events?order=desc&limit=40&typeName=order&total=exact`,
    `${app}/events?q=%3C%C3%A4%3E&limit=20&order=desc&from=2026-03-28T23:30:00Z`,
    `${app}/events?filter=path:/3&limit=20&to=2026-03-29`,
    `${app}/events?filter=n>=5995&limit=20&from=2026-03-28T23:00:00Z`,
    `${app}/events/${ids[17]}`,
    `${app}/series?interval=1h&from=${from}&to=2026-03-29T00:00:20.500Z&by=type`,
    `${app}/export?from=${from}`,
    `${app}/export?format=csv&filter=path:/3&column=n`,
    `${app}/export?cursor=${ids[5_500]}`,
    `${app}/types`,
    `${app}/fields`,
  ];
  const query = {
    from: '2026-03-28T00:00:00Z',
    to: '2026-03-30T00:00:00Z',
    filter: ['path:/1,/2'],
    by: ['path'],
  };
  const ask = async (): Promise<readonly (readonly [string, number, string])[]> => {
    const answers: [string, number, string][] = [];
    for (const path of paths) {
      const { status, body } = await get(path);
      answers.push([path, status, body]);
    }
    const { status, body } = await get(`${app}/query`, {
      method: 'POST',
      body: JSON.stringify(query),
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    });
    // The lines before the last one say how far it has come.
    answers.push(['query', status, body.trim().split('\n').at(-1) ?? '']);
    return answers;
  };
  const before = await ask();
  expect(before.filter(([, status]) => status !== 200)).toEqual([]);
  let next: string | null = null;
  const follow = async (): Promise<string[]> => {
    const pages: string[] = [];
    next = '';
    for (let left = 4; next !== null && left > 0; left -= 1) {
      const { body } = await get(`${app}/events?limit=700${next && `&cursor=${next}`}`);
      pages.push(body);
      next = JSON.parse(body).data.pagination.nextCursor ?? null;
    }
    return pages;
  };
  const pages = await follow();
  await leave();
  const [row] = await service.sql<{ rows: number }[]>`SELECT count(*)::integer AS rows FROM events`;
  expect(row?.rows).toBe(60);
  for (const [index, [path, status, body]] of (await ask()).entries())
    expect({ status, body }, path).toEqual({ status: 200, body: before[index]?.[2] });
  expect(await follow()).toEqual(pages);
  // A server may send the whole object for a range.
  await forget();
  bucket.mode = 'whole';
  expect((await get(archivedPage())).body).toBe(before[0]?.[2]);
});

test.each(sized<readonly Mode[]>(['away', 'lies'], ['away', 'cut', 'lies', 'empty']))(
  'where the archive does this, archived days alone are a 503: %s',
  async (mode) => {
    await forget();
    bucket.mode = mode;
    const expected = {
      status: 503,
      retryAfter: '10',
      body: expect.stringContaining(
        'Events of this time are in the archive, which cannot be read now; try again later.',
      ),
    };
    const app = `/v1/apps/${appId}`;
    for (const path of [
      archivedPage(),
      `${app}/events?to=2026-03-29`,
      `${app}/events?q=x&to=2026-03-29`,
      `${app}/events/${ids[5]}`,
      `${app}/export`,
    ])
      expect(await get(path), path).toEqual(expected);
    expect(await get(localPage())).toMatchObject({ status: 200 });
    expect(await get(`/public/get_events?appId=${appId}&order=desc&limit=2`)).toMatchObject({ status: 200 });
    expect(await get(`${app}/series?interval=1d`)).toMatchObject({ status: 200 });
    expect(await get(`${app}/events/${ids.at(-1)}`)).toMatchObject({ status: 200 });
    bucket.mode = 'well';
    expect(await get(archivedPage())).toMatchObject({ status: 200 });
  },
);

test('twenty readers of a silent archive hold up nobody, and leave nothing when they go', async () => {
  await forget();
  bucket.mode = 'silent';
  const gone = new AbortController();
  const readers = Array.from({ length: 20 }, async (_, index) => {
    const headers = { authorization: `Bearer ${token}` };
    await get(`${archivedPage()}&offset=${index * 300}`, { headers, signal: gone.signal }).catch(
      () => undefined,
    );
  });
  await until(() => bucket.open.size > 0, 'the archive is asked');
  for (let round = 0; round < 10; round += 1) expect(await get(localPage())).toMatchObject({ status: 200 });
  gone.abort();
  await Promise.all(readers);
  await until(() => bucket.open.size === 0, 'no request to the archive is left');
  const metrics = async (): Promise<string> => (await service.request({ path: '/metrics' })).body;
  await until(async () => /^tidemark_archive_reads_waiting 0$/m.test(await metrics()), 'no read waits');
  expect(await metrics()).toMatch(/^tidemark_reads_running\{kind="get_events"\} 0$/m);
  bucket.mode = 'well';
  expect(await get(archivedPage())).toMatchObject({ status: 200 });
});

test('groups that are read are counted in the metrics', async () => {
  const { body } = await service.request({ path: '/metrics' });
  const counted = /^tidemark_archive_reads_total\{outcome="(\w+)"\} ([1-9]\d*)$/gm;
  expect([...body.matchAll(counted)].map(([, outcome]) => outcome)).toEqual(['read', 'cached', 'failed']);
});
