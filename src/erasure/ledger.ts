/**
 * The ledger of erasures: files beside the secret, one for each finished erasure, with the ids of its events and no values of them. A
 * backup that is restored later loses the same events again.
 *
 * The first line of a file is the erasure as JSON; each further line has the time of an event in milliseconds since 1970 and its id.
 */
import { mkdir, open, readdir, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { syncFolder } from '../base/make-folder.ts';
import { openDataFolder } from '../embedded/cluster.ts';
import { SYSTEM_FILES } from '../ingest/journal/files.ts';
import { errorCode } from '../storage/database/connect.ts';
import type { ErasedEvent } from '../storage/maintenance/erasing.ts';
import type { ErasureAction } from './conditions.ts';
import type { Erasure } from './erasures.ts';

/** The first line. */
export interface LedgerHead extends Omit<Erasure, 'receipt' | 'action'> {
  readonly action: ErasureAction;
  /** Where values were replaced. */
  readonly paths: readonly (readonly string[])[];
}

const NAME = /^ers_[0-9A-Za-z]{20}\.ndjson$/;
const EVENT = /^(\d{1,15}) ([0-9a-f-]{36})$/;
const EVENTS_AT_ONCE = 5_000;

function folderOf(dataDir: string): string {
  return join(dataDir, 'erasures');
}

/** The ids of the erasures that a ledger has. */
export async function ledgerOf(dataDir: string): Promise<ReadonlySet<string>> {
  try {
    const names = await readdir(folderOf(dataDir));
    return new Set(names.filter((name) => NAME.test(name)).map((name) => name.slice(0, -'.ndjson'.length)));
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(errorCode(error))) return new Set();
    throw error;
  }
}

/** Writes an erasure down; durable when it resolves. @throws the error of the system, or OperatorError for the folder */
export async function writeLedger(
  dataDir: string,
  head: LedgerHead,
  events: AsyncIterable<readonly ErasedEvent[]>,
): Promise<void> {
  const parent = await openDataFolder(dataDir);
  const folder = folderOf(parent);
  await mkdir(folder, { mode: 0o700, recursive: true });
  const path = join(folder, `${head.erasureId}.ndjson`);
  const draft = `${path}.new`;
  const file = await open(draft, 'w', 0o600);
  try {
    await file.write(`${JSON.stringify(head)}\n`);
    for await (const some of events) await file.write(some.map(({ at, id }) => `${at} ${id}\n`).join(''));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(draft, path);
  await syncFolder(folder);
  await syncFolder(parent);
}

/** Reads an erasure: its head, then its events in order of time, some thousand at a time. */
export async function readLedger(
  dataDir: string,
  erasureId: string,
): Promise<{ readonly head: LedgerHead; readonly events: AsyncGenerator<readonly ErasedEvent[]> }> {
  const path = join(folderOf(dataDir), `${erasureId}.ndjson`);
  const lines = SYSTEM_FILES.lines(path)[Symbol.asyncIterator]();
  const first = await lines.next();
  // Only writeLedger() writes it.
  const head = JSON.parse(String(first.value)) as LedgerHead;
  return { head: { ...head, askedAt: new Date(head.askedAt) }, events: eventsOf(path, lines) };
}

async function* eventsOf(path: string, lines: AsyncIterator<string>): AsyncGenerator<readonly ErasedEvent[]> {
  let some: ErasedEvent[] = [];
  for (let line = await lines.next(); line.done !== true; line = await lines.next()) {
    const [, at, id] = EVENT.exec(line.value) ?? [];
    if (at === undefined || id === undefined)
      throw new Error(`${path} is damaged: ${JSON.stringify(line.value.slice(0, 60))} is no event`);
    some.push({ at: Number(at), id });
    if (some.length < EVENTS_AT_ONCE) continue;
    yield some;
    some = [];
  }
  if (some.length > 0) yield some;
}
