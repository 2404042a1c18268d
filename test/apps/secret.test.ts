import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { checkFingerprint, openSealed, openSecret, sealToken } from '../../src/apps/secret.ts';
import { createTokenText, digestOf } from '../../src/base/token-text.ts';
import { OperatorError } from '../../src/errors.ts';
import { testDatabase } from '../support/database.ts';

const ONE = 'one secret of more than thirty-two characters';
const OTHER = 'other secret of more than thirty-two characters';

let dataDir: string;
beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'tidemark-secret-'));
});
afterEach(async () => {
  await rm(dataDir, { recursive: true, force: true });
});

const configured = (text: string) => openSecret({ configured: text, dataDir: null });

describe('the secret', () => {
  test('of the settings is used and no file is made', async () => {
    const secret = await openSecret({ configured: ONE, dataDir });
    expect(secret.fingerprint).toBe((await configured(ONE)).fingerprint);
    expect(await readdir(dataDir)).toEqual([]);
  });

  test('is generated once, for its owner alone, and found again', async () => {
    const first = await openSecret({ configured: '', dataDir: join(dataDir, 'new') });
    const path = join(dataDir, 'new', 'secret');
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await readFile(path, 'utf8')).trim().length).toBeGreaterThanOrEqual(32);
    expect((await openSecret({ configured: '', dataDir: join(dataDir, 'new') })).fingerprint).toBe(
      first.fingerprint,
    );
  });

  test('is the same for twenty starts at once, which leave one file', async () => {
    const starts = Array.from({ length: 20 }, () => openSecret({ configured: '', dataDir }));
    const fingerprints = (await Promise.all(starts)).map(({ fingerprint }) => fingerprint);
    expect(new Set(fingerprints).size).toBe(1);
    expect(await readdir(dataDir)).toEqual(['secret']);
  });

  test('that is damaged is refused, and left as it is', async () => {
    await writeFile(join(dataDir, 'secret'), 'short\n');
    await expect(openSecret({ configured: '', dataDir })).rejects.toThrow(OperatorError);
    expect(await readFile(join(dataDir, 'secret'), 'utf8')).toBe('short\n');
  });

  test('that cannot be read is a matter for the operator', async () => {
    await mkdir(join(dataDir, 'secret'));
    await chmod(join(dataDir, 'secret'), 0o755);
    await expect(openSecret({ configured: '', dataDir })).rejects.toThrow(/EISDIR.*or set SECRET/);
  });

  test('must be set where no file may be kept', async () => {
    await expect(configured('')).rejects.toThrow(OperatorError);
  });

  test('does not show in its object', async () => {
    expect(JSON.stringify(await configured(ONE))).not.toContain('one secret');
  });
});

describe('a sealed token', () => {
  test('opens with the same secret, and never looks the same twice', async () => {
    const token = createTokenText('tdl');
    const sealed = sealToken(await configured(ONE), token);
    expect(openSealed(await configured(ONE), sealed, digestOf(token))).toBe(token);
    expect(sealed.includes(token)).toBe(false);
    expect(sealToken(await configured(ONE), token).equals(sealed)).toBe(false);
  });

  test('does not open with another secret, on another row, cut or changed', async () => {
    const secret = await configured(ONE);
    const token = createTokenText('tdl');
    const sealed = sealToken(secret, token);
    expect(openSealed(await configured(OTHER), sealed, digestOf(token))).toBeNull();
    expect(openSealed(secret, sealed, digestOf(createTokenText('tdl')))).toBeNull();
    for (let length = 0; length < sealed.length; length++) {
      expect(openSealed(secret, sealed.subarray(0, length), digestOf(token))).toBeNull();
    }
    for (let at = 0; at < sealed.length; at++) {
      const changed = Buffer.from(sealed);
      changed[at] = (changed[at] ?? 0) ^ 1;
      expect(openSealed(secret, changed, digestOf(token))).toBeNull();
    }
  });
});

test('another secret is named at every start until the first one is back', async () => {
  const { sql, drop } = await testDatabase();
  try {
    const warnings: string[] = [];
    const start = async (text: string) =>
      checkFingerprint(sql, await configured(text), { warn: (message) => warnings.push(message) });
    await start(ONE);
    await start(ONE);
    expect(warnings).toEqual([]);
    await start(OTHER);
    await start(OTHER);
    expect(warnings).toHaveLength(2);
    expect(warnings[0]).toMatch(/^SECRET differs from the original one/);
    await start(ONE);
    expect(warnings).toHaveLength(2);
  } finally {
    await drop();
  }
});
