/** Management tokens, and the configuration over HTTP. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createManagementToken, revokeManagementToken } from '../../src/apps/management-tokens.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { startTestService, type TestService } from '../support/service.ts';

let service: TestService;
let reader: string;
let applier: string;
beforeAll(async () => {
  service = await startTestService();
  reader = (await make('read')).managementToken;
  applier = (await make('apply')).managementToken;
});
afterAll(() => service.stop());

function make(scope: 'read' | 'apply', expiresInSeconds = 3_600): ReturnType<typeof createManagementToken> {
  return createManagementToken(service.sql, { name: `for ${scope}`, scope, expiresInSeconds });
}

async function ask(
  method: string,
  path: string,
  token: string | null,
  body?: string,
): Promise<{ status: number; body: Record<string, unknown> }> {
  const headers = {
    ...(token !== null && { Authorization: `Bearer ${token}` }),
    'Content-Type': 'application/json',
  };
  const response = await service.request({ method, path, headers, ...(body !== undefined && { body }) });
  return { status: response.status, body: JSON.parse(response.body) as Record<string, unknown> };
}

const DOCUMENT = {
  partial: true,
  apps: [{ name: 'By HTTP', owner: 'http@config.example', types: [{ name: 'a' }] }],
};

test('a document is planned, applied, shown, and no change the second time; the audit log names the token', async () => {
  const text = JSON.stringify(DOCUMENT);
  const dry = await ask('PUT', '/v1/config?dryRun=true', applier, text);
  expect(dry.body.data).toMatchObject({
    dryRun: true,
    changes: [{ kind: 'account' }, { kind: 'app' }, { kind: 'type' }],
  });
  expect(JSON.stringify((await ask('GET', '/v1/config', reader)).body)).not.toContain('By HTTP');
  expect((await ask('PUT', '/v1/config', applier, text)).status).toBe(200);
  expect((await ask('PUT', '/v1/config', applier, text)).body.data).toMatchObject({ changes: [] });
  const yaml =
    'partial: true\napps:\n  - name: By HTTP\n    owner: http@config.example\n    types: [{name: b}]\n';
  expect((await ask('PUT', '/v1/config?prune=true', applier, yaml)).body.data).toMatchObject({
    changes: [{ action: 'create', kind: 'type', name: 'b' }],
  });
  const { data } = (await ask('GET', '/v1/config', reader)).body as { data: { apps: unknown[] } };
  expect(data.apps).toContainEqual({ ...DOCUMENT.apps[0], types: [{ name: 'a' }, { name: 'b' }] });
  const actors =
    await service.sql`SELECT DISTINCT actor FROM audit_entries WHERE action = 'app.create' AND details->>'name' = 'By HTTP'`;
  expect(actors).toEqual([{ actor: 'management token for apply' }]);
});

test('a key that is given twice is refused, in JSON, too', async () => {
  const twice = await ask('PUT', '/v1/config', applier, '{"partial": true,\n "apps": [],\n "apps": []}');
  expect(twice).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST', line: 3 } });
  expect(twice.body.details).toContain('Map keys must be unique');
});

test.each([
  ['nested arrays in JSON', (n: number) => `{"apps":${'['.repeat(n)}${']'.repeat(n)}}`],
  ['nested arrays that do not end', (n: number) => `{"apps":${'['.repeat(n)}`],
  ['nested flows in YAML', (n: number) => `apps: ${'{a: ['.repeat(n)}`],
  ['nested lists in YAML', (n: number) => `apps: ${'\n'}${'- '.repeat(n)}1`],
  [
    'nested maps in YAML',
    (n: number) => Array.from({ length: Math.min(n, 1_000) }, (_, at) => `${' '.repeat(at)}a:`).join('\n'),
  ],
  ['keys with questions', (n: number) => `${'? '.repeat(n)}1`],
])('%s are refused before they are parsed', async (_, text) => {
  for (const levels of [1_000, 200_000]) {
    const refused = await ask('PUT', '/v1/config', applier, text(levels));
    expect(refused).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST' } });
    expect(refused.body.details).toContain('at most 200 levels deep');
  }
});

test('others are answered while a long document is read', async () => {
  const anchors = Array.from({ length: 16_000 }, (_, n) => `k${n}: &k${n} 1`).join('\n');
  let isRead = false;
  const applied = ask('PUT', '/v1/config', applier, anchors).then((refused) => {
    isRead = true;
    expect(refused).toMatchObject({ status: 400, body: { code: 'INVALID_REQUEST', line: 1 } });
  });
  for (let n = 0; n < 10; n += 1) expect((await service.request({ path: '/livez' })).status).toBe(200);
  expect(isRead).toBe(false);
  await applied;
});

test('a mistake has its line and its place, and a failure what was done', async () => {
  const wrong = await ask('PUT', '/v1/config', applier, '{\n "apps": [{"name": "A", "typs": []}]\n}');
  expect(wrong).toMatchObject({
    status: 400,
    body: { code: 'INVALID_REQUEST', param: '/apps/0/typs', line: 2 },
  });
  const fields = Array.from({ length: 33 }, (_, index) => ({ path: `field${index}` }));
  const half = { partial: true, apps: [{ name: 'Done' }, { name: 'Failing', fields }] };
  const failed = await ask('PUT', '/v1/config', applier, JSON.stringify(half));
  expect(failed).toMatchObject({
    status: 409,
    body: {
      code: 'APPLY_FAILED',
      done: [{ action: 'create', kind: 'app', name: 'Done' }],
      failed: { kind: 'field', name: 'field32' },
    },
  });
});

test('tokens are refused by scope, when they have ended, and where they do not belong', async () => {
  expect(await ask('PUT', '/v1/config', reader, '{}')).toMatchObject({
    status: 403,
    body: { code: 'ACCESS_DENIED' },
  });
  expect((await ask('GET', '/v1/config', null)).status).toBe(401);
  const { appId, loggingToken } = service.app;
  const resource = await createResourceToken(service.sql, {
    name: 'r',
    appIds: [appId],
    expiresInSeconds: null,
  });
  for (const other of [
    loggingToken,
    resource.resourceToken,
    `${applier.slice(0, -1)}${applier.endsWith('0') ? '1' : '0'}`,
  ])
    expect((await ask('GET', '/v1/config', other)).status).toBe(401);
  const ended = await make('apply');
  expect((await ask('GET', '/v1/config', ended.managementToken)).status).toBe(200);
  await revokeManagementToken(service.sql, ended.tokenId);
  expect((await ask('GET', '/v1/config', ended.managementToken)).body.details).toBe(
    'The management token was revoked.',
  );
  const old = await make('apply');
  await service.sql`UPDATE management_tokens SET expires_at = now() - interval '1 second' WHERE public_id = ${old.tokenId}`;
  expect((await ask('GET', '/v1/config', old.managementToken)).body.details).toBe(
    'The management token has expired.',
  );
  const elsewhere = await ask('GET', `/public/get_events?appId=${appId}`, applier);
  expect([elsewhere.status, elsewhere.body.details]).toEqual([
    401,
    'This is a management token (tdm_…), which reads and applies the configuration, by /v1/config alone: send a resource token (tdr_…).',
  ]);
  expect((await service.post({ loggingToken: applier })).status).toBe(401);
  const [stored] = await service.sql`SELECT string_agg(t::text, '') AS text FROM management_tokens AS t`;
  expect(stored?.text).not.toContain(applier);
});

test('a token has sixty requests in a minute', async () => {
  const { managementToken } = await make('read');
  for (let asked = 0; asked < 60; asked += 1)
    expect((await ask('GET', '/v1/config', managementToken)).status).toBe(200);
  expect(await ask('GET', '/v1/config', managementToken)).toMatchObject({ status: 429 });
  expect((await ask('GET', '/v1/config', reader)).status).toBe(200);
});
