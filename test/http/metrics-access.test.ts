/** Who may ask for GET /metrics. */
import { networkInterfaces } from 'node:os';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readConfig } from '../../src/config.ts';
import type { HttpResponse } from '../support/http-client.ts';
import { startTestService, type TestService, withTestService } from '../support/service.ts';
import { created, refused } from './answers.ts';

const PATH = '/metrics';
const TOKEN = 'sesame-sesame-sesame';

function denied(response: HttpResponse): void {
  refused(response, 403, 'ACCESS_DENIED', 'Access denied');
}

describe('GET /metrics is', () => {
  const PUBLIC_URL = 'https://events.example.com';
  const services = new Map<string, TestService>();
  const CONFIGS = {
    plain: {},
    'with a token': { METRICS_TOKEN: TOKEN, HOST: '0.0.0.0' },
    'behind a proxy of ours': { TRUST_PROXY: 1 },
    'behind a proxy that may mark nothing': { PUBLIC_URL },
    'behind a proxy of ours, with a public name': { PUBLIC_URL, TRUST_PROXY: 1 },
  };
  beforeAll(async () => {
    for (const [name, config] of Object.entries(CONFIGS))
      services.set(name, await startTestService({ config, database: 'shared' }));
  });
  afterAll(async () => {
    for (const service of services.values()) await service.stop();
  });
  const the = (name: keyof typeof CONFIGS): TestService => {
    const service = services.get(name);
    if (service === undefined) throw new Error('It was not started.');
    return service;
  };
  const ask = (name: keyof typeof CONFIGS, headers: Record<string, string> = {}): Promise<HttpResponse> =>
    the(name).request({ path: PATH, headers });

  test('open to this machine, by any of its names', async () => {
    const { port } = the('plain');
    for (const Host of ['127.0.0.1', `127.0.0.1:${port}`, 'localhost', 'LOCALHOST:80', '[::1]:8080'])
      expect((await ask('plain', { Host })).status).toBe(200);
  });

  test.each([
    ['X-Forwarded-For', '203.0.113.7'],
    ['X-Forwarded-For', '127.0.0.1'],
    ['X-Forwarded-For', '127.0.0.1, 203.0.113.7'],
    ['Forwarded', 'for=127.0.0.1'],
    ['X-Real-IP', '127.0.0.1'],
    ['Via', '1.1 proxy'],
    ['Host', 'events.example.com'],
    ['Host', '127.0.0.1.example.com'],
    ['Host', 'localhost.example.com'],
    ['Host', ''],
  ])('closed to a request with %s: %s, though the connection is from this machine', async (name, value) => {
    denied(await ask('plain', { [name]: value }));
    denied(await ask('behind a proxy of ours', { [name]: value }));
  });

  test('closed to this machine if a proxy that adds no headers may be in front', async () => {
    denied(await ask('behind a proxy that may mark nothing'));
    expect((await ask('behind a proxy of ours, with a public name')).status).toBe(200);
  });

  test('open with METRICS_TOKEN, from any address', async () => {
    const elsewhere = { Host: 'events.example.com', 'X-Forwarded-For': '203.0.113.7' };
    const bear = (Authorization: string): Promise<HttpResponse> =>
      ask('with a token', { ...elsewhere, Authorization });
    expect((await bear(`Bearer ${TOKEN}`)).status).toBe(200);
    expect((await bear(`bearer  ${TOKEN}`)).status).toBe(200);
    denied(await ask('with a token', elsewhere));
    for (const wrong of [`Bearer ${TOKEN}x`, `Bearer ${TOKEN.slice(1)}`, `Basic ${TOKEN}`, TOKEN, 'Bearer'])
      denied(await bear(wrong));
    const path = `${PATH}?token=${TOKEN}`;
    denied(await the('with a token').request({ path, headers: elsewhere }));
  });

  test('closed to an empty token if none is set', async () => {
    for (const Authorization of ['Bearer ', 'Bearer', 'Bearer undefined'])
      denied(await ask('plain', { Host: 'events.example.com', Authorization }));
  });

  const outside = Object.values(networkInterfaces())
    .flat()
    .find((one) => one?.family === 'IPv4' && !one.internal)?.address;
  test.skipIf(outside === undefined)('closed to an address that is not loopback', async () => {
    const url = `http://${outside}:${the('with a token').port}${PATH}`;
    for (const headers of [{}, { Host: '127.0.0.1' }, { 'X-Forwarded-For': '127.0.0.1' }])
      expect((await fetch(url, { headers })).status).toBe(403);
    expect((await fetch(url, { headers: { Authorization: `Bearer ${TOKEN}` } })).status).toBe(200);
  });

  test('not rate limited, and contains no names or tokens', () => {
    const config = { CREATE_LIMIT_PER_MINUTE: 1, READ_LIMIT_PER_MINUTE: 1, METRICS_TOKEN: TOKEN };
    return withTestService({ config, database: 'shared' }, async (service) => {
      created(await service.post({ payload: { secret: 'payload text' } }));
      for (let n = 0; n < 10; n += 1) expect((await service.request({ path: PATH })).status).toBe(200);
      const { body } = await service.request({ path: PATH });
      const { app, type } = service;
      for (const secret of [
        app.loggingToken,
        app.appId,
        type.typeId,
        type.name,
        'Test app',
        'payload',
        TOKEN,
      ])
        expect(body).not.toContain(secret);
    });
  });
});

test('a METRICS_TOKEN that is short, or not valid in a header, is refused without being logged', () => {
  for (const [token, problem] of [
    ['fifteen-letters', /^METRICS_TOKEN: must have at least 16 characters\.$/],
    ['sixteen letters!', /^METRICS_TOKEN: must consist of visible ASCII characters, without spaces\.$/],
    ['sixteen-lettérs!', /^METRICS_TOKEN: must consist of visible ASCII characters, without spaces\.$/],
  ] as const)
    expect(() => readConfig({ METRICS_TOKEN: token })).toThrow(problem);
  expect(readConfig({ METRICS_TOKEN: 'sixteen-letters!' }).METRICS_TOKEN).toBe('sixteen-letters!');
});
