/**
 * Quarantine: events of the journal that no retry brings into the database, as lines of a file in JOURNAL_DIR, until a
 * person has them imported or dropped. Processes that share the folder share the file; one at a time uses it.
 */
import { type FileHandle, open, rename, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type JournaledEvent, timestamp } from '../../storage/write/accepted-event.ts';
import type { Unstorable } from '../../storage/write/replay-writer.ts';
import { type Claim, claimFolder } from './claim.ts';
import { type JournalFiles, SYSTEM_FILES } from './files.ts';

/** An event in quarantine. */
export interface Quarantined {
  readonly event: JournaledEvent;
  readonly why: Unstorable;
}

/** A line of the file: null where it is none that was written here. */
export interface QuarantineLine {
  readonly text: string;
  readonly quarantined: Quarantined | null;
}

const NAME = 'quarantine.ndjson';
/** Longest wait for another process that uses the file. An import may hold it for longer. */
const CLAIM_TIMEOUT_MS = 2_000;

export function quarantinePath(folder: string): string {
  return join(folder, NAME);
}

/** What a process does with the quarantine while it replays. */
export class Quarantine {
  readonly #folder: string;
  readonly #files: JournalFiles;
  /** Whether the file is known to end with a line's end: a process may have been killed while it appended. */
  #endsLine = false;
  #size = 0;
  #events = 0;

  constructor(folder: string, files: JournalFiles = SYSTEM_FILES) {
    this.#folder = folder;
    this.#files = files;
  }

  /** Events in the file when it was last looked at. */
  get events(): number {
    return this.#events;
  }

  /** Appends events; they are on the disk when it resolves. @throws where the disk fails, or another process uses the file */
  async add(some: readonly Quarantined[]): Promise<void> {
    const claim = await claimQuarantine(this.#folder);
    try {
      const path = quarantinePath(this.#folder);
      const before = (await this.#files.size(path)) ?? 0;
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

  /** Counts the events again where the file has changed, as by a command. */
  async look(): Promise<void> {
    const size = (await this.#files.size(quarantinePath(this.#folder))) ?? 0;
    if (size === this.#size) return;
    this.#events = await countQuarantined(this.#folder);
    this.#size = size;
  }
}

/** The events in quarantine, each once; 0 where there is no file. */
export async function countQuarantined(folder: string): Promise<number> {
  let events = 0;
  for await (const _ of readQuarantine(folder)) events += 1;
  return events;
}

/** The lines, an event that is there twice only once: a replay that was killed sets it aside again. */
export async function* readQuarantine(folder: string): AsyncGenerator<QuarantineLine> {
  const seen = new Set<string>();
  if ((await SYSTEM_FILES.size(quarantinePath(folder))) === null) return;
  // Closes itself, and rejects where it cannot be read.
  const file = await open(quarantinePath(folder));
  for await (const text of file.readLines()) {
    if (text === '') continue;
    const quarantined = parseLine(text);
    if (quarantined !== null && seen.has(quarantined.event.id)) continue;
    if (quarantined !== null) seen.add(quarantined.event.id);
    yield { text, quarantined };
  }
}

/**
 * Goes through the lines while no other process uses the file, and keeps in it what `change` returns. A failure on the way
 * leaves the file as it was.
 * @param change takes some lines in order and returns those to keep; called once more with none at the end
 */
export async function rewriteQuarantine(
  folder: string,
  change: (lines: readonly QuarantineLine[]) => Promise<readonly string[]>,
  linesAtOnce: number,
): Promise<void> {
  const path = quarantinePath(folder);
  if ((await SYSTEM_FILES.size(path)) === null) return;
  const claim = await claimQuarantine(folder);
  const unfinished = `${path}.new`;
  try {
    const kept = await open(unfinished, 'w', 0o600);
    const bytes = await rewrite(folder, change, linesAtOnce, kept).finally(() => kept.close());
    if (bytes === 0) await unlink(path);
    else await rename(unfinished, path);
    await SYSTEM_FILES.syncFolder(folder);
  } finally {
    await unlink(unfinished).catch(() => undefined); // Mostly it has its name by now.
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

/** @throws where another process uses the file for longer than it is waited for */
async function claimQuarantine(folder: string): Promise<Claim> {
  for (const deadline = performance.now() + CLAIM_TIMEOUT_MS; performance.now() < deadline; ) {
    const claim = await claimFolder(folder);
    if (claim !== null) return claim;
    await new Promise((resolve) => {
      setTimeout(resolve, 10 + Math.random() * 40);
    });
  }
  throw new Error(`Another process uses ${quarantinePath(folder)}: try again when it has finished`);
}

/** The line of an event, with its end. The payload is a string: its JSON text may have line ends in it. */
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
    return null; // Cut off, or edited; it is kept, and shown as unreadable.
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
    why: { reason: reason as Unstorable['reason'], details }, // Written here, and only shown.
  };
}
