/** An outage of the database: with a journal producers go on, without one they are told at once. */

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { rotateLoggingToken } from '../../src/apps/logging-tokens.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { refused } from '../http/answers.ts';
import { availableEngines } from '../support/database.ts';
import { first } from '../support/fuzz.ts';
import type { HttpResponse } from '../support/http-client.ts';
import {
  ids,
  Opened,
  PATIENT,
  storedIds,
  untilChangesAreHeard,
  untilReplayed,
  waitingEvents,
} from '../support/proxied-service.ts';
import { type Fate, isCopy } from '../support/proxy.ts';
import { RunningClock, type TestService, testSecret, until } from '../support/service.ts';

const opened = new Opened();
afterEach(opened.stopAll);
const { journaled, proxied } = opened;
const ENGINES = first(availableEngines());

function said(service: TestService, message: string): boolean {
  return service.log.some(({ msg }) => String(msg).includes(message));
}

/** What a reader is told that there is. */
async function total({ request, sql, app }: TestService): Promise<number> {
  const token = { name: 'total', appIds: [app.appId], expiresInSeconds: null };
  const { resourceToken } = await createResourceToken(sql, token);
  const { body } = await request({
    path: `/public/get_events?appId=${app.appId}&limit=1`,
    headers: { Authorization: `Bearer ${resourceToken}` },
  });
  return JSON.parse(body).data.pagination.total;
}

describe.each(ENGINES)('with a journal, on %s,', (engine) => {
  test('events go on being accepted while the database is away, and are stored once when it is back', async () => {
    const { service, proxy } = await journaled({ engine });
    const totalBefore = await total(service);
    await proxy.goAway();
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, index) => service.post({ payload: { index, text: '\\ü\u0000\n' } })),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
    expect(waitingEvents(service)).toBe(200);
    expect(await storedIds(service)).toEqual([]);
    await proxy.comeBack();
    await untilReplayed(service);
    expect(await storedIds(service)).toEqual(ids(answers));
    const [row] = await service.sql<{ payload: string }[]>`
      SELECT payload::text AS payload FROM events WHERE id = ${JSON.parse(answers[7]?.body ?? '').eventId}`;
    expect(row?.payload).toBe(JSON.stringify({ index: 7, text: '\\ü\u0000\n' }));
    expect(await total(service)).toBe(totalBefore + 200);
    expect(service.stats().journal).toMatchObject({
      appendedEvents: 200,
      replayedEvents: 200,
      failures: 0,
    });
    expect((await service.post()).status).toBe(201);
    expect(service.stats().journal?.appendedEvents).toBe(200);
  });

  test.each(first<Fate>(['lose-answer', 'lose-request', 'cut-request']))(
    'an outage that begins in the middle of a commit (%s) leaves each event stored once, all with 201',
    async (fate) => {
      const { service, proxy } = await journaled({ engine });
      const decide = proxy.next(isCopy, fate, 2);
      const posts = Promise.all(
        Array.from({ length: 50 }, (_, index) => service.post({ payload: { index } })),
      );
      await until(() => decide() > 0, 'a commit meets its fate');
      if (fate === 'lose-answer')
        await until(async () => (await storedIds(service)).length > 0, 'it is stored all the same');
      await proxy.goAway();
      const answers = await posts;
      expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201));
      await proxy.comeBack();
      await untilReplayed(service);
      expect(await storedIds(service)).toEqual(ids(answers));
    },
  );
});

test('a slow network is no outage, and an answer that comes after its batch went to the journal stores nothing twice', async () => {
  const { service, proxy } = await journaled({ config: { COMMIT_CONNECTIONS: 1 } });
  proxy.delayMs = 150;
  const answers = await Promise.all(Array.from({ length: 20 }, () => service.post()));
  expect(await storedIds(service)).toEqual(ids(answers));
  expect(service.stats()).toMatchObject({ databaseReachable: true, journal: { appendedEvents: 0 } });
  proxy.delayMs = 0;
  proxy.next(isCopy, 'hold-answer');
  answers.push(await service.post());
  proxy.release();
  answers.push(await service.post());
  await untilReplayed(service);
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201));
  expect(await storedIds(service)).toEqual(ids(answers));
});

