/** The file system operations of the journal, behind an interface so that tests can inject failures. */
import { open, readdir, readFile, rename, stat, unlink } from 'node:fs/promises';
import { makeFolder, syncFolder } from '../../make-folder.ts';
import { errorCode } from '../../storage/connect.ts';
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

export interface JournalFiles {
  /** Creates a folder and its parents, accessible only to this user. */
  makeFolder(path: string): Promise<void>;
  /** Creates a file that does not exist. */
  create(path: string): Promise<JournalFile>;
  read(path: string): Promise<Buffer>;
  /** The lines of a file, part by part. */
  lines(path: string): AsyncIterable<string>;
  /** Appends lines to a file, created if missing, and resolves when they are durable. */
  append(path: string, lines: string): Promise<void>;
  list(folder: string): Promise<string[]>;
  rename(from: string, to: string): Promise<void>;
  /** Truncates a file that is not open, and resolves when that is durable. */
  cut(path: string, length: number): Promise<void>;
  /** Size of a file in bytes; null if it does not exist. */
  size(path: string): Promise<number | null>;
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
  read: (path) => readFile(path),
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
  size: async (path) => {
    try {
      return (await stat(path)).size;
    } catch (error) {
      if (errorCode(error) === 'ENOENT') return null;
      throw error;
    }
  },
  remove: unlink,
  syncFolder,
  claim: claimFolder,
};

async function* linesOf(path: string): AsyncIterable<string> {
  // The iteration closes the file, and rejects if it cannot be read.
  const file = await open(path);
  yield* file.readLines();
}
