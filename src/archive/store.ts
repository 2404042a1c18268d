/** Where archives lie: a folder, or a bucket that speaks S3. An object is there whole, or not at all. */
import { createHash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { open, readdir, rename, rm, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { AwsClient } from 'aws4fetch';
import { makeFolder, syncFolder } from '../base/make-folder.ts';
import { shownWords } from '../base/shown-words.ts';
import type { Config } from '../config.ts';
import { OperatorError } from '../errors.ts';

/** Objects by key. A key is names of letters, digits and `._-`, separated by slashes. */
export interface ArchiveStore {
  /** For people: without credentials. */
  readonly place: string;
  /** Stores an object, in place of one that has the key. @throws ArchiveError */
  put(key: string, bytes: Uint8Array): Promise<void>;
  /** Reads an object, or a part of it. @throws ArchiveError, with `isMissing` where there is none; and where the part is not whole */
  get(key: string, part?: ObjectPart): Promise<Buffer>;
  /** Removes an object, if there is one. @throws ArchiveError */
  remove(key: string): Promise<void>;
}

/** Bytes of an object: from the first to before the last one. */
export interface ObjectPart {
  readonly start: number;
  readonly end: number;
  /** Ends the request. */
  readonly signal?: AbortSignal;
}

/** What the store could not do, in a sentence for the operator. */
export class ArchiveError extends Error {
  /** Whether the store answered that it has no such object. */
  readonly isMissing: boolean;

  constructor(message: string, { isMissing = false, cause }: { isMissing?: boolean; cause?: unknown } = {}) {
    super(message, { cause });
    this.isMissing = isMissing;
  }
}

/** A request to S3 that has no answer by then has failed. */
const REQUEST_TIMEOUT_MS = 60_000;
/** For the owner of the process alone: objects have payloads. */
const MODE = 0o600;
const FOLDER_MODE = 0o700;
const PARTIAL_CONTENT = 206;
const NOT_FOUND = 404;

export type ArchiveSettings = Pick<
  Config,
  | 'ARCHIVE_URL'
  | 'AWS_ACCESS_KEY_ID'
  | 'AWS_SECRET_ACCESS_KEY'
  | 'AWS_SESSION_TOKEN'
  | 'AWS_REGION'
  | 'AWS_ENDPOINT_URL'
>;

/** Opens what ARCHIVE_URL names. @throws OperatorError where a setting is missing */
export function openArchiveStore(config: ArchiveSettings): ArchiveStore {
  const {
    ARCHIVE_URL: place,
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
  } = config;
  const { protocol, host: bucket, pathname } = new URL(place);
  if (protocol === 'file:') return new FolderStore(resolve(fileURLToPath(place)));
  if (accessKeyId === '' || secretAccessKey === '')
    throw new OperatorError(
      'ARCHIVE_URL: a bucket needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: set both.',
    );
  const { AWS_SESSION_TOKEN: sessionToken, AWS_REGION: region, AWS_ENDPOINT_URL: endpoint } = config;
  const client = new AwsClient({
    ...{ accessKeyId, secretAccessKey, region, service: 's3', retries: 3 },
    ...(sessionToken !== '' && { sessionToken }),
  });
  // Other servers than those of Amazon mostly know buckets by path alone.
  const origin = endpoint === '' ? `https://${bucket}.s3.${region}.amazonaws.com` : `${endpoint}/${bucket}`;
  const prefix = pathname
    .split('/')
    .filter((name) => name !== '')
    .join('/');
  return new BucketStore(client, prefix === '' ? origin : `${origin}/${prefix}`, place);
}

/** @throws OperatorError where what is written cannot be read back */
export async function probeArchive(store: ArchiveStore): Promise<void> {
  const key = `probe-${randomBytes(8).toString('hex')}`;
  const sent = randomBytes(32);
  try {
    await store.put(key, sent);
    const found = await store.get(key);
    if (!found.equals(sent)) throw new ArchiveError('what was read back is not what was written');
    await store.remove(key);
  } catch (error) {
    if (!(error instanceof ArchiveError)) throw error;
    throw new OperatorError(
      `ARCHIVE_URL: ${store.place} cannot be written and read back: ${error.message}. Correct the address or the rights, or make room there.`,
      { isRetryable: true },
    );
  }
}

class FolderStore implements ArchiveStore {
  readonly place: string;

  constructor(folder: string) {
    this.place = folder;
  }

  put(key: string, bytes: Uint8Array): Promise<void> {
    return this.#attempt(async () => {
      const path = join(this.place, key);
      await makeFolder(dirname(path), FOLDER_MODE);
      const temporary = `${path}.${randomBytes(6).toString('hex')}.tmp`;
      const file = await open(temporary, 'wx', MODE);
      try {
        try {
          await sweep(temporary, await file.stat());
          await file.writeFile(bytes);
          await file.sync();
        } finally {
          await file.close();
        }
        await rename(temporary, path);
      } catch (error) {
        // A disk that is full has its room back.
        await rm(temporary, { force: true }).catch(() => undefined);
        throw error;
      }
      await syncFolder(dirname(path));
    });
  }

  get(key: string, part?: ObjectPart): Promise<Buffer> {
    const path = join(this.place, key);
    return this.#attempt(async () => {
      // A link or a pipe in the place of a file must neither lead elsewhere nor hold a thread, without which no process ends.
      const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
      try {
        if (!(await file.stat()).isFile()) throw notAFile();
        if (part === undefined) return await file.readFile();
        const { start, end } = part;
        const bytes = Buffer.allocUnsafe(end - start);
        const { bytesRead } = await file.read(bytes, 0, end - start, start);
        if (bytesRead < end - start) throw cutOff(bytesRead, end - start);
        return bytes;
      } finally {
        await file.close();
      }
    });
  }

  remove(key: string): Promise<void> {
    return this.#attempt(() => rm(join(this.place, key), { force: true }));
  }

  async #attempt<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof ArchiveError) throw error;
      const code = error instanceof Error && 'code' in error ? error.code : undefined;
      if (code === 'ELOOP' || code === 'ENXIO') throw notAFile(error);
      const isMissing = code === 'ENOENT';
      const reason = isMissing ? 'there is no such file' : `${code ?? String(error)}`;
      throw new ArchiveError(reason, { isMissing, cause: error });
    }
  }
}

