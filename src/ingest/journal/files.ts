/** The file system operations of the journal, behind an interface so that tests can inject failures. */
import type { Stats } from 'node:fs';
import { constants, type FileHandle, lstat, open, readdir, rename, unlink } from 'node:fs/promises';
import { makeFolder, syncFolder } from '../../base/make-folder.ts';
import { errorCode } from '../../storage/database/connect.ts';
import { type Claim, claimFolder } from './claim.ts';

export interface JournalFile {
  /** Writes all bytes at a position. If it throws, any part of them may have been written. */
  write(bytes: Uint8Array, position: number): Promise<void>;
  /** Resolves when everything written is durable (fdatasync). */
  sync(): Promise<void>;
  /** Truncates the file, and resolves when that is durable. */
  truncate(length: number): Promise<void>;
  close(): Promise<void>;
}

/** What a name in a folder stands for. */
export interface Entry {
  readonly kind: 'file' | 'folder' | 'a symbolic link' | 'a FIFO' | 'a socket' | 'a device';
  /** In bytes. */
  readonly size: number;
}

export interface JournalFiles {
  /** Creates a folder and its parents, accessible only to this user. */
  makeFolder(path: string): Promise<void>;
  /** Creates a file that does not exist. */
  create(path: string): Promise<JournalFile>;
  /** Reads a file. Blocks that the disk cannot read are zeros: what they held is damage, and what is around them is not. */
  read(path: string): Promise<Buffer>;
  /** The lines of a file, part by part. */
  lines(path: string): AsyncIterable<string>;
  /** Appends lines to a file, created if missing, and resolves when they are durable. */
  append(path: string, lines: string): Promise<void>;
  list(folder: string): Promise<string[]>;
  rename(from: string, to: string): Promise<void>;
  /** Truncates a file that is not open, and resolves when that is durable. */
  cut(path: string, length: number): Promise<void>;
  /** What has this name; null if nothing has. Follows no symbolic link. */
  inspect(path: string): Promise<Entry | null>;
  remove(path: string): Promise<void>;
  /** Resolves when created, renamed and removed names in the folder are durable. */
  syncFolder(folder: string): Promise<void>;
  /** Claims a folder for this process; null if another one has it. */
  claim(folder: string): Promise<Claim | null>;
}

export const SYSTEM_FILES: JournalFiles = {
  makeFolder: (path) => makeFolder(path, 0o700),
  create: async (path) => {
    const handle = await open(path, 'wx', 0o600);
    return {
      write: async (bytes, position) => {
        for (let written = 0; written < bytes.length; ) {
          const { bytesWritten } = await handle.write(
            bytes,
            written,
            bytes.length - written,
            position + written,
          );
          if (bytesWritten === 0) throw new Error('A write to the file wrote no bytes.');
          written += bytesWritten;
        }
      },
      sync: () => handle.datasync(),
      truncate: async (length) => {
        await handle.truncate(length);
        await handle.sync();
      },
      close: () => handle.close(),
    };
  },
  read: readAround,
  lines: linesOf,
  append: async (path, lines) => {
    const handle = await open(path, 'a', 0o600);
    try {
      await handle.writeFile(lines);
      await handle.sync();
    } finally {
      await handle.close();
    }
  },
  list: (folder) => readdir(folder),
  rename,
  cut: async (path, length) => {
    const handle = await open(path, 'r+');
    try {
      await handle.truncate(length);
      await handle.sync();
    } finally {
      await handle.close();
    }
  },
  inspect: async (path) => {
    try {
      const found = await lstat(path);
      return { kind: kindOf(found), size: found.size };
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return null;
      throw error;
    }
  },
  remove: unlink,
  syncFolder,
  claim: claimFolder,
};

function kindOf(found: Stats): Entry['kind'] {
  if (found.isFile()) return 'file';
  if (found.isDirectory()) return 'folder';
  if (found.isSymbolicLink()) return 'a symbolic link';
  if (found.isFIFO()) return 'a FIFO';
  return found.isSocket() ? 'a socket' : 'a device';
}

/** Bytes that are read at once, and where a disk fails. */
const CHUNK_BYTES = 1_048_576;
const BLOCK_BYTES = 4_096;

async function readAround(path: string): Promise<Buffer> {
  // Neither waits for a writer of a FIFO nor follows a link that has just taken the file's place.
  const handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const bytes = Buffer.alloc((await handle.stat()).size);
    for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
      const chunk = bytes.subarray(at, at + CHUNK_BYTES);
      if (await readInto(handle, chunk, at)) continue;
      for (let block = 0; block < chunk.length; block += BLOCK_BYTES)
        await readInto(handle, chunk.subarray(block, block + BLOCK_BYTES), at + block);
    }
    return bytes;
  } finally {
    await handle.close();
  }
}

/** Fills a part of a buffer from a file. @returns false, and zeros, where the disk cannot read it */
async function readInto(handle: FileHandle, part: Buffer, position: number): Promise<boolean> {
  try {
    for (let read = 0; read < part.length; ) {
      const { bytesRead } = await handle.read(part, read, part.length - read, position + read);
      if (bytesRead === 0) break;
      read += bytesRead;
    }
    return true;
  } catch (error) {
    if (errorCode(error) !== 'EIO') throw error;
    part.fill(0);
    return false;
  }
}

async function* linesOf(path: string): AsyncIterable<string> {
  // The iteration closes the file, and rejects if it cannot be read.
  const file = await open(path);
  yield* file.readLines();
}
