/** Sign-ins through proxies: what a client writes into X-Forwarded-For changes no limit. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { gate, gatedArgon2 } from '../support/argon2-gate.ts';
import { Person } from '../support/person.ts';
import { TestClock, type TestService, withTestService } from '../support/service.ts';

// Hashes of wrong passwords cost nothing here: the limits count attempts.
vi.mock('@node-rs/argon2', async (original) => gatedArgon2(await original()));
beforeEach(() => {
  gate.isCheap = (password) => password === 'wrong password';
});
afterEach(() => {
  gate.isCheap = () => false;
});

let counter = 0;
const anEmail = (): string => `forwarded-${++counter}@example.com`;

describe('security 14: X-Forwarded-For', () => {
  const failures = async (service: TestService, header: (i: number) => string): Promise<number> => {
    const person = new Person(service);
    let count = 0;
    for (let i = 0; i < 24; i++) {
      const headers = { 'X-Forwarded-For': header(i) };
      const body = { email: anEmail(), password: 'wrong password' };
      if ((await person.post('/api/session', body, { headers })).status === 401) count += 1;
    }
    return count;
  };

  test.each(['uws', 'node'] as const)('that is spoofed changes no limit on %s', (transport) =>
    withTestService({ transport, clock: new TestClock() }, async (service) => {
      expect(await failures(service, (i) => `192.0.2.${i}`)).toBe(20);
    }),
  );

  test.each(['uws', 'node'] as const)(
    'of a trusted proxy counts by its last address, whatever stands before it, on %s',
    async (transport) => {
      const clock = new TestClock();
      await withTestService({ transport, clock, config: { TRUST_PROXY: 1 } }, async (service) => {
        expect(await failures(service, (i) => `192.0.2.${i}, 198.51.100.1`)).toBe(20);
        expect(await failures(service, (i) => `198.51.100.2, 203.0.113.${i}`)).toBe(24);
        if (transport === 'node') return;
        const checked = (header: (i: number) => string): Promise<number> => {
          // What was counted before is forgotten.
          clock.advance(2 * 3_600_000);
          return failures(service, header);
        };
        // A last entry that is no address: no entry of the client counts.
        for (const last of ['198.51.100.1:40001', '[2001:db8::1]:40001', 'unknown', '']) {
          // As many as are checked without any, and fewer than were sent.
          const alone = await checked(() => last);
          expect(alone, last).toBeLessThanOrEqual(20);
          expect(await checked((i) => `192.0.2.${i}, ${last}`), last).toBe(alone);
        }
      });
    },
  );

  test('with fewer entries than trusted proxies counts none of them', () =>
    withTestService(
      { transport: 'uws', clock: new TestClock(), config: { TRUST_PROXY: 2 } },
      async (service) => {
        expect(await failures(service, (i) => `192.0.2.${i}`)).toBe(20);
      },
    ));
});