/** The name of a file that a write makes, and of what a probe writes. */
const LEFT_OVER = /\.[0-9a-f]{12}\.tmp$|^probe-[0-9a-f]{16}$/;
/** No probe takes so long. */
const PROBE_MS = 10 * 60_000;

/**
 * Removes what writes that were killed have left beside a file. One process at a time writes the files of a day, so that all of them there
 * are left over. Probes may be under way: theirs are so by their age, by the clock of the file system.
 */
async function sweep(own: string, { mtimeMs: now }: { readonly mtimeMs: number }): Promise<void> {
  const folder = dirname(own);
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    if (path === own || !LEFT_OVER.test(name)) continue;
    const found = name.startsWith('probe-') ? await stat(path).catch(() => null) : { mtimeMs: 0 };
    if (found !== null && now - found.mtimeMs > PROBE_MS) await rm(path, { force: true });
  }
}

class BucketStore implements ArchiveStore {
  readonly #client: AwsClient;
  readonly #base: string;
  readonly place: string;

  constructor(client: AwsClient, base: string, place: string) {
    this.#client = client;
    this.#base = base;
    this.place = place;
  }

  async put(key: string, bytes: Uint8Array): Promise<void> {
    // The server refuses what does not have this digest.
    const digest = createHash('sha256').update(bytes).digest('hex');
    const headers = { 'x-amz-content-sha256': digest, 'content-type': 'application/octet-stream' };
    await this.#request('PUT', key, { body: Buffer.from(bytes), headers });
  }

  async get(key: string, part?: ObjectPart): Promise<Buffer> {
    if (part !== undefined) return await this.#getPart(key, part);
    const response = await this.#request('GET', key, {});
    const bytes = await answered(() => response.arrayBuffer());
    const length = response.headers.get('content-length');
    if (
      length !== null &&
      response.headers.get('content-encoding') === null &&
      Number(length) !== bytes.byteLength
    )
      throw cutOff(bytes.byteLength, Number(length));
    return Buffer.from(bytes);
  }

  async #getPart(key: string, { start, end, signal }: ObjectPart): Promise<Buffer> {
    const headers = { range: `bytes=${start}-${end - 1}` };
    const response = await this.#request('GET', key, { headers, ...(signal && { signal }) });
    const bytes = Buffer.from(await answered(() => response.arrayBuffer()));
    // A server may send the whole object.
    const found = response.status === PARTIAL_CONTENT ? bytes : bytes.subarray(start, end);
    if (found.length !== end - start) throw cutOff(found.length, end - start);
    return found;
  }

  async remove(key: string): Promise<void> {
    await this.#request('DELETE', key, {}, [NOT_FOUND]);
  }

  /** @param allowed statuses that are no failure, beside 200 to 299 */
  async #request(
    method: string,
    key: string,
    init: RequestInit,
    allowed: readonly number[] = [],
  ): Promise<Response> {
    const late = AbortSignal.timeout(REQUEST_TIMEOUT_MS);
    const signal = init.signal ? AbortSignal.any([init.signal, late]) : late;
    const response = await answered(() =>
      // A redirect would take the signature to another host.
      this.#client.fetch(`${this.#base}/${key}`, { ...init, method, signal, redirect: 'manual' }),
    );
    if (response.ok || allowed.includes(response.status)) return response;
    const text = await answered(() => response.text());
    const code = CODE.exec(text)?.[1];
    const isMissing = response.status === NOT_FOUND && code !== 'NoSuchBucket';
    const words = shownWords(wordsOf(text).replaceAll(this.#client.accessKeyId, '…'));
    throw new ArchiveError(`${method} was answered with ${response.status}${words && ` ${words}`}`, {
      isMissing,
    });
  }
}

const CODE = /<Code>(\w{1,64})<\/Code>/;

/** What an error of S3 says: the elements that are left out quote the request. Of another server its whole answer. */
function wordsOf(text: string): string {
  const code = CODE.exec(text)?.[1];
  if (code === undefined) return text;
  const message = /<Message>([^<]+)</.exec(text)?.[1];
  const endpoint = /<Endpoint>([^<]+)</.exec(text)?.[1];
  return `${code}${message === undefined ? '' : `: ${message}`}${endpoint === undefined ? '' : ` (${endpoint})`}`;
}

function notAFile(cause?: unknown): ArchiveError {
  return new ArchiveError(
    'it is a link, a pipe or a device: put the file itself there, or take it from a backup',
    { cause },
  );
}

function cutOff(bytes: number, expected: number): ArchiveError {
  return new ArchiveError(`the answer was cut off after ${bytes} of ${expected} bytes`);
}

async function answered<T>(request: () => Promise<T>): Promise<T> {
  try {
    return await request();
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const reason =
      error instanceof Error && error.name === 'TimeoutError'
        ? `no answer within ${REQUEST_TIMEOUT_MS / 1_000} s`
        : `no answer (${cause instanceof Error ? ('code' in cause ? String(cause.code) : cause.message) : String(cause)})`;
    throw new ArchiveError(reason, { cause: error });
  }
}
