/** SECRET: its source, what it seals, and how an installation detects that it was replaced. */
import { createSecretKey, hkdfSync, type KeyObject, randomBytes, randomUUID } from 'node:crypto';
import { link, open, readFile, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { syncFolder } from '../base/make-folder.ts';
import { seal, unseal } from '../base/sealed-text.ts';
import { digestOf } from '../base/token-text.ts';
import { openDataFolder } from '../embedded/cluster.ts';
import { OperatorError } from '../errors.ts';
import { errorCode, type Sql } from '../storage/database/connect.ts';

/** The keys of accounts, each derived from SECRET for one purpose. */
interface AccountKeys {
  /** AES-256 key of the secrets of second factors at rest. */
  readonly secondFactors: KeyObject;
  /** HMAC key of the challenges between the two steps of a sign-in. */
  readonly challenges: KeyObject;
  /** HMAC key of what says that the password of a share was right. */
  readonly shares: KeyObject;
  /** HMAC key of the devices that an account has signed in from. */
  readonly devices: KeyObject;
  /** AES-256 key of the state of a sign-in that is at an issuer. */
  readonly oidc: KeyObject;
  /** HMAC key of the names by which processes share attempts to sign in. */
  readonly attempts: KeyObject;
}

/** Keys derived from SECRET; the text itself is not kept. */
export interface Secret {
  /** AES-256 key of the logging tokens at rest. */
  readonly sealingKey: KeyObject;
  readonly accounts: AccountKeys;
  /** Key of the digests that take the place of redacted values. */
  readonly redactionKey: KeyObject;
  /** Key of the digests of conditions of erasures. */
  readonly erasureKey: KeyObject;
  /** Identifies the secret without revealing it. */
  readonly fingerprint: string;
}

const FILE = 'secret';

/** The file of a secret that is not in the settings. */
export function secretFile(dataDir: string): string {
  return join(dataDir, FILE);
}

const SHORTEST = 32;
/** The row of `installation`. */
const FINGERPRINT = 'secret_fingerprint';

/**
 * The secret from the settings, else from DATA_DIR, where it is created on first use.
 * @param options.configured  SECRET, empty if not set
 * @param options.dataDir     DATA_DIR; null if no file may be written
 * @throws OperatorError if there is none and none can be created, or the file is damaged
 */
export async function openSecret(options: { configured: string; dataDir: string | null }): Promise<Secret> {
  if (options.configured !== '') return deriveSecret(options.configured);
  if (options.dataDir === null)
    throw new OperatorError(`set SECRET to at least ${SHORTEST} random characters`);
  const folder = await openDataFolder(options.dataDir);
  const path = secretFile(folder);
  try {
    return deriveSecret((await readSecret(path)) ?? (await generate(folder, path)));
  } catch (error) {
    if (error instanceof OperatorError) throw error;
    const reason = errorCode(error) || String(error);
    throw new OperatorError(
      `${path} cannot be read or created (${reason}): give this user access, or set SECRET`,
      {
        cause: error,
      },
    );
  }
}

/**
 * Compares the secret of the settings with the original one of the database. Does not create a secret.
 * @returns `missing` if there is none yet; `unknown` if the database has no fingerprint
 */
export async function compareSecret(
  sql: Sql,
  options: { configured: string; dataDir: string },
): Promise<'same' | 'different' | 'missing' | 'unknown'> {
  const [first] = await sql<{ value: string }[]>`SELECT value FROM installation WHERE name = ${FINGERPRINT}`;
  if (first === undefined) return 'unknown';
  try {
    const { configured, dataDir } = options;
    const text = configured === '' ? await readSecret(secretFile(dataDir)) : configured;
    if (text === undefined) return 'missing';
    return deriveSecret(text).fingerprint === first.value ? 'same' : 'different';
  } catch (error) {
    // A damaged or unreadable file cannot be the original secret.
    if (error instanceof OperatorError || errorCode(error) !== '') return 'different';
    throw error;
  }
}

/** Encrypts a token so that it can be shown again, bound to its row by its digest. */
export function sealToken(secret: Secret, token: string): Buffer {
  return seal(secret.sealingKey, token, digestOf(token));
}

/**
 * The token that was sealed for the row with this digest; null if another secret sealed it or it was modified.
 */
export function openSealed(secret: Secret, sealed: Uint8Array, digest: Uint8Array): string | null {
  return unseal(secret.sealingKey, sealed, digest);
}

/**
 * Compares the secret with the original one of this installation and logs a warning on a mismatch: at
 * every start until the original is restored.
 */
export async function checkFingerprint(
  sql: Sql,
  secret: Secret,
  log: { warn(message: string): void },
): Promise<void> {
  await sql`INSERT INTO installation (name, value) VALUES (${FINGERPRINT}, ${secret.fingerprint}) ON CONFLICT DO NOTHING`;
  const [first] = await sql<{ value: string }[]>`SELECT value FROM installation WHERE name = ${FINGERPRINT}`;
  if (first === undefined || first.value === secret.fingerprint) return;
  log.warn(
    'SECRET differs from the original one of this database: logging tokens sealed with the original stay valid but ' +
      'cannot be shown, and codes of second factors cannot be checked; restore the original SECRET, or rotate those ' +
      'tokens and remove those second factors',
  );
}

function deriveSecret(text: string): Secret {
  return {
    sealingKey: createSecretKey(derive(text, 'seal logging tokens', 32)),
    accounts: {
      secondFactors: createSecretKey(derive(text, 'seal second factors', 32)),
      challenges: createSecretKey(derive(text, 'sign challenges', 32)),
      shares: createSecretKey(derive(text, 'sign keys of shares', 32)),
      devices: createSecretKey(derive(text, 'recognize devices', 32)),
      oidc: createSecretKey(derive(text, 'seal sign-ins at an issuer', 32)),
      attempts: createSecretKey(derive(text, 'name attempts to sign in', 32)),
    },
    redactionKey: createSecretKey(derive(text, 'redact values', 32)),
    erasureKey: createSecretKey(derive(text, 'name conditions of erasures', 32)),
    fingerprint: derive(text, 'fingerprint', 16).toString('hex'),
  };
}

function derive(text: string, purpose: string, bytes: number): Buffer {
  return Buffer.from(hkdfSync('sha256', text, 'tidemark', purpose, bytes));
}

async function readSecret(path: string): Promise<string | undefined> {
  try {
    const text = (await readFile(path, 'utf8')).trim();
    if (text.length >= SHORTEST) return text;
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
  throw new OperatorError(
    `${path} is damaged (less than ${SHORTEST} characters): restore it from a backup, or delete it to create a new one`,
  );
}

/** Concurrent processes race to link a complete file; one wins, and all read its file. */
async function generate(folder: string, path: string): Promise<string> {
  const draft = `${path}.new-${randomUUID()}`;
  const file = await open(draft, 'wx', 0o600);
  try {
    await file.writeFile(`${randomBytes(32).toString('base64url')}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  try {
    await link(draft, path);
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
  } finally {
    await unlink(draft);
  }
  await syncFolder(folder);
  const text = await readSecret(path);
  if (text === undefined) throw new Error(`${path} was removed`);
  return text;
}
