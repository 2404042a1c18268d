/** Writes files atomically. */
import { randomBytes } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Writable } from 'node:stream';

/** A temporary file without writes for this long is left over from a killed command. */
const ABANDONED_AFTER_MS = 3_600_000;

/**
 * Writes to a temporary file, syncs it and renames it to its final name, replacing an older file. Only its owner may read
 * it.
 * @param write must end the stream
 */
export async function writeWholeFile<T>(path: string, write: (output: Writable) => Promise<T>): Promise<T> {
  const folder = dirname(path);
  await removeAbandonedDrafts(path);
  const draft = join(folder, `.${basename(path)}.${randomBytes(6).toString('hex')}.part`);
  try {
    const result = await write(createWriteStream(draft, { flags: 'wx', mode: 0o600, flush: true }));
    await rename(draft, path);
    const directory = await open(folder);
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
    return result;
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

/** Removes the temporary files of interrupted commands. */
async function removeAbandonedDrafts(path: string): Promise<void> {
  const folder = dirname(path);
  const draft = /^[0-9a-f]{12}[.]part$/;
  const prefix = `.${basename(path)}.`;
  for (const name of await readdir(folder)) {
    if (!name.startsWith(prefix) || !draft.test(name.slice(prefix.length))) continue;
    const { mtimeMs } = await stat(join(folder, name));
    if (Date.now() - mtimeMs > ABANDONED_AFTER_MS) await rm(join(folder, name), { force: true });
  }
}
