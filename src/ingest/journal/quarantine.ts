/**
 * Quarantine: events of the journal that no retry can store. They stay in a file in JOURNAL_DIR, one per line, until the
 * operator imports or drops them. All processes that share the folder use the file, one at a time.
 */
import { type FileHandle, open, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { OperatorError } from '../../errors.ts';
import { type JournaledEvent, timestamp } from '../../storage/write/accepted-event.ts';
import type { Unstorable } from '../../storage/write/replay-writer.ts';
import type { Claim } from './claim.ts';
import { type JournalFiles, SYSTEM_FILES } from './files.ts';
import { nameOf } from './leftovers.ts';

export interface Quarantined {
  readonly event: JournaledEvent;
  readonly why: Unstorable;
}

/** A line of the file; `quarantined` is null if the line cannot be parsed. */
export interface QuarantineLine {
  readonly text: string;
  readonly quarantined: Quarantined | null;
}

const NAME = 'quarantine.ndjson';
/** Timeout for another process that uses the file. An import may hold it for longer. */
const CLAIM_TIMEOUT_MS = 2_000;

export function quarantinePath(folder: string): string {
  return join(folder, NAME);
}

/** Size of the file in bytes; null if there is none. @throws OperatorError for what would be waited for or followed */
async function sizeOf(files: JournalFiles, folder: string): Promise<number | null> {
  const entry = await files.inspect(quarantinePath(folder));
  if (entry === null || entry.kind === 'file') return entry?.size ?? null;
  throw new OperatorError(
    `JOURNAL_DIR: ${quarantinePath(folder)} is ${nameOf(entry)}, not a file: move it away`,
  );
}

/** The quarantine as the replay of a process uses it. */
export class Quarantine {
  readonly #folder: string;
  readonly #files: JournalFiles;
  /** Whether the file is known to end with a line break: a process may have been killed during an append. */
  #endsLine = false;
  #size = 0;
  #events = 0;

  constructor(folder: string, files: JournalFiles = SYSTEM_FILES) {
    this.#folder = folder;
    this.#files = files;
  }

  /** Events in the file at the last {@link look}. */
  get events(): number {
    return this.#events;
  }

  /** Appends events; resolves when they are durable. @throws if the disk fails, or another process uses the file */
  async add(some: readonly Quarantined[]): Promise<void> {
    const claim = await claimQuarantine(this.#folder, this.#files);
    try {
      const path = quarantinePath(this.#folder);
      const before = (await sizeOf(this.#files, this.#folder)) ?? 0;
      const lines = some.map(lineOf).join('');
      try {
        await this.#files.append(path, before > 0 && !this.#endsLine ? `\n${lines}` : lines);
        if (before === 0) await this.#files.syncFolder(this.#folder);
      } catch (error) {
        this.#endsLine = false;
        throw error;
      }
      this.#endsLine = true;
    } finally {
      await claim.release();
    }
    await this.look();
  }

  /** Counts the events again if the size of the file has changed, for example by a command. */
  async look(): Promise<void> {
    const size = (await sizeOf(this.#files, this.#folder)) ?? 0;
    if (size === this.#size) return;
    this.#events = await countQuarantined(this.#folder, this.#files);
    this.#size = size;
  }
}

/** The number of different events in quarantine; 0 if there is no file. */
export async function countQuarantined(folder: string, files: JournalFiles = SYSTEM_FILES): Promise<number> {
  let events = 0;
  for await (const _ of readQuarantine(folder, files)) events += 1;
  return events;
}

/** The lines without duplicate events, which occur after a replay was killed. */
export async function* readQuarantine(
  folder: string,
  files: JournalFiles = SYSTEM_FILES,
): AsyncGenerator<QuarantineLine> {
  const seen = new Set<string>();
  if ((await sizeOf(files, folder)) === null) return;
  for await (const text of files.lines(quarantinePath(folder))) {
    if (text === '') continue;
    const quarantined = parseLine(text);
    if (quarantined !== null && seen.has(quarantined.event.id)) continue;
    if (quarantined !== null) seen.add(quarantined.event.id);
    yield { text, quarantined };
  }
}

/**
 * Rewrites the file with the lines that `change` returns, while no other process uses it. A failure leaves the file
 * unchanged.
 * @param change receives lines in order and returns those to keep; the last call may have no lines
 */
export async function rewriteQuarantine(
  folder: string,
  change: (lines: readonly QuarantineLine[]) => Promise<readonly string[]>,
  linesAtOnce: number,
): Promise<void> {
  const path = quarantinePath(folder);
  if ((await sizeOf(SYSTEM_FILES, folder)) === null) return;
  const claim = await claimQuarantine(folder);
  const unfinished = `${path}.new`;
  try {
    const kept = await open(unfinished, 'w', 0o600);
    const bytes = await rewrite(folder, change, linesAtOnce, kept).finally(() => kept.close());
    if (bytes === 0) await unlink(path);
    else await rename(unfinished, path);
    await SYSTEM_FILES.syncFolder(folder);
  } finally {
    await unlink(unfinished).catch(() => undefined); // After a success it is renamed.
    await claim.release();
  }
}

async function rewrite(
  folder: string,
  change: (lines: readonly QuarantineLine[]) => Promise<readonly string[]>,
  linesAtOnce: number,
  kept: FileHandle,
): Promise<number> {
  let bytes = 0;
  let lines: QuarantineLine[] = [];
  const flush = async (): Promise<void> => {
    const text = (await change(lines)).map((line) => `${line}\n`).join('');
    bytes += text.length;
    if (text !== '') await kept.writeFile(text);
    lines = [];
  };
  for await (const line of readQuarantine(folder)) {
    lines.push(line);
    if (lines.length >= linesAtOnce) await flush();
  }
  await flush();
  await kept.sync();
  return bytes;
}

/** @throws if another process uses the file for longer than the timeout */
async function claimQuarantine(folder: string, files: JournalFiles = SYSTEM_FILES): Promise<Claim> {
  for (let waitedMs = 0; waitedMs < CLAIM_TIMEOUT_MS; ) {
    const claim = await files.claim(folder);
    if (claim !== null) return claim;
    const ms = 10 + Math.random() * 40;
    await new Promise((resolve) => {
      setTimeout(resolve, ms);
    });
    waitedMs += ms;
  }
  throw new Error(`Another process uses ${quarantinePath(folder)}: try again when it has finished`);
}

/** The line of an event with its line break. The payload is a string, because its JSON text may contain line breaks. */
export function lineOf({ event, why }: Quarantined): string {
  const { id, createdAt, payload, source } = event;
  return `${JSON.stringify({ ...why, ...source, id, createdAt: timestamp(createdAt), payload })}\n`;
}

const FIELDS = ['reason', 'details', 'appId', 'typeId', 'typeName', 'id', 'createdAt', 'payload'] as const;

function parseLine(text: string): Quarantined | null {
  let line: Record<string, unknown>;
  try {
    line = JSON.parse(text);
  } catch {
    return null; // Truncated or edited: kept, and listed as unreadable.
  }
  if (line === null || FIELDS.some((field) => typeof line[field] !== 'string')) return null;
  const { reason, details, appId, typeId, typeName, id, createdAt, payload } = line as Record<
    (typeof FIELDS)[number],
    string
  >;
  const time = Date.parse(createdAt);
  if (Number.isNaN(time)) return null;
  return {
    event: { id, createdAt: time, payload, source: { appId, typeId, typeName } },
    why: { reason: reason as Unstorable['reason'], details }, // Only displayed.
  };
}