test('during an outage known tokens and types are served beyond TOKEN_CACHE_SECONDS, unknown ones get 503', async () => {
  const clock = new RunningClock();
  const { service, proxy } = await journaled({
    clock,
    config: { TOKEN_CACHE_SECONDS: 1, ...PATIENT },
  });
  const named = { typeId: null, typeName: 'a name that is known' };
  const app = await service.newApp();
  const type = await service.newType(service.app, 'not asked for yet');
  expect((await service.post(named)).status).toBe(201);
  await untilChangesAreHeard({ service, proxy });
  expect((await service.post(named)).status).toBe(201);
  expect((await service.post()).status).toBe(201);
  await proxy.goAway();
  clock.advance(3_600_000);
  expect((await service.post()).status).toBe(201);
  expect((await service.post(named)).status).toBe(201);
  for (const fields of [
    { loggingToken: app.loggingToken },
    { typeId: type.typeId },
    { typeId: null, typeName: 'a new name' },
  ]) {
    const answer = await service.post(fields);
    refused(answer, 503, 'UNAVAILABLE', 'Service unavailable');
    expect(Number(answer.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  }
});

test('a token that was revoked before the outage is refused during it, and one whose grace ends meanwhile; a database that comes and goes makes none unknown', async () => {
  const clock = new RunningClock();
  const { service, proxy } = await journaled({ clock });
  const secret = await testSecret();
  const { appId, loggingToken } = await service.newApp();
  const ofRevoked = { loggingToken, typeId: undefined, typeName: 'a' };
  expect((await service.post(ofRevoked)).status).toBe(201);
  await rotateLoggingToken(service.sql, secret, { appId, graceHours: 0 });
  await until(async () => (await service.post(ofRevoked)).status === 401, 'the token is refused');
  await rotateLoggingToken(service.sql, secret, { appId: service.app.appId, graceHours: 1 });
  await untilChangesAreHeard({ service, proxy });
  expect((await service.post()).status).toBe(201);
  await proxy.goAway();
  expect((await service.post(ofRevoked)).status).not.toBe(201);
  expect((await service.post()).status).toBe(201);
  const heard = new Promise<void>((resolve) => {
    proxy.onAnswer = (answer) => {
      if (answer.includes('LISTEN\0')) resolve();
    };
  });
  await proxy.comeBack();
  await heard;
  await proxy.goAway();
  expect((await service.post()).status).toBe(201);
  clock.advance(3_600_000 * 2);
  refused(await service.post(), 401, 'AUTH_INVALID_TOKEN', 'Invalid logging token');
});

test('/readyz, /readyz?for=writing and the log tell of an outage and of its end', async () => {
  const { service, proxy } = await journaled();
  const ask = (query = ''): Promise<HttpResponse> => service.request({ path: `/readyz${query}` });
  expect((await ask()).status).toBe(200);
  await proxy.goAway();
  await service.post();
  await until(() => !service.stats().databaseReachable, 'the outage is noticed');
  const answer = await ask();
  expect(answer.status).toBe(503);
  expect(JSON.parse(answer.body)).toEqual({
    success: false,
    error: 'Service unavailable',
    docs: '/docs/errors#UNAVAILABLE',
    details: 'The database cannot be reached. Events are accepted into the journal; nothing can be read.',
    code: 'UNAVAILABLE',
    journal: { takesEvents: true, waitingEvents: 1 },
  });
  const writing = await ask('?for=writing');
  expect(writing.status).toBe(200);
  expect(JSON.parse(writing.body)).toMatchObject({ status: 'journaling', journal: { waitingEvents: 1 } });
  expect(said(service, 'database: unavailable')).toBe(true);
  await proxy.comeBack();
  await untilReplayed(service);
  expect((await ask()).status).toBe(200);
  expect(said(service, 'database: writable again')).toBe(true);
  expect(said(service, 'journal: replay complete')).toBe(true);
});

test('an event that the database refuses is no outage: 400, and nothing in the journal; at the replay it goes to quarantine, its neighbors are stored', async () => {
  const { service, proxy, folder } = await journaled();
  await service.sql.unsafe(
    `ALTER TABLE events ADD CONSTRAINT no_poison CHECK (payload::text NOT LIKE '%poison%')`,
  );
  refused(await service.post({ payload: { poison: 1 } }), 400, 'INVALID_REQUEST', 'Invalid request body');
  expect(service.stats()).toMatchObject({ databaseWritable: true, journal: { appendedEvents: 0 } });
  await proxy.goAway();
  const answers = await Promise.all(
    Array.from({ length: 9 }, (_, index) =>
      service.post({ payload: index === 4 ? { poison: 1 } : { index } }),
    ),
  );
  await proxy.comeBack();
  await untilReplayed(service);
  const [poison] = answers.splice(4, 1);
  expect(await storedIds(service)).toEqual(ids(answers));
  expect(await quarantined(folder)).toEqual([
    expect.objectContaining({
      reason: 'refused',
      appId: service.app.appId,
      typeId: service.type.typeId,
      typeName: service.type.name,
      id: JSON.parse(poison?.body ?? '').eventId,
      payload: '{"poison":1}',
    }),
  ]);
  expect(service.stats().journal).toMatchObject({ quarantinedEvents: 1, quarantineEvents: 1 });
});

/** What the lines of quarantine.ndjson say. */
async function quarantined(folder: string): Promise<Record<string, unknown>[]> {
  const text = await readFile(join(folder, 'quarantine.ndjson'), 'utf8');
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
}

describe.each(ENGINES)('an older backup is restored while events wait, on %s:', (engine) => {
  test('events of apps that it does not know go to quarantine, and no app gets those of another', async () => {
    const { service, proxy, folder } = await journaled({ engine, config: PATIENT });
    const { sql } = service;
    const younger = await service.newApp();
    const toYounger = { loggingToken: younger.loggingToken, typeId: null, typeName: 'a type' };
    const youngerType = { loggingToken: service.app.loggingToken, typeId: null, typeName: 'a younger type' };
    for (const fields of [toYounger, youngerType]) expect((await service.post(fields)).status).toBe(201);
    await untilChangesAreHeard({ service, proxy });
    for (const fields of [toYounger, youngerType]) expect((await service.post(fields)).status).toBe(201);
    await sql`TRUNCATE events`;
    const totalBefore = await total(service);
    await proxy.goAway();
    const lost = await Promise.all(Array.from({ length: 30 }, () => service.post(toYounger)));
    const kept = await Promise.all(Array.from({ length: 30 }, () => service.post(youngerType)));
    expect([...lost, ...kept].map(({ status }) => status)).toEqual(Array(60).fill(201));

    // As a database is that was copied before the app and the type were made: the next ones get their internal ids.
    const [app] = await sql<
      { id: number }[]
    >`DELETE FROM apps WHERE public_id = ${younger.appId} RETURNING id`;
    const [type] = await sql<{ id: number; publicId: string }[]>`
      DELETE FROM event_types WHERE name = 'a younger type' RETURNING id, public_id AS "publicId"`;
    await sql`SELECT setval(pg_get_serial_sequence('apps', 'id'), ${app?.id ?? 0}, false)`;
    await sql`SELECT setval(pg_get_serial_sequence('event_types', 'id'), ${type?.id ?? 0}, false)`;
    const next = await service.newApp();
    await service.newType(next, 'a type');
    expect(await sql`SELECT id FROM apps WHERE public_id = ${next.appId}`).toEqual([{ id: app?.id }]);
    await proxy.comeBack();
    await untilReplayed(service);

    expect(await storedIds(service)).toEqual(ids(kept));
    const owners = await sql`
      SELECT DISTINCT apps.public_id AS "appId", event_types.public_id AS "typeId", event_types.name
        FROM events JOIN event_types ON event_types.id = type_id AND event_types.app_id = events.app_id
        JOIN apps ON apps.id = events.app_id`;
    expect(owners).toEqual([{ appId: service.app.appId, typeId: type?.publicId, name: 'a younger type' }]);
    expect(await total(service)).toBe(totalBefore + 30);
    const waiting = await quarantined(folder);
    expect(waiting.map(({ id }) => id).sort()).toEqual(ids(lost));
    expect(new Set(waiting.map(({ reason, appId }) => `${reason} ${appId}`))).toEqual(
      new Set([`unknown-app ${younger.appId}`]),
    );
    expect(service.log.find(({ reason }) => reason === 'unknown-app')).toMatchObject({
      level: 'error',
      appId: younger.appId,
      events: 30,
    });
    expect(service.stats().journal).toMatchObject({ quarantinedEvents: 30, replayedEvents: 30 });
  });
});

test("another installation's database at the same address gets no event of the journal", async () => {
  const { service, proxy, folder } = await journaled();
  await proxy.goAway();
  const answers = await Promise.all(Array.from({ length: 20 }, () => service.post()));
  const [own] = await service.sql<{ value: string }[]>`
    UPDATE installation SET value = ${'f'.repeat(32)} FROM installation AS before
     WHERE installation.name = 'database_identity' AND before.name = installation.name RETURNING before.value`;
  await proxy.comeBack();
  await until(() => service.stats().journal?.wrongDatabase === true, 'the other installation is noticed');
  answers.push(await service.post());
  expect(answers.map(({ status }) => status)).toEqual(Array(21).fill(201));
  expect(await storedIds(service)).toEqual([]);
  const { status, body } = await service.request({ path: '/readyz' });
  expect(status).toBe(503);
  expect(JSON.parse(body).details).toContain('The database belongs to another installation');
  const metrics = await service.request({ path: '/metrics' });
  expect(metrics.body).toMatch(/^tidemark_journal_wrong_database 1$/m);
  const told = service.log.filter(({ msg }) => String(msg).includes('belongs to another installation'));
  expect(told.filter(({ level }) => level === 'error')).toHaveLength(1);
  await service.sql`UPDATE installation SET value = ${own?.value ?? ''} WHERE name = 'database_identity'`;
  await untilReplayed(service);
  expect(await storedIds(service)).toEqual(ids(answers));
  expect(await readdir(folder)).not.toContain('quarantine.ndjson');
});

test('a server that takes no writes is no server: it may have been the primary until a moment ago', async () => {
  const { service, proxy } = await journaled();
  const [{ name = '' } = {}] = await service.sql<{ name: string }[]>`SELECT current_database() AS name`;
  const reconnect = async (): Promise<void> => {
    await service.sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                       WHERE datname = current_database() AND application_name LIKE 'tidemark%'`;
  };
  await service.sql.unsafe(`ALTER DATABASE ${name} SET default_transaction_read_only = on`);
  await reconnect();
  const answers = [await service.post(), await service.post()];
  expect(answers.map(({ status }) => status)).toEqual([201, 201]);
  expect(service.stats()).toMatchObject({ databaseWritable: false, journal: { waitingEvents: 2 } });
  await until(() => !service.stats().databaseReachable, 'it is not read either');
  const read = await service.request({
    path: `/public/get_events?appId=${service.app.appId}`,
    headers: { authorization: 'Bearer x' },
  });
  refused(read, 503, 'UNAVAILABLE', 'Service unavailable');
  expect(await (await service.request({ path: '/readyz' })).body).toContain('read-only');
  await service.sql.unsafe(`ALTER DATABASE ${name} RESET default_transaction_read_only`);
  await reconnect();
  await untilReplayed(service);
  expect(await storedIds(service)).toEqual(ids(answers));
  expect(proxy.connections).toBeGreaterThan(0);
});

test('beyond JOURNAL_MAX_BYTES posts get 503 and are not stored; what was acknowledged is', async () => {
  const { service, proxy } = await journaled({ config: { JOURNAL_MAX_BYTES: 65_536 } });
  await proxy.goAway();
  const answers: HttpResponse[] = [];
  for (let status = 201; status === 201; status = answers.at(-1)?.status ?? 0)
    answers.push(await service.post({ payload: { filler: 'x'.repeat(5_000) } }));
  const last = answers.pop();
  refused(last as HttpResponse, 503, 'UNAVAILABLE', 'Service unavailable');
  // The two copies of the header take 8 KiB.
  expect(answers.length).toBe(11);
  expect((await service.request({ path: '/readyz?for=writing' })).status).toBe(503);
  await proxy.comeBack();
  await untilReplayed(service);
  expect(await storedIds(service)).toEqual(ids(answers));
});

test('without a journal posts are refused while the database refuses connections', async () => {
  const { service, proxy } = await proxied({ config: PATIENT });
  await proxy.goAway();
  for (let post = 0; post < 3; post += 1) {
    const answer = await service.post();
    refused(answer, 503, 'UNAVAILABLE', 'Service unavailable');
    expect(Number(answer.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  }
  await proxy.comeBack();
  await until(async () => (await service.post()).status === 201, 'posts are stored again');
});

test('a replay whose commit is not answered stores nothing twice', async () => {
  const { service, proxy } = await journaled();
  await proxy.goAway();
  const answers = await Promise.all(Array.from({ length: 5 }, () => service.post()));
  const met = proxy.next((sent) => sent.includes('app_public_id'), 'lose-answer');
  await proxy.comeBack();
  await until(() => met() === 1, 'the replay meets its fate');
  await untilReplayed(service);
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201));
  expect(await storedIds(service)).toEqual(ids(answers));
});
