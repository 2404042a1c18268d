/** Redaction: what rules take out of payloads is found nowhere afterwards, on whatever way it came. */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { createBrowserKey } from '../../src/apps/browser-keys.ts';
import { addRedaction, MAX_DIGESTS, MAX_RULES } from '../../src/apps/redaction.ts';
import { type Outcome, tidemark } from '../support/command-line.ts';
import { sized } from '../support/fuzz.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { patient } from '../support/patience.ts';
import { Opened, untilChangesAreHeard, untilReplayed } from '../support/proxied-service.ts';
import { startTestService, type TestService, testSecret, until } from '../support/service.ts';

vi.setConfig({ testTimeout: patient(240_000) });

const MARK = 'zqcanaryqz';
const ORIGIN = 'https://shop.example';
const RULES = [
  { path: ['user', 'email'], action: 'hmac' },
  { path: ['card'], action: 'mask' },
  { path: ['items', 'secret'], action: 'drop' },
] as const;

let folder: string;
let service: TestService;
const opened = new Opened();
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-redaction-test-'));
});
// A database of this file's own: the files of another one's may have anything.
let own: TestService;
beforeAll(async () => {
  own = await startTestService({ config: { LOG_LEVEL: 'trace', CREATE_LIMIT_PER_MINUTE: 0 } });
});
afterAll(() => own.stop());
beforeEach(async () => {
  service = await own.forNewApp();
});
afterEach(opened.stopAll);
afterAll(() => rm(folder, { recursive: true, force: true }));

const run = (args: readonly string[]): Promise<Outcome> =>
  tidemark(args, {
    DATABASE_URL: service.database.url,
    DATA_DIR: folder,
    SECRET: 'the secret of the tests, 32 characters',
  });

/** A type whose rules every process knows. */
async function redactedType(service: TestService, name: string): Promise<{ typeId: string; name: string }> {
  const type = await service.newType(service.app, name);
  for (const rule of RULES)
    await addRedaction(service.sql, { appId: service.app.appId, type: name, ...rule });
  await until(async () => {
    const { body } = await service.post({ typeId: type.typeId, payload: { card: 1 } });
    const [row] = await service.sql<{ payload: string }[]>`
      SELECT payload::text FROM events WHERE id = ${JSON.parse(body).eventId}::uuid`;
    return row?.payload === '{"card":"***"}';
  }, 'the rules hold');
  await service.sql`TRUNCATE events`;
  return type;
}

let canaries = 0;
/** A payload with three canaries. */
function secretPayload(n: number): object {
  canaries += 3;
  return {
    n,
    user: { id: n, email: `${MARK}${canaries}@example.com` },
    card: `${MARK}${canaries - 1}`,
    items: [{ sku: 'a', secret: `${MARK}${canaries - 2}` }],
  };
}

const isClean = (payload: { user: { email: string }; card: string; items: object[] }): boolean =>
  /^hmac:[0-9a-f]{32}$/.test(payload.user.email) &&
  payload.card === '***' &&
  JSON.stringify(payload.items) === '[{"sku":"a"}]';

/** Files below a folder in which a text stands. */
async function filesWith(text: string, below: string): Promise<string[]> {
  const grep = promisify(execFile);
  // Exit code 1: in none; 2: a file went away meanwhile.
  const { stdout } = await grep('grep', ['-rlaF', '--', text, below]).catch((error: { stdout?: string }) => ({
    stdout: error.stdout ?? '',
  }));
  return stdout.split('\n').filter((line) => line !== '');
}

