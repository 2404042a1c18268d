/** Facts of the machine: data directory, secret file, disks, process limits. */
import { readFile, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { Config } from '../../config.ts';
import { loadUws } from '../../http/uws.ts';
import { countQuarantined } from '../../ingest/journal/quarantine.ts';
import { isContainerImage } from '../../process/container.ts';
import { errorCode } from '../../storage/database/connect.ts';

export interface MachineFacts {
  /** Whether this is the project's container image: HOST then does not show who can reach the port. */
  readonly inImage: boolean;
  readonly nodeVersion: string;
  /** Whether uWebSockets.js has a binary for this Node. */
  readonly hasUws: boolean;
  /** Permission bits of DATA_DIR; null if it does not exist. */
  readonly dataDirMode: number | null;
  readonly secretFile: 'absent' | 'unreadable' | { readonly mode: number; readonly characters: number };
  /** The disk of DATA_DIR; null if it does not exist. */
  readonly disk: { readonly freeBytes: number; readonly totalBytes: number } | null;
  /** The disk of JOURNAL_DIR; null if it does not exist. */
  readonly journalDisk: { readonly freeBytes: number; readonly totalBytes: number } | null;
  readonly quarantinedEvents: number;
  /** Files and sockets that a process may have open; null where the system does not say. */
  readonly openFiles: number | null;
}

/** With less room PostgreSQL and the journal soon stop. */
const LEAST_FREE_BYTES = 67_108_864;

export function isFull({ freeBytes }: { readonly freeBytes: number }): boolean {
  return freeBytes < LEAST_FREE_BYTES;
}

export async function machineFacts(config: Config): Promise<MachineFacts> {
  return {
    inImage: isContainerImage(),
    nodeVersion: process.version,
    hasUws: await loadUws().then(
      () => true,
      () => false, // The only cause is a missing binary.
    ),
    dataDirMode: await modeOf(config.DATA_DIR),
    secretFile: await secretFile(join(config.DATA_DIR, 'secret')),
    disk: await diskOf(config.DATA_DIR),
    journalDisk: config.JOURNAL_DIR === '' ? null : await diskOf(config.JOURNAL_DIR),
    quarantinedEvents: config.JOURNAL_DIR === '' ? 0 : await countQuarantined(config.JOURNAL_DIR),
    openFiles: await openFilesLimit(),
  };
}

async function modeOf(path: string): Promise<number | null> {
  try {
    return (await stat(path)).mode & 0o777;
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return null;
    throw error;
  }
}

async function secretFile(path: string): Promise<MachineFacts['secretFile']> {
  try {
    const [{ mode }, text] = [await stat(path), await readFile(path, 'utf8')];
    return { mode: mode & 0o777, characters: text.trim().length };
  } catch (error) {
    return errorCode(error) === 'ENOENT' ? 'absent' : 'unreadable';
  }
}

async function diskOf(path: string): Promise<MachineFacts['disk']> {
  try {
    const { bavail, blocks, bsize } = await statfs(path);
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return null;
    throw error;
  }
}

/** Linux only: other systems do not have this file. */
async function openFilesLimit(): Promise<number | null> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const soft = /^Max open files\s+(\d+)/m.exec(limits)?.[1];
  return soft === undefined ? null : Number(soft);
}
