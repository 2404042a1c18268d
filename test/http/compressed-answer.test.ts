/** Large answers of reads are compressed for clients that take it; those with secrets never are. */
import { get } from 'node:http';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { TRANSPORTS } from '../support/fuzz.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { sharedService, type TestService } from '../support/service.ts';

const TYPES = 600;

describe.each(TRANSPORTS)('on %s', (transport) => {
  let service: TestService;
  let owner: Person;
  let app: { appId: string; path: string };
  let token: string;
  beforeAll(async () => {
    service = await sharedService({ transport });
    owner = await newPerson(service);
    app = await newOwnApp(owner);
    const { sql } = service;
    await sql`
      INSERT INTO event_types (app_id, public_id, name)
      SELECT id, 'typ_' || id || '_' || n, 'an event type with number ' || n FROM apps, generate_series(1, ${TYPES}::int) n
       WHERE public_id = ${app.appId}`;
    const made = await createResourceToken(sql, { name: 'A', appIds: [app.appId], expiresInSeconds: null });
    token = made.resourceToken;
  });

  interface Raw {
    readonly headers: Readonly<Record<string, string | undefined>>;
    readonly bytes: Buffer;
  }

  const raw = (path: string, accepted: string | null, headers: Record<string, string>): Promise<Raw> =>
    new Promise((resolve, reject) => {
      const encoding = accepted === null ? {} : { 'accept-encoding': accepted };
      get(`${service.url}${path}`, { headers: { ...encoding, ...headers } }, (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () =>
          resolve({ headers: response.headers as Raw['headers'], bytes: Buffer.concat(chunks) }),
        );
      }).on('error', reject);
    });

  const plain = (bytes: Buffer): Buffer => bytes;

  test.each([
    ['br, gzip', 'br', brotliDecompressSync],
    ['gzip, deflate', 'gzip', gunzipSync],
    ['gzip;q=0.5, br;q=0', 'gzip', gunzipSync],
    ['identity', undefined, plain],
    [null, undefined, plain],
  ] as const)('Accept-Encoding %s gets the types of an app as %s', async (accepted, coding, decoded) => {
    const bearer = { authorization: `Bearer ${token}` };
    const cookie = { cookie: owner.cookie };
    for (const [path, headers] of [
      [`/v1/apps/${app.appId}/types`, bearer],
      [`${app.path}/types`, cookie],
    ] as const) {
      const expected = await raw(path, 'identity', headers);
      const answer = await raw(path, accepted, headers);
      expect(answer.headers['content-encoding']).toBe(coding);
      expect(answer.headers.vary).toBe('Accept-Encoding');
      expect(answer.headers['content-length']).toBe(String(answer.bytes.length));
      expect(decoded(answer.bytes).equals(expected.bytes)).toBe(true);
      expect(JSON.parse(expected.bytes.toString()).data.types).toHaveLength(TYPES);
      if (coding !== undefined) expect(answer.bytes.length).toBeLessThan(expected.bytes.length / 5);
    }
  });

  test('the numbers of a chart are compressed, too', async () => {
    const headers = { cookie: owner.cookie };
    const path = `${app.path}/series?from=2025-01-01T00:00:00Z&to=2026-01-01T00:00:00Z&buckets=1000`;
    const answer = await raw(path, 'br', headers);
    expect(answer.headers['content-encoding']).toBe('br');
    const shown = JSON.parse(brotliDecompressSync(answer.bytes).toString());
    expect(shown.data.all.length).toBeGreaterThan(0);
  });

  test('small answers, refusals, and answers with a secret stay as they are', async () => {
    const cookie = { cookie: owner.cookie };
    for (const [path, headers] of [
      [`${app.path}/logging-token`, cookie],
      ['/api/session', cookie],
      [`/v1/apps/${app.appId}/types`, {}],
      ['/v1/apps', { authorization: `Bearer ${token}` }],
    ] as const) {
      const { headers: answered, bytes } = await raw(path, 'br, gzip', headers);
      expect(answered['content-encoding'], path).toBeUndefined();
      expect(() => JSON.parse(bytes.toString()), path).not.toThrow();
    }
  });
});
