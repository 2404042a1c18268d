import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, brotliDecompressSync, gunzipSync } from 'node:zlib';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { serverPaths } from '../../dashboard/paths.ts';
import { acceptedEncodings, readAssets } from '../../src/http/assets.ts';
import { createServer, type HttpServer } from '../../src/http/server.ts';
import { TRANSPORTS } from '../support/fuzz.ts';
import { request } from '../support/http-client.ts';
import { newOwnApp, newPerson, Person } from '../support/person.ts';
import { sharedService, type TestService, withTestService } from '../support/service.ts';

const SCRIPT = `console.log(${JSON.stringify('tidemark '.repeat(2_000))});\n`;
const PAGES = [
  '/',
  '/sign-in',
  '/sign-up',
  '/setup/abc',
  '/invitations/abc',
  '/email-verifications/abc',
  '/password-reset',
  '/password-reset/abc',
  '/apps/app_x',
  '/apps/app_x/overview',
  '/apps/app_x/boards',
  '/apps/app_x/events',
  '/apps/app_x/types',
  '/apps/app_x/fields',
  '/apps/app_x/delivery',
  '/apps/app_x/usage',
  '/apps/app_x/settings',
  '/apps/app_x/chart',
  '/account',
  '/shared/abc',
];

const SITES = ['https://intranet.example', 'https://wiki.example:8443'];

describe.each(TRANSPORTS)('a built dashboard on %s', (transport) => {
  let folder: string;
  let server: HttpServer;
  let port: number;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tidemark-assets-'));
    await mkdir(join(folder, 'assets'));
    await writeFile(join(folder, 'index.html'), `<!doctype html><title>Tidemark</title>${' '.repeat(2_000)}`);
    await writeFile(join(folder, 'pages.json'), JSON.stringify(serverPaths()));
    await writeFile(join(folder, 'favicon.svg'), '<svg xmlns="http://www.w3.org/2000/svg"/>');
    const script = join(folder, 'assets', 'main-Ab3dE_6h.js');
    await writeFile(script, SCRIPT);
    await writeFile(`${script}.br`, brotliCompressSync(SCRIPT));
    await writeFile(join(folder, 'assets', 'big-01234567.js'), `// ${'0123456789'.repeat(20_000)}`);
    server = await createServer({
      routes: (await readAssets(folder, async (token) => (token === 'named' ? SITES : []))).routes,
      transport,
      maxBodyBytes: 1_024,
      maxBodiesBytes: 65_536,
      trustedProxies: 0,
      requestTimeoutMs: 10_000,
      log: pino({ level: 'silent' }),
      now: () => performance.now(),
    });
    port = await server.listen('127.0.0.1', 0);
  });
  afterAll(async () => {
    await server.stop();
    await rm(folder, { recursive: true });
  });

  const get = (path: string, headers: Record<string, string> = {}) => request(port, { path, headers });
  /** The body's bytes: the client of the tests reads text. */
  const fetchBytes = async (path: string, encoding: string): Promise<{ encoding: string; bytes: Buffer }> => {
    const { get: ask } = await import('node:http');
    return await new Promise((resolve, reject) => {
      ask({ port, host: '127.0.0.1', path, headers: { 'accept-encoding': encoding } }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () =>
          resolve({ encoding: response.headers['content-encoding'] ?? '', bytes: Buffer.concat(chunks) }),
        );
      }).on('error', reject);
    });
  };

  test.each(PAGES)(
    'security 21: the page %s has a strict policy, may not be framed, and tells no other site of itself',
    async (path) => {
      const { status, headers, body } = await get(path);
      expect([status, headers['content-type']]).toEqual([200, 'text/html; charset=utf-8']);
      expect(body).toContain('<title>Tidemark</title>');
      const policy = headers['content-security-policy'] ?? '';
      expect(policy).toContain("default-src 'none'");
      expect(policy).toContain("script-src 'self'");
      expect(policy).toContain("style-src 'self'");
      expect(policy).toContain("frame-ancestors 'none'");
      expect(policy).not.toContain('unsafe-');
      expect(headers['referrer-policy']).toBe('no-referrer');
      expect(headers['x-content-type-options']).toBe('nosniff');
      expect(headers['cache-control']).toBe('no-cache');
      expect(headers['access-control-allow-origin']).toBeUndefined();
    },
  );

  test('files are sent in the encoding that the client accepts, and are the same', async () => {
    const path = '/assets/main-Ab3dE_6h.js';
    const brotli = await fetchBytes(path, 'gzip, deflate, br');
    expect(brotli.encoding).toBe('br');
    expect(brotliDecompressSync(brotli.bytes).toString()).toBe(SCRIPT);
    const gzip = await fetchBytes(path, 'gzip, br;q=0');
    expect(gzip.encoding).toBe('gzip');
    expect(gunzipSync(gzip.bytes).toString()).toBe(SCRIPT);
    const plain = await fetchBytes(path, 'identity');
    expect([plain.encoding, plain.bytes.toString()]).toEqual(['', SCRIPT]);
    expect((await fetchBytes('/assets/big-01234567.js', 'identity')).bytes).toHaveLength(200_003);
    // A package has no copies: they are made as they are asked for.
    const made = await fetchBytes('/assets/big-01234567.js', 'br');
    expect([made.encoding, brotliDecompressSync(made.bytes).length]).toEqual(['br', 200_003]);
  });

  test('hashed files are cached forever, others are revalidated', async () => {
    const hashed = await get('/assets/main-Ab3dE_6h.js');
    expect(hashed.headers['cache-control']).toBe('public, max-age=31536000, immutable');
    expect(hashed.headers['content-type']).toBe('text/javascript; charset=utf-8');
    expect((await get('/favicon.svg')).headers['cache-control']).toBe('no-cache');
  });

  test('a file that the client has cached is not sent again', async () => {
    const path = '/assets/main-Ab3dE_6h.js';
    const { headers } = await get(path, { 'Accept-Encoding': 'gzip' });
    expect(headers.vary).toBe('Accept-Encoding');
    const again = await get(path, { 'Accept-Encoding': 'gzip', 'If-None-Match': `W/${headers.etag}` });
    expect([again.status, again.body]).toEqual([304, '']);
    expect((await get(path, { 'If-None-Match': `${headers.etag}` })).status).toBe(200);
  });

  test.each([
    '/index.html',
    '/pages.json',
    '/apps/app_x/nothing',
    '/assets/',
    '/assets/main-Ab3dE_6h.js.gz',
    '/assets/../index.html',
    '/assets/%2e%2e/index.html',
    '/..%2f..%2fpackage.json',
  ])('%s is nothing', async (path) => {
    expect((await get(path)).status).toBe(404);
  });

  test('security 21: the page of a share is framed by the sites that it names, where it is embedded, and by no other', async () => {
    for (const path of [
      '/shared/named',
      '/shared/other?embed=true',
      '/shared/named?embed=1',
      '/?embed=true',
    ]) {
      const { headers } = await get(path);
      expect(headers['content-security-policy'], path).toContain("frame-ancestors 'none'");
      expect(headers['x-frame-options'], path).toBe('DENY');
    }
    const { status, headers } = await get('/shared/named?embed=true');
    expect([status, headers['x-frame-options'], headers['cache-control'], headers['x-robots-tag']]).toEqual([
      ...[200, undefined, 'no-store', 'noindex'],
    ]);
    // In pages that isolate themselves, too.
    expect(headers['cross-origin-embedder-policy']).toBe('require-corp');
    expect(headers['cross-origin-resource-policy']).toBe('cross-origin');
    const { headers: ofFile } = await get('/assets/main-Ab3dE_6h.js');
    expect(ofFile['access-control-allow-origin']).toBe('*');
    expect(ofFile['cross-origin-resource-policy']).toBe('cross-origin');
    expect((await get('/')).headers['access-control-allow-origin']).toBeUndefined();
    const policy = headers['content-security-policy'] ?? '';
    expect(policy).toContain(`frame-ancestors ${SITES.join(' ')}`);
    expect(policy.split('; ').filter((part) => !part.startsWith('frame-ancestors'))).toEqual(
      ((await get('/')).headers['content-security-policy'] ?? '').split('; ').slice(0, -1),
    );
  });

  test('pages only allow GET and HEAD', async () => {
    const { status, headers } = await request(port, { method: 'POST', path: '/', body: '{}' });
    expect([status, headers.allow]).toEqual([405, 'GET, HEAD']);
  });
});

