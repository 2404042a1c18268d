/** What a key refers to: the body's bytes, hashed without keeping others waiting. */
import { hash } from 'node:crypto';
import { expect, test } from 'vitest';
import { Rejection } from '../../src/errors.ts';
import { requestIdentity } from '../../src/ingest/idempotency-key.ts';

const MIB = 1_048_576;

async function bodyDigest(body: string): Promise<string> {
  const request = await requestIdentity('key', '/v1/events', body);
  if (request instanceof Rejection) throw new Error('The key was not taken.');
  return request.bodyDigest.toString('hex');
}

test.each([
  ['a short body', '{"é":"😀"}'],
  ['a body of a whole slice', 'x'.repeat(MIB)],
  ['a body of whole slices', 'x'.repeat(2 * MIB)],
  ['a long body', 'é'.repeat(3 * MIB + 5)],
  ['a body with a surrogate pair across every boundary', `x${'😀'.repeat(2 * MIB)}`],
  ['a body whose last character is such a pair', `${'x'.repeat(2 * MIB - 1)}😀`],
])('the digest of %s is that of its bytes', async (_, body) => {
  expect(await bodyDigest(body)).toBe(hash('sha256', Buffer.from(`/v1/events\n${body}`), 'hex'));
});

test('a body of 10 MiB is hashed with other requests between', async () => {
  let turns = 0;
  let hashing = true;
  const turn = (): void => {
    turns += 1;
    if (hashing) setImmediate(turn);
  };
  setImmediate(turn);
  await bodyDigest('x'.repeat(10 * MIB));
  hashing = false;
  expect(turns).toBeGreaterThanOrEqual(10);
});
