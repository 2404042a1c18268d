/** Makes folders, and keeps what is in them over a power failure. */
import { mkdir, open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Makes a folder and those above it, where they are missing. In place of node's recursive `mkdir`, which never returns, and
 * keeps a thread busy, where a file system answers ENOENT for a folder whose parent is there, as /proc does.
 * @param mode of each folder that is made
 * @throws the system's error where one cannot be made, also where a file is in its place
 */
export async function makeFolder(path: string, mode: number): Promise<void> {
  try {
    await mkdirUnlessThere(path, mode);
  } catch (error) {
    const parent = dirname(path);
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || parent === path) throw error;
    // Another process may be making it at the same time.
    await makeFolder(parent, mode);
    await mkdirUnlessThere(path, mode);
  }
}

async function mkdirUnlessThere(path: string, mode: number): Promise<void> {
  try {
    await mkdir(path, { mode });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || !(await isFolder(path))) throw error;
  }
}

async function isFolder(path: string): Promise<boolean> {
  try {
    return (await stat(path)).isDirectory();
  } catch {
    return false;
  }
}

/** Brings the entries of a folder to the disk: files that were made, renamed or removed in it survive a power failure only then. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
