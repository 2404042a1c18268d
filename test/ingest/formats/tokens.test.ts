/** What each format costs for a client without a token: the answer comes before the body, which is neither kept nor decompressed. */
import { gzipSync } from 'node:zlib';
import { beforeAll, describe, expect, test } from 'vitest';
import { createTokenText } from '../../../src/base/token-text.ts';
import { FORMAT_ROUTES } from '../../../src/ingest/formats/declarations.ts';
import { TRANSPORTS } from '../../support/fuzz.ts';
import { HttpConnection, requestBytes } from '../../support/http-client.ts';
import { sharedService, type TestService } from '../../support/service.ts';

/** Announced, and of this nothing or little is sent. */
const ANNOUNCED = 8_000_000;
const ROUTES = FORMAT_ROUTES.filter(({ operation }) => operation?.token !== null).map(
  ({ method, path }) => [method, path.replace(':index', 'logs')] as const,
);
const BOMB = gzipSync(Buffer.alloc(4_000_000, ' '));

const services = new Map<string, TestService>();
beforeAll(async () => {
  for (const transport of TRANSPORTS) services.set(transport, await sharedService({ transport }));
});

test('every format is looked at', () => {
  const paths = ROUTES.map(([, path]) => path).join(' ');
  for (const name of ['records', 'cloudevents', 'otlp', 'track', 'batch', 'identify', '_bulk'])
    expect(paths).toContain(name);
});

describe.each(TRANSPORTS)('over %s,', (transport) => {
  const service = (): TestService => services.get(transport) as TestService;

  /** Bytes of bodies that the service holds. */
  const held = async (): Promise<number> => {
    const { body } = await service().request({ path: '/metrics' });
    return Number(/^tidemark_request_body_bytes(?:\{[^}]*\})? (\d+)$/m.exec(body)?.[1]);
  };

  test.each(ROUTES)('%s %s is answered before the body', async (method, path) => {
    const tokens = [null, createTokenText('tdl')];
    for (const token of tokens) {
      const connection = await HttpConnection.open(service().port);
      try {
        const headers = {
          'Content-Type': 'application/json',
          'Content-Length': String(ANNOUNCED),
          ...(token !== null && { Authorization: `Bearer ${token}` }),
        };
        await connection.write(requestBytes({ method, path, headers }));
        // Not a byte of the body is sent.
        expect((await connection.response()).status, String(token)).toBe(401);
      } finally {
        connection.destroy();
      }
    }
    expect(await held()).toBe(0);
  });

  test.each(ROUTES)('%s %s decompresses and parses nothing', async (method, path) => {
    const token = createTokenText('tdl');
    // What is no gzip at all would be 400, and what is too much of it 413.
    for (const body of [BOMB, Buffer.from('no gzip')]) {
      const { status } = await service().request({
        method,
        path,
        body,
        headers: {
          'Content-Type': 'application/json',
          'Content-Encoding': 'gzip',
          Authorization: `Bearer ${token}`,
        },
      });
      expect(status).toBe(401);
    }
    expect(await held()).toBe(0);
  });

  test.each([
    ['PUT', '/v1/elasticsearch/_index_template/filebeat', 401],
    ['POST', '/v1/otlp/v1/traces', 404],
  ] as const)(
    '%s %s, which stores nothing, is answered before the body with %i',
    async (method, path, status) => {
      const connection = await HttpConnection.open(service().port);
      try {
        await connection.write(
          requestBytes({ method, path, headers: { 'Content-Length': String(ANNOUNCED) } }),
        );
        expect((await connection.response()).status).toBe(status);
      } finally {
        connection.destroy();
      }
      expect(await held()).toBe(0);
    },
  );

  test('the handshake of web hooks reads no body, and names the rate of an app', async () => {
    const connection = await HttpConnection.open(service().port);
    try {
      const headers = { 'WebHook-Request-Origin': 'example.com', 'Content-Length': String(ANNOUNCED) };
      await connection.write(requestBytes({ method: 'OPTIONS', path: '/v1/cloudevents', headers }));
      const response = await connection.response();
      expect([response.status, response.headers['webhook-allowed-rate']]).toEqual([200, '1000']);
    } finally {
      connection.destroy();
    }
  });
});
