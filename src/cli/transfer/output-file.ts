/** Opens the output of a command: files are replaced atomically, pipes and devices are written to directly. */
import { randomBytes } from 'node:crypto';
import { constants, createWriteStream, type Stats } from 'node:fs';
import { lstat, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Writable } from 'node:stream';
import { syncFolder } from '../../base/make-folder.ts';
import { OperatorError } from '../../errors.ts';
import { errorCode } from '../../storage/database/connect.ts';

/** Writes the output. @param write must end the stream */
export type Output = <T>(write: (stream: Writable) => Promise<T>) => Promise<T>;

/** Throws where an existing file must not be replaced; called when all of the output is written. @param path of the file */
export type MayReplace = (path: string) => Promise<void>;

/** A temporary file without writes for this long is left over from a killed command. */
const ABANDONED_AFTER_MS = 3_600_000;

/**
 * Decides how to write to a path. A regular or missing file is replaced atomically; a device such as /dev/null,
 * a terminal or a pipe is written to directly. Anything else is refused: as root a rename would replace it, and a
 * symbolic link in a folder of other users may point anywhere.
 * @param mayReplace is asked before an existing file is replaced
 * @throws OperatorError for a folder, a symbolic link to a file, a socket or a block device
 */
export async function outputOf(path: string, mayReplace?: MayReplace): Promise<Output> {
  const named = await existing(lstat(path));
  if (named === null || named.isFile()) return (write) => writeWholeFile(path, write, mayReplace);
  // /dev/stdout and /dev/stderr are links.
  const meant = named.isSymbolicLink() ? await existing(stat(path)) : named;
  if (meant !== null && (meant.isFIFO() || meant.isCharacterDevice()))
    return (write) => writeInto(path, write);
  throw new OperatorError(
    named.isSymbolicLink()
      ? `${path} is a symbolic link: name the file itself, or - for standard output`
      : `${path} is ${named.isDirectory() ? 'a folder' : 'no regular file'}: name a file`,
  );
}

async function existing(found: Promise<Stats>): Promise<Stats | null> {
  try {
    return await found;
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return null;
    throw error;
  }
}

/**
 * Writes to a temporary file, syncs it and renames it to its final name, replacing an older file. Only
 * its owner may read it.
 */
async function writeWholeFile<T>(
  path: string,
  write: (stream: Writable) => Promise<T>,
  mayReplace?: MayReplace,
): Promise<T> {
  const folder = dirname(path);
  await removeAbandonedDrafts(path);
  const draft = join(folder, `.${basename(path)}.${randomBytes(6).toString('hex')}.part`);
  try {
    const stream = createWriteStream(draft, { flags: 'wx', mode: 0o600, flush: true });
    stream.on('error', () => undefined); // The writer reports the error.
    const result = await write(stream);
    if (mayReplace !== undefined && (await existing(lstat(path))) !== null) await mayReplace(path);
    await rename(draft, path);
    await syncFolder(folder);
    return result;
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

/** Writes to an existing pipe or device; never creates a file. */
async function writeInto<T>(path: string, write: (stream: Writable) => Promise<T>): Promise<T> {
  const handle = await open(path, constants.O_WRONLY);
  const stream = handle.createWriteStream();
  stream.on('error', () => undefined); // The writer reports the error.
  return await write(stream);
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