describe('of many canaries', () => {
  test('none is in the answers, the logs, the table or the files of the database, on whatever way they came', async () => {
    const { loggingToken } = service.app;
    const { typeId } = await redactedType(service, 'order');
    const answers: HttpResponse[] = [];
    const send = async (
      path: string,
      body: string,
      headers: Readonly<Record<string, string>> = {},
    ): Promise<void> => {
      const answer = await service.request({
        method: 'POST',
        path,
        headers: { Authorization: `Bearer ${loggingToken}`, 'Content-Type': 'application/json', ...headers },
        body,
      });
      expect([200, 201, 202, 204]).toContain(answer.status);
      answers.push(answer);
    };
    let sent = 0;
    const payloads = (count: number): object[] => Array.from({ length: count }, () => secretPayload(sent++));
    const events = (count: number): object[] =>
      payloads(count).map((payload) => ({ typeName: 'order', payload }));
    const lines = (values: readonly object[]): string =>
      values.map((value) => JSON.stringify(value)).join('\n');

    for (const payload of payloads(20)) answers.push(await service.post({ typeId, payload }));
    for (const payload of payloads(5))
      await send('/public/create_event', JSON.stringify({ loggingToken, typeName: 'order', payload }), {
        'Idempotency-Key': `key-${sent++}`,
      });
    const createdAt = new Date(Date.now() - 60_000).toISOString();
    await send(
      '/v1/events?atomic=true',
      JSON.stringify(events(50).map((event, index) => ({ ...event, key: `k${index}`, createdAt }))),
    );
    const size = sized(1_000, 7_000);
    for (let batch = 0; batch < 3; batch += 1) await send('/v1/events', JSON.stringify(events(size)));
    // More than a batch: it is stored while it arrives.
    await send('/v1/events', lines(events(12_000)), { 'Content-Type': 'application/x-ndjson' });
    await send('/v1/records?type=order', lines(payloads(300)), { 'Content-Type': 'application/x-ndjson' });
    await send(
      '/v1/elasticsearch/_bulk',
      `${payloads(100)
        .map(
          (payload) =>
            `{"create":{"_index":"order"}}\n${JSON.stringify({ '@timestamp': createdAt, ...payload })}`,
        )
        .join('\n')}\n`,
      { 'Content-Type': 'application/x-ndjson' },
    );
    const { browserKey } = await createBrowserKey(service.sql, await testSecret(), {
      ...{ appId: service.app.appId, name: 'shop', types: ['order'], origins: [ORIGIN] },
    });
    await send(
      '/v1/collect',
      JSON.stringify({
        key: browserKey,
        events: payloads(40).map((payload) => ({ type: 'order', payload })),
      }),
      { Origin: ORIGIN, 'Content-Type': 'text/plain;charset=UTF-8' },
    );
    const file = join(await mkdtemp(join(tmpdir(), 'tidemark-redaction-input-')), 'events.ndjson');
    await writeFile(file, lines(payloads(500).map((payload) => ({ type: 'order', createdAt, payload }))));
    const imported = await run(['import', '--app', service.app.appId, file]);
    expect(imported.code).toBe(0);
    expect(canaries).toBeGreaterThan(sized(40_000, 100_000));

    const rows = await service.sql<{ payload: Parameters<typeof isClean>[0] }[]>`SELECT payload FROM events`;
    expect(rows).toHaveLength(canaries / 3);
    expect(rows.filter(({ payload }) => !isClean(payload))).toEqual([]);
    expect(answers.filter(({ body }) => body.includes(MARK))).toEqual([]);
    expect(JSON.stringify(service.log)).not.toContain(MARK);
    expect(imported.stdout + imported.stderr).not.toContain(MARK);

    // The search finds what is there: an event of another type, which has no rules.
    const control = 'zqcontrolqz';
    expect((await service.post({ payload: { control } })).status).toBe(201);
    await service.sql`CHECKPOINT`;
    const [{ data_directory: data } = { data_directory: '' }] = await service.sql<
      { data_directory: string }[]
    >`SHOW data_directory`;
    expect(await filesWith(control, data)).not.toEqual([]);
    expect(await filesWith(MARK, data)).toEqual([]);
  });

  test('none is in the journal, nor in what is replayed from it', async () => {
    const { service, proxy, folder: journal } = await opened.journaled();
    const { typeId } = await redactedType(service, 'order');
    await untilChangesAreHeard({ service, proxy });
    await service.post({ typeId, payload: { n: -1 } });
    const before = await service.sql`SELECT FROM events`;
    await proxy.goAway();
    let stored = 0;
    await until(async () => {
      const { status } = await service.post({ typeId, payload: secretPayload(stored) });
      if (status === 201) stored += 1;
      return stored >= 50;
    }, 'the journal takes events');
    const files = await readdir(journal, { recursive: true, withFileTypes: true });
    const texts = await Promise.all(
      files
        .filter((entry) => entry.isFile())
        .map((entry) => readFile(join(entry.parentPath, entry.name), 'latin1')),
    );
    expect(texts.join('')).toContain('hmac:');
    expect(texts.join('')).not.toContain(MARK);
    await proxy.comeBack();
    await untilReplayed(service);
    const rows = await service.sql<{ payload: Parameters<typeof isClean>[0] }[]>`
      SELECT payload FROM events WHERE payload ->> 'n' <> '-1'`;
    expect(rows.length).toBeGreaterThanOrEqual(50);
    expect(rows.filter(({ payload }) => !isClean(payload))).toEqual([]);
    expect(before).toHaveLength(1);
  });
});

