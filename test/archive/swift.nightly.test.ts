/** An archive in a bucket of OpenStack Swift: an S3 that checks signatures and digests, and that others have written. */
import { createServer, request, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { AwsClient } from 'aws4fetch';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { archiveDueDays, readArchivedDay, verifyArchive } from '../../src/archive/archiving.ts';
import { listArchivedDays, noteChanged } from '../../src/archive/days.ts';
import { ArchiveError, openArchiveStore, probeArchive } from '../../src/archive/store.ts';
import { readConfig } from '../../src/config.ts';
import { createEventIds } from '../../src/ingest/event-id.ts';
import { connect } from '../../src/storage/database/connect.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { type Outcome, tidemark } from '../support/command-line.ts';
import { hasSwift } from '../support/daemons.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import { testSecret } from '../support/service.ts';
import { storeRows } from '../support/stored-events.ts';
import { SWIFT_KEY_ID, SWIFT_REGION, SWIFT_SECRET, type Swift, startSwift } from '../support/swift.ts';

const DAY = '2026-03-28';
const START = Date.parse(`${DAY}T00:00:00Z`);
const UNTIL = START + 86_400_000;
const newId = createEventIds();

/** In front of Swift: at a request of a number it cuts the connection, before the request has come to Swift or after. */
class Front {
  readonly #server: Server;
  /** Requests that succeed before one fails. */
  failsAfter = Number.POSITIVE_INFINITY;
  /** Whether the request that fails has been done nevertheless. */
  failsLate = false;

  constructor(endpoint: string) {
    this.#server = createServer((incoming, outgoing) => {
      this.failsAfter -= 1;
      const isCut = this.failsAfter < 0;
      if (isCut && !this.failsLate) {
        incoming.socket.destroy();
        return;
      }
      // The signature is of the name that the client has used.
      const { method, headers, url } = incoming;
      const passed = request(`${endpoint}${url}`, { method, headers }, (answer) => {
        if (isCut) {
          answer.resume().on('end', () => outgoing.destroy());
          return;
        }
        outgoing.writeHead(answer.statusCode ?? 0, answer.headers);
        answer.pipe(outgoing);
      });
      incoming.pipe(passed);
    });
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => {
      this.#server.listen(0, '127.0.0.1', resolve);
    });
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`; // A TCP server has one.
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

describe.runIf(hasSwift)('a bucket of Swift', () => {
  let swift: Swift;
  let front: Front;
  let database: TestDatabase;
  let settings: Record<string, string>;
  let app: { readonly id: number; readonly typeId: number };

  beforeAll(async () => {
    [swift, database] = await Promise.all([startSwift(), testDatabase('postgres18', { prepared: true })]);
    front = new Front(swift.endpoint);
    settings = {
      ...{ DATABASE_URL: database.url, ARCHIVE_URL: 's3://events/a-prefix/of.it', AWS_REGION: SWIFT_REGION },
      ...{ AWS_ACCESS_KEY_ID: SWIFT_KEY_ID, AWS_SECRET_ACCESS_KEY: SWIFT_SECRET },
      AWS_ENDPOINT_URL: await front.listen(),
    };
    const { sql } = database;
    const { appId } = await createApp(sql, await testSecret(), { name: 'archived' });
    await createEventType(sql, { appId, name: 'order', maxTypes: 10 });
    const [ids] = await sql<
      { id: number; typeId: number }[]
    >`SELECT app_id AS id, id AS "typeId" FROM event_types`;
    app = { id: ids?.id ?? 0, typeId: ids?.typeId ?? 0 };
    await ENGINES.postgres.createPartitions(sql, { from: START, until: UNTIL });
    const made = await client().fetch(`${swift.endpoint}/events`, { method: 'PUT' });
    expect(made.status, await made.text()).toBe(200);
  }, 120_000);

  beforeEach(() => {
    Object.assign(front, { failsAfter: Number.POSITIVE_INFINITY, failsLate: false });
  });

  afterAll(async () => {
    front.close();
    await Promise.all([swift.stop(), database.drop()]);
  });

  const client = (): AwsClient =>
    new AwsClient({
      ...{ accessKeyId: SWIFT_KEY_ID, secretAccessKey: SWIFT_SECRET },
      ...{ region: SWIFT_REGION, service: 's3', retries: 0 },
    });
  const storeOf = (more: Record<string, string> = {}): ReturnType<typeof openArchiveStore> =>
    openArchiveStore(readConfig({ ...settings, ...more }));
  const run = (...args: string[]): Promise<Outcome> => tidemark(['archive', ...args, '--json'], settings);

  async function store(count: number): Promise<void> {
    const rows = Array.from({ length: count }, (_, n) => {
      const at = START + n * 1_000;
      return { id: newId(at), appId: app.id, typeId: app.typeId, at, payload: `{"n": ${n}, "text":"ä😀"}` };
    });
    await storeRows(database.sql, 'postgres', rows);
  }

  /** Archives the day, in the same way as the command, and says what was wrong. */
  async function archive(): Promise<readonly (string | null)[]> {
    const sql = connect(database.address, { connections: 1, name: 'test archive' });
    const problems: (string | null)[] = [];
    try {
      const options = { sql, storage: await openStorage(sql), store: storeOf(), installationId: 'here' };
      const onDay = ({ problem }: { problem: string | null }): number => problems.push(problem);
      await archiveDueDays({ ...options, filter: {}, until: UNTIL, keepRows: true, reachMs: 0, onDay });
    } finally {
      await sql.end();
    }
    return problems;
  }

  /** Keys below the prefix of an installation. */
  async function keysIn(prefix: string): Promise<string[]> {
    const query = new URLSearchParams({ prefix: `a-prefix/of.it/${prefix}` });
    const answer = await client().fetch(`${swift.endpoint}/events?${query}`);
    return [...(await answer.text()).matchAll(/<Key>([^<]+)<\/Key>/g)].map(([, key = '']) => key);
  }

  test('takes objects, gives them back and removes them', async () => {
    const own = storeOf();
    await probeArchive(own);
    for (const bytes of [Buffer.alloc(0), Buffer.from('ä'), Buffer.alloc(3_000_000, 7)]) {
      await own.put('one/two-3.parquet', bytes);
      expect((await own.get('one/two-3.parquet')).equals(bytes)).toBe(true);
    }
    await own.remove('one/two-3.parquet');
    await own.remove('one/two-3.parquet');
    await expect(own.get('one/two-3.parquet')).rejects.toMatchObject({ isMissing: true });
  });

  test.each([
    [{ AWS_SECRET_ACCESS_KEY: 'another secret' }, '403 SignatureDoesNotMatch'],
    [{ AWS_ACCESS_KEY_ID: 'test:nobody' }, '403 SignatureDoesNotMatch'],
    [{ AWS_REGION: 'us-west-1' }, '400 AuthorizationHeaderMalformed'],
    [{ ARCHIVE_URL: 's3://other/prefix' }, '404 NoSuchBucket'],
  ])('refuses what is signed or named otherwise (%o)', async (more, reason) => {
    const other = storeOf(more);
    await expect(other.put('a', Buffer.from('1'))).rejects.toThrow(reason);
    const failure: unknown = await other.get('a').catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(ArchiveError);
    expect(failure).toMatchObject({ isMissing: false });
  });

  test('has days, verifies them and gives them back', async () => {
    await store(30);
    expect(JSON.parse((await run('run')).stdout)).toMatchObject({
      problems: 0,
      days: [{ day: DAY, events: 30 }],
    });
    expect(JSON.parse((await run('verify')).stdout)).toMatchObject({ problems: 0, days: [{ events: 30 }] });
    expect(JSON.parse((await run('restore', DAY)).stdout)).toMatchObject({ events: 30 });
    expect(JSON.parse((await run('run')).stdout)).toMatchObject({ days: [] });
  });

  test.each([false, true])(
    'has one whole day, at whichever request the connection is cut (done nevertheless: %s)',
    async (late) => {
      const { sql } = database;
      for (let step = 0, isOver = false; !isOver; step += 1) {
        await sql`DELETE FROM archived_days`;
        await store(1);
        await archive();
        await store(1);
        await noteChanged(sql, app.id, DAY);
        Object.assign(front, { failsAfter: step, failsLate: late });
        const problems = await archive().catch(() => ['failed']);
        isOver = front.failsAfter >= 0;
        front.failsAfter = Number.POSITIVE_INFINITY;
        const [known] = await listArchivedDays(sql, {});
        // What the database calls archived is there and whole, whenever the connection was cut.
        let events = 0;
        for await (const some of readArchivedDay(storeOf(), { parts: known?.parts ?? [] }))
          events += some.length;
        expect(events).toBe(known?.events);
        if (problems.some((problem) => problem !== null)) expect(known?.counted).toBe(-1);
      }
      await archive();
      const found: (string | null)[] = [];
      const options = {
        sql,
        storage: await openStorage(sql),
        store: storeOf(),
        installationId: 'here',
        filter: {},
      };
      await verifyArchive({ ...options, onDay: ({ problem }) => found.push(problem) });
      expect(found).toEqual([null]);
      const [known] = await listArchivedDays(sql, {});
      const [rows] = await sql<{ count: number }[]>`SELECT count(*)::integer AS count FROM events`;
      expect(known?.events).toBe(rows?.count);
      expect(await keysIn(known?.parts[0]?.key ?? 'none')).toHaveLength(1);
    },
  );

  test('of which a part is lost is said', async () => {
    const [known] = await listArchivedDays(database.sql, {});
    await storeOf().remove(known?.parts[0]?.key ?? '');
    const outcome = await run('verify');
    expect([outcome.code, JSON.parse(outcome.stdout)]).toEqual([2, expect.objectContaining({ problems: 1 })]);
  });
});
