/** The few things that a journal asks of a file system; an argument of it, so that tests can let them fail. */
import { open, readdir, readFile, rename, stat, unlink } from 'node:fs/promises';
import { makeFolder } from '../../make-folder.ts';
import { errorCode } from '../../storage/connect.ts';

export interface JournalFile {
  /** Writes all of the bytes at a position, or throws; then any part of them may have been written. */
  write(bytes: Uint8Array, position: number): Promise<void>;
  /** Resolves when everything written is on the disk (fdatasync). */
  sync(): Promise<void>;
  /** Cuts the file, and resolves when that is on the disk. */
  truncate(length: number): Promise<void>;
  close(): Promise<void>;
}

export interface JournalFiles {
  /** Makes a folder, and those above it, that only this user can look into. */
  makeFolder(path: string): Promise<void>;
  /** Makes a file that is not there yet. */
  create(path: string): Promise<JournalFile>;
  read(path: string): Promise<Buffer>;
  /** Appends lines to a file, made where it is missing, and resolves when that is on the disk. */
  append(path: string, lines: string): Promise<void>;
  list(folder: string): Promise<string[]>;
  rename(from: string, to: string): Promise<void>;
  /** Cuts a file that is not open, and resolves when that is on the disk. */
  cut(path: string, length: number): Promise<void>;
  /** Bytes of a file; null where there is none. */
  size(path: string): Promise<number | null>;
  remove(path: string): Promise<void>;
  /** Names made, changed and removed in a folder are on the disk when it resolves. */
  syncFolder(folder: string): Promise<void>;
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
          if (bytesWritten === 0) throw new Error('The file takes no more bytes.');
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
  syncFolder: async (folder) => {
    const handle = await open(folder, 'r');
    try {
      await handle.sync();
    } finally {
      await handle.close();
    }
  },
};