describe('rules of redaction', () => {
  test('leave every other byte as it was, and come before the schema', async () => {
    const { typeId } = await redactedType(service, 'order');
    const text =
      '{ "n" : 1e400,\t"card":"4111", "user":{"a":-0 , "email" : "a@b.c"}, "\\u0069tems":[{"secret":1,"x":"\\u00e9"}] }';
    const body = `{"loggingToken":"${service.app.loggingToken}","typeId":"${typeId}","payload":${text}}`;
    const answer = await service.request({ method: 'POST', path: '/public/create_event', body });
    expect(answer.status).toBe(201);
    const [row] = await service.sql<{ payload: string }[]>`SELECT payload::text FROM events`;
    expect(row?.payload.replace(/hmac:[0-9a-f]{32}/, 'HMAC')).toBe(
      '{ "n" : 1e400,\t"card":"***", "user":{"a":-0 , "email" : "HMAC"}, "\\u0069tems":[{"x":"\\u00e9"}] }',
    );
  });

  test('give equal values of an app the same digest, however they are escaped, and another one in another app', async () => {
    await redactedType(service, 'order');
    const other = await service.newApp();
    await service.newType(other, 'order');
    await addRedaction(service.sql, { appId: other.appId, type: 'order', ...RULES[0] });
    const digests: string[] = [];
    for (const [{ loggingToken }, email] of [
      [service.app, '"a@b.c"'],
      [service.app, '"\\u0061@b.c"'],
      [service.app, '"A@b.c"'],
      [other, '"a@b.c"'],
    ] as const) {
      const body = `{"loggingToken":"${loggingToken}","typeName":"order","payload":{"user":{"email":${email}}}}`;
      const answer = await service.request({ method: 'POST', path: '/public/create_event', body });
      const [row] = await service.sql<{ email: string }[]>`
        SELECT payload #>> '{user,email}' AS email FROM events WHERE id = ${JSON.parse(answer.body).eventId}::uuid`;
      digests.push(row?.email ?? '');
    }
    expect(digests[1]).toBe(digests[0]);
    expect(new Set(digests).size).toBe(3);
  });

  test('mask what is beyond a thousand digests of one payload', async () => {
    await redactedType(service, 'order');
    await addRedaction(service.sql, {
      appId: service.app.appId,
      type: 'order',
      path: ['list', 'v'],
      action: 'hmac',
    });
    const payload = { list: Array.from({ length: MAX_DIGESTS + 10 }, (_, v) => ({ v })) };
    await until(async () => {
      await service.post({ typeId: undefined, typeName: 'order', payload });
      const [row] = await service.sql<{ masked: number; digests: number }[]>`
        SELECT regexp_count(payload::text, '\\*\\*\\*') AS masked, regexp_count(payload::text, 'hmac:') AS digests
          FROM events ORDER BY id DESC LIMIT 1`;
      return row?.masked === 10 && row.digests === MAX_DIGESTS;
    }, 'the rule holds');
  });

  test('are added, listed, previewed and removed by the command line', async () => {
    const { appId } = service.app;
    const type = await service.newType(service.app, 'order');
    const json = async (args: readonly string[]): Promise<Record<string, unknown>> => {
      const { code, stdout, stderr } = await run(['redact', ...args, '--app', appId, '--json']);
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      return JSON.parse(stdout);
    };
    const named = ['--type', 'order', '--path', 'user.email'];
    await service.post({ typeId: type.typeId, payload: { user: { email: 'a@b.c' } } });
    await service.post({ typeId: type.typeId, payload: { user: {} } });
    expect(await json(['preview', ...named, '--action', 'mask'])).toEqual({
      ...{ appId, typeId: type.typeId, typeName: 'order', events: 2, changed: 1 },
      rules: [{ path: 'user.email', action: 'mask' }],
      examples: [
        {
          eventId: expect.any(String),
          createdAt: expect.any(String),
          before: '{"user":{"email":"a@b.c"}}',
          after: '{"user":{"email":"***"}}',
        },
      ],
    });
    expect(await json(['list'])).toEqual({ rules: [] });
    const rule = {
      typeId: type.typeId,
      typeName: 'order',
      path: 'user.email',
      createdAt: expect.any(String),
    };
    expect(await json(['add', ...named, '--action', 'drop'])).toEqual({ ...rule, action: 'drop' });
    expect(await json(['add', ...named, '--action', 'mask'])).toEqual({ ...rule, action: 'mask' });
    expect(await json(['list'])).toEqual({ rules: [{ ...rule, action: 'mask' }] });
    expect(await json(['preview', '--type', type.typeId])).toMatchObject({ events: 2, changed: 1 });
    expect(await json(['remove', ...named])).toEqual({
      typeId: type.typeId,
      typeName: 'order',
      path: 'user.email',
    });
    expect(await json(['list'])).toEqual({ rules: [] });
    const audit =
      await service.sql`SELECT action FROM audit_entries WHERE action LIKE 'redaction.%' ORDER BY id DESC LIMIT 3`;
    expect(audit.map(({ action }) => action)).toEqual(['redaction.remove', 'redaction.add', 'redaction.add']);
  });

  const WRONG: readonly (readonly [string[], string])[] = [
    [
      ['add', '--type', 'none', '--path', 'a', '--action', 'drop'],
      'the app has no event type "none": create it first',
    ],
    [['add', '--type', 'test type', '--path', 'a..b', '--action', 'drop'], '--path is wrong at column'],
    [
      ['add', '--type', 'test type', '--path', 'a', '--action', 'burn'],
      'Allowed choices are drop, mask, hmac',
    ],
    [['add', '--type', 'test type', '--path', 'a'], "required option '--action <action>'"],
    [['remove', '--type', 'test type', '--path', 'a'], 'the type has no rule of redaction for this path'],
    [
      ['preview', '--type', 'test type', '--path', 'a'],
      'a preview of a new rule needs both --path and --action',
    ],
    [['preview', '--type', 'test type', '--limit', '1001'], 'Write a whole number from 1 to 1000.'],
  ];

  test('are refused with what to do where something is wrong', async () => {
    for (const [args, message] of WRONG) {
      const { code, stdout, stderr } = await run(['redact', ...args, '--app', service.app.appId, '--json']);
      expect({ failed: code !== 0, stdout }, args.join(' ')).toEqual({ failed: true, stdout: '' });
      expect(stderr).toContain(message);
    }
  });

  test('are at most so many of a type', async () => {
    const add = (n: number) =>
      addRedaction(service.sql, {
        appId: service.app.appId,
        type: 'test type',
        path: [`p${n}`],
        action: 'drop',
      });
    for (let n = 0; n < MAX_RULES; n += 1) await add(n);
    await expect(add(MAX_RULES)).rejects.toThrow(`a type may have ${MAX_RULES} rules of redaction`);
    // The action of one that is there can be changed.
    await expect(add(0)).resolves.toMatchObject({ path: ['p0'] });
  });
});
