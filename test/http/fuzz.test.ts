import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { jsonObject } from '../json/json-text.ts';
import { anyText, runs, sized } from '../support/fuzz.ts';
import { CREATE_EVENT, sharedService, type TestService } from '../support/service.ts';

/** One change of some bytes: what transport errors, bad encoders and attackers make of a good request. */
type Mutation = (bytes: Buffer) => Buffer;

const anywhere = fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true });

const mutation: fc.Arbitrary<Mutation> = fc.oneof(
  fc.tuple(anywhere, fc.nat(255)).map(
    ([at, byte]): Mutation =>
      (bytes) => {
        const changed = Buffer.from(bytes);
        changed[Math.floor(at * bytes.length)] = byte;
        return changed;
      },
  ),
  fc.tuple(anywhere, anywhere).map(
    ([at, share]): Mutation =>
      (bytes) => {
        const from = Math.floor(at * bytes.length);
        const until = from + Math.floor(share * (bytes.length - from));
        return Buffer.concat([bytes.subarray(0, from), bytes.subarray(until)]);
      },
  ),
  fc
    .tuple(
      anywhere,
      fc.constantFrom(
        ...['{', '}', '"', ',', ':', '\\', '\\u0000', '\0', '\ufeff', '[', ']', '__proto__', '1e999', 'null'],
        ...['"payload":{}', '"typeId":null,', '\u2028', '"loggingToken":[],'],
      ),
    )
    .map(
      ([at, text]): Mutation =>
        (bytes) => {
          const from = Math.floor(at * bytes.length);
          return Buffer.concat([bytes.subarray(0, from), Buffer.from(text), bytes.subarray(from)]);
        },
    ),
  fc.tuple(anywhere, anywhere).map(
    ([at, share]): Mutation =>
      (bytes) => {
        const from = Math.floor(at * bytes.length);
        const piece = bytes.subarray(from, from + Math.floor(share * (bytes.length - from)));
        return Buffer.concat([bytes.subarray(0, from), piece, bytes.subarray(from)]);
      },
  ),
);

/** What RFC 8259 and the contract make of the bytes: the parsed body, or null where it must be refused. */
function parsed(bytes: Buffer): Record<string, unknown> | null {
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : null;
  } catch {
    return null;
  }
}

describe('over HTTP', () => {
  let service: TestService;
  let resourceToken: string;
  beforeAll(async () => {
    service = await sharedService({
      config: { CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 },
    });
    const token = { name: 'fuzz', appIds: [service.app.appId], expiresInSeconds: null };
    ({ resourceToken } = await createResourceToken(service.sql, token));
  });

  test('security 16: a mangled body is stored as JSON.parse reads it, or refused by the contract', async () => {
    await fc.assert(
      fc.asyncProperty(
        jsonObject,
        fc.array(mutation, { minLength: 1, maxLength: 4 }),
        async (payload, mutations) => {
          const good = Buffer.from(service.body(payload.text));
          const body = mutations.reduce<Buffer>((bytes, mutate) => mutate(bytes), good);
          const response = await service.request({ method: 'POST', path: CREATE_EVENT, body });
          const answer = JSON.parse(response.body);
          if (response.status !== 201) {
            expect([400, 401, 404]).toContain(response.status);
            const names = Object.keys(answer).filter((name) => name !== 'param');
            expect(names).toEqual(['success', 'error', 'details', 'code', 'docs']);
            return;
          }
          const [row] = await service.sql<{ payload: string }[]>`
            SELECT payload::text AS payload FROM events WHERE id = ${answer.eventId}`;
          expect(JSON.parse(row?.payload ?? '')).toEqual(parsed(body)?.payload);
        },
      ),
      runs(sized(100, 300)),
    );
  });

  test('security 20: no query of a read ends in a 500', async () => {
    const value = fc.oneof(
      anyText({ maxLength: 12 }).map(encodeURIComponent),
      fc.stringMatching(/^[0-9a-zA-Z:.,+%_-]{0,30}$/),
      fc.constantFrom(
        ...["'", "';--", '%00', '%zz', '1e18', '1000000000000000000', '0000-01-01', '9999-12-31'],
        ...['+275760-09-13', '-271821-04-20', '2026-02-30', '2026-01-31', '%F0%9F', '%ED%A0%80', '٣'],
      ),
    );
    const name = fc.constantFrom(
      'typeId',
      'limit',
      'offset',
      'startDate',
      'endDate',
      'order',
      'x',
      '__proto__',
    );
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(name, value), { maxLength: 6 }), async (pairs) => {
        const query = pairs.map(([key, text]) => `&${key}=${text}`).join('');
        const response = await service.request({
          path: `/public/get_events?appId=${service.app.appId}${query}`,
          headers: { Authorization: `Bearer ${resourceToken}` },
        });
        expect([200, 400]).toContain(response.status);
        expect(response.body).not.toMatch(/SELECT|syntax|postgres/i);
      }),
      runs(sized(50, 150)),
    );
  });
});
