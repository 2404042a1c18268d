/** A database user without a privilege that writing needs: an outage for producers, and a line for the operator. */
import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { refused } from '../http/answers.ts';
import { addressWith } from '../support/cluster.ts';
import { type TestDatabase, testDatabase } from '../support/database.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { ids, Opened, storedIds, untilReplayed } from '../support/proxied-service.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

const opened = new Opened();
afterEach(opened.stopAll);

interface Owned {
  readonly database: TestDatabase;
  readonly role: string;
}

/** A database whose tables belong to a role without special rights. */
async function ownedDatabase(): Promise<Owned> {
  const database = await testDatabase();
  const role = `role_${randomUUID().replaceAll('-', '')}`;
  const { sql } = database;
  await sql.unsafe(`
    CREATE ROLE ${role} LOGIN PASSWORD 'ordinary';
    ALTER SCHEMA public OWNER TO ${role};
    DO $$
    DECLARE one record;
    BEGIN
      FOR one IN SELECT oid::regclass AS name, relkind FROM pg_class
                  WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
                    AND NOT (relkind = 'S' AND EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype IN ('a', 'i')))
      LOOP EXECUTE format('ALTER TABLE %s OWNER TO ${role}', one.name); END LOOP;
      FOR one IN SELECT oid::regprocedure AS name FROM pg_proc WHERE pronamespace = 'public'::regnamespace
      LOOP EXECUTE format('ALTER ROUTINE %s OWNER TO ${role}', one.name); END LOOP;
    END $$`);
  return { database, role };
}

async function serve(config: Record<string, string> = {}): Promise<{ service: TestService; role: string }> {
  const { database, role } = await ownedDatabase();
  const service = await startTestService({
    config,
    database,
    reach: async (address) => addressWith(address, { user: role, password: 'ordinary' }),
  });
  opened.add(service, {
    stop: async () => {
      await database.sql.unsafe(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`);
      await database.drop();
    },
  });
  expect((await service.post()).status).toBe(201);
  await service.sql`TRUNCATE events`;
  return { service, role };
}

const readyz = (service: TestService, query = ''): Promise<HttpResponse> =>
  service.request({ path: `/readyz${query}` });

test('without INSERT events get 503, /readyz is 503, and the log names the privilege and the table', async () => {
  const { service, role } = await serve();
  await service.sql.unsafe(`REVOKE INSERT ON events FROM ${role}`);
  refused(await service.post(), 503, 'UNAVAILABLE', 'Service unavailable');
  await until(async () => (await readyz(service)).status === 503, '/readyz says so');
  for (const query of ['', '?for=writing']) {
    const { status, body } = await readyz(service, query);
    expect(status).toBe(503);
    expect(JSON.parse(body).details).toContain('privilege');
  }
  expect(service.log.filter(({ msg }) => msg === 'database: privilege missing')).toEqual([
    expect.objectContaining({ level: 'error', privilege: 'INSERT', tables: ['events'] }),
  ]);
  expect(service.log.filter(({ msg }) => String(msg).includes('write: failed in'))).toEqual([]);
  await service.sql.unsafe(`GRANT INSERT ON events TO ${role}`);
  await until(async () => (await readyz(service)).status === 200, 'it is ready again');
  expect((await service.post()).status).toBe(201);
  // Without INSERT on event types a new name is refused.
  await service.sql.unsafe(`REVOKE INSERT ON event_types FROM ${role}`);
  const answer = await service.post({ typeId: null, typeName: 'new' });
  refused(answer, 503, 'UNAVAILABLE', 'Service unavailable');
});

test('with a journal the events wait there until the privilege is granted', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-privileges-'));
  const { service, role } = await serve({ JOURNAL_DIR: folder });
  opened.add({ stop: () => rm(folder, { recursive: true, force: true }) });
  await service.sql.unsafe(`REVOKE INSERT ON events FROM ${role}`);
  const answers = await Promise.all(Array.from({ length: 5 }, () => service.post()));
  expect(answers.map(({ status }) => status)).toEqual(Array(5).fill(201));
  expect(await storedIds(service)).toEqual([]);
  await service.sql.unsafe(`GRANT INSERT ON events TO ${role}`);
  await untilReplayed(service);
  expect(await storedIds(service)).toEqual(ids(answers));
});
