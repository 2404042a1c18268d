/** Where a command writes a file that was named to it: a file is there as a whole or not at all, a pipe is written to. */
import { randomBytes } from 'node:crypto';
import { constants, createWriteStream, type Stats } from 'node:fs';
import { lstat, open, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Writable } from 'node:stream';
import { OperatorError } from '../../errors.ts';
import { errorCode } from '../../storage/connect.ts';

/** Has the output written. @param write ends the stream */
export type Output = <T>(write: (stream: Writable) => Promise<T>) => Promise<T>;

/** A draft that nothing was written to for this long belongs to a command that was killed. */
const ABANDONED_AFTER_MS = 3_600_000;

/**
 * Decides how a path is written to. A file, and a path that is free, is replaced as a whole; a device such as /dev/null,
 * a terminal or a pipe is written to. What is neither stays untouched: for root a rename would replace it too, and a
 * symbolic link in a folder of others may lead anywhere.
 * @throws OperatorError where there is a folder, a link, a socket or a disk
 */
export async function outputOf(path: string): Promise<Output> {
  const named = await existing(lstat(path));
  if (named === null || named.isFile()) return (write) => writeWholeFile(path, write);
  // /dev/stdout and its like are links.
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
 * Writes a file beside its place, brings it to the disk and moves it there. An older file of this name is replaced. Only
 * its owner may read it.
 */
async function writeWholeFile<T>(path: string, write: (stream: Writable) => Promise<T>): Promise<T> {
  const folder = dirname(path);
  await removeAbandonedDrafts(path);
  const draft = join(folder, `.${basename(path)}.${randomBytes(6).toString('hex')}.part`);
  try {
    const stream = createWriteStream(draft, { flags: 'wx', mode: 0o600, flush: true });
    stream.on('error', () => undefined); // Whoever writes it throws it.
    const result = await write(stream);
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

/** Writes to what is there, and never makes a file in its place. */
async function writeInto<T>(path: string, write: (stream: Writable) => Promise<T>): Promise<T> {
  const handle = await open(path, constants.O_WRONLY);
  const stream = handle.createWriteStream();
  stream.on('error', () => undefined); // Whoever writes it throws it.
  return await write(stream);
}

/** Removes the drafts of this file that interrupted commands have left. */
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
