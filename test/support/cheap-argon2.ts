/**
 * Password hashes that cost nothing, for tests of what happens around them. Put in place of the package by a test file:
 *
 *   vi.mock('@node-rs/argon2', async (original) => (await import('…/cheap-argon2.ts')).cheapArgon2(await original()));
 */
import { createHash } from 'node:crypto';

type Argon2 = typeof import('@node-rs/argon2');

export function cheapArgon2(argon2: Argon2): Argon2 {
  const hashOf = (password: string | Uint8Array): string =>
    `cheap ${createHash('sha256').update(password).digest('hex')}`;
  return {
    ...argon2,
    hash: async (password) => hashOf(password),
    hashSync: hashOf,
    verify: async (stored, password) => String(stored) === hashOf(password),
  };
}