test('without a built dashboard its page says how to build it', async () => {
  const { routes } = await readAssets('/nowhere/at/all');
  expect(routes.map(({ path }) => path)).toEqual(['/', '/docs', '/docs/errors']);
});

test('the server answers at all addresses that the dashboard routes: each tab of an app among them', () => {
  const patterns = PAGES.map((path) => path.replace(/abc$/, ':token').replace('app_x', ':appId'));
  expect(serverPaths().toSorted()).toEqual(patterns.toSorted());
});

describe('answers of the service', () => {
  const everyKind = async (
    service: TestService,
  ): Promise<{ path: string; headers: Readonly<Record<string, string>> }[]> => {
    const person = await newPerson(service);
    const app = await newOwnApp(person);
    const answers = [];
    for (const path of [
      '/',
      '/nothing',
      '/livez',
      '/public/get_events',
      '/api/session',
      `${app.path}/tokens`,
      `${app.path}/events`,
      `${app.path}/logging-token`,
    ])
      answers.push({ path, headers: (await person.get(path)).headers });
    answers.push({ path: 'POST', headers: (await service.post()).headers });
    answers.push({ path: 'refused', headers: (await new Person(service).post('/api/apps')).headers });
    return answers;
  };

  test.each(TRANSPORTS)(
    'security 21: all say nosniff; tokens and events are not kept; nothing is shared with other origins, on %s',
    async (transport) => {
      for (const { path, headers } of await everyKind(await sharedService({ transport }))) {
        expect(headers['x-content-type-options'], path).toBe('nosniff');
        expect(headers['access-control-allow-origin'], path).toBeUndefined();
        expect(headers['strict-transport-security'], path).toBeUndefined();
        if (path !== '/') expect(headers['cache-control'], path).toBe('no-store');
      }
    },
  );

  test.each(TRANSPORTS)(
    'security 21: with an https PUBLIC_URL all tell browsers to stay with https, on %s',
    (transport) =>
      withTestService(
        { transport, database: 'shared', config: { PUBLIC_URL: 'https://events.example.com' } },
        async (service) => {
          for (const { path, headers } of await everyKind(service))
            expect(headers['strict-transport-security'], path).toBe('max-age=31536000');
        },
      ),
  );
});

test.each([
  ['', []],
  ['gzip', ['gzip']],
  ['GZIP, br', ['gzip', 'br']],
  ['gzip;q=0, br;q=0.0, deflate;q=0.001', ['deflate']],
  [' gzip \t ; \t Q=0 , br ; q=1', ['br']],
  ['gzip;q=0;x=1', []],
  ['gzip;q=00', ['gzip']],
  [`gzip${' '.repeat(1_000)};${' '.repeat(1_000)}q=0`, []],
])('Accept-Encoding "%s" takes %j', (header, expected) => {
  expect([...acceptedEncodings(header)].filter((name) => name !== '')).toEqual(expected);
});
