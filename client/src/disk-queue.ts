/**
 * Events that wait, on disk: an append-only journal in a folder, which the Python client reads and writes as well (its format is
 * described in client/README.md). Segments are removed oldest first, once their events are done: a later one may have the dates
 * of their events.
 */
import {
  closeSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';

/** When what is written is synced to the disk: by each `log`, before events are sent, or never. */
export type Sync = 'always' | 'batch' | 'never';

export interface StoredEvent {
  readonly n: number;
  readonly type: string;
  readonly key: string;
  /** When it was logged, or the time that the caller has given. */
  readonly at: number;
  /** Whether the caller has given it. */
  readonly dated: boolean;
  /** JSON text. */
  readonly payload: string;
  /** The time that it was sent with, if it was. */
  readonly date?: number;
}

const SEGMENT_BYTES = 4 * 1_048_576;
/** An empty queue begins a new segment from this size on. */
const WORTH_REMOVING_BYTES = 65_536;
const SUFFIX = '.queue';
const SEGMENT = /^\d+\.queue$/;
const PAYLOAD = ',"payload":';

export class DiskQueue {
  readonly #folder: string;
  readonly #sync: Sync;
  /** The segment of each event that waits, and how many each segment has. */
  readonly #segmentOf = new Map<number, number>();
  readonly #left = new Map<number, number>();
  #number = 0;
  #file: number | null = null;
  #size = 0;
  /** Whether the last line was cut off. */
  #isCut = false;
  /** What earlier processes have left, oldest first. */
  readonly found: readonly StoredEvent[];
  readonly highest: number;
  /** Lines that could not be read: none of them was ever accepted, unless a disk has lost something. */
  readonly damaged: number;

  /** @throws Error if another process uses the folder, or it cannot be written */
  constructor(folder: string, sync: Sync) {
    this.#folder = folder;
    this.#sync = sync;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    lock(join(folder, 'lock'));
    const { events, segments, highest, damaged } = readSegments(folder);
    for (const number of segments) this.#left.set(number, 0);
    for (const { segment, event } of events) {
      this.#segmentOf.set(event.n, segment);
      this.#left.set(segment, (this.#left.get(segment) ?? 0) + 1);
    }
    this.found = events.map(({ event }) => event);
    this.highest = highest;
    this.damaged = damaged;
    this.#number = segments.at(-1) ?? 0;
    this.#rotate();
    this.#removeDone();
  }

  /** @throws Error if it cannot be written: the event is then not on disk */
  append({ n, type, key, at, dated, payload }: StoredEvent): void {
    this.#write(`${JSON.stringify({ n, type, key, at, dated }).slice(0, -1)}${PAYLOAD}${payload}}`);
    this.#segmentOf.set(n, this.#number);
    this.#left.set(this.#number, (this.#left.get(this.#number) ?? 0) + 1);
    if (this.#sync === 'always' && this.#file !== null) fsyncSync(this.#file);
  }

  /** Notes the times that events are sent with, before they are. @throws Error if that cannot be written */
  date(dates: readonly (readonly [n: number, date: number])[]): void {
    if (dates.length === 0 || this.#file === null) return;
    this.#write(JSON.stringify({ dates: Object.fromEntries(dates) }));
    if (this.#sync !== 'never') fsyncSync(this.#file);
  }

  done(numbers: readonly number[]): void {
    const known = numbers.filter((n) => this.#segmentOf.has(n));
    if (known.length === 0 || this.#file === null) return;
    try {
      this.#write(JSON.stringify({ done: known }));
    } catch {
      // They are then sent again by the next process: keys and dates make them the same.
    }
    for (const n of known) {
      const segment = this.#segmentOf.get(n) ?? 0;
      this.#segmentOf.delete(n);
      this.#left.set(segment, (this.#left.get(segment) ?? 1) - 1);
    }
    const isEmpty = this.#segmentOf.size === 0 && this.#size > WORTH_REMOVING_BYTES;
    if (this.#size > SEGMENT_BYTES || isEmpty) this.#rotate();
    this.#removeDone();
  }

  close(): void {
    if (this.#file === null) return;
    closeSync(this.#file);
    this.#file = null;
    rmSync(join(this.#folder, 'lock'), { force: true });
  }

  #write(line: string): void {
    if (this.#file === null) throw new Error('The queue is closed.');
    // A line that was cut off by a full disk ends before the next one.
    const bytes = Buffer.from(`${this.#isCut ? '\n' : ''}${line}\n`);
    let written = 0;
    try {
      while (written < bytes.length) written += writeSync(this.#file, bytes, written);
      this.#isCut = false;
    } finally {
      if (written > 0 && written < bytes.length) this.#isCut = true;
      this.#size += written;
    }
  }

  #rotate(): void {
    const next = this.#number + 1;
    const file = openSync(join(this.#folder, nameOf(next)), 'ax', 0o600);
    if (this.#file !== null) closeSync(this.#file);
    this.#file = file;
    this.#number = next;
    this.#size = 0;
    this.#isCut = false;
    this.#left.set(next, 0);
  }

  #removeDone(): void {
    for (const [number, left] of [...this.#left].sort(([a], [b]) => a - b)) {
      if (number === this.#number || left > 0) return;
      rmSync(join(this.#folder, nameOf(number)), { force: true });
      this.#left.delete(number);
    }
  }
}

function nameOf(number: number): string {
  return `${String(number).padStart(8, '0')}${SUFFIX}`;
}

interface Found {
  readonly events: readonly { readonly segment: number; readonly event: StoredEvent }[];
  readonly segments: readonly number[];
  readonly highest: number;
  readonly damaged: number;
}

/** What a folder of segments holds. */
export function readSegments(folder: string): Found {
  const segments = readdirSync(folder)
    .filter((name) => SEGMENT.test(name))
    .map((name) => Number.parseInt(name, 10))
    .sort((a, b) => a - b);
  const events = new Map<number, { segment: number; event: StoredEvent }>();
  let highest = 0;
  let damaged = 0;
  for (const segment of segments) {
    const lines = readFileSync(join(folder, nameOf(segment)), 'utf8').split('\n');
    if (lines.pop() !== '') damaged += 1;
    for (const line of lines) {
      const entry = line === '' ? [] : parsed(line);
      if (entry === null) damaged += 1;
      else for (const change of entry) apply(events, segment, change);
      for (const { event } of entry ?? []) if (event !== undefined) highest = Math.max(highest, event.n);
    }
  }
  const sorted = [...events.values()].sort((a, b) => a.event.n - b.event.n);
  return { events: sorted, segments, highest, damaged };
}

/** What a line changes: an event that is new, has a date, or is done. */
interface Change {
  readonly event?: StoredEvent;
  readonly dated?: readonly [n: number, date: number];
  readonly done?: number;
}

function apply(
  events: Map<number, { segment: number; event: StoredEvent }>,
  segment: number,
  { event, dated, done }: Change,
): void {
  if (event !== undefined) events.set(event.n, { segment, event });
  if (done !== undefined) events.delete(done);
  const held = dated === undefined ? undefined : events.get(dated[0]);
  if (held !== undefined && dated !== undefined) held.event = { ...held.event, date: dated[1] };
}

/** The changes of a line of a segment; null if it is damaged. */
function parsed(line: string): readonly Change[] | null {
  try {
    const { dates, done, ...event } = JSON.parse(line) as Record<string, unknown>;
    if (typeof dates === 'object' && dates !== null)
      return Object.entries(dates).map(([n, date]) => ({ dated: [Number(n), Number(date)] }));
    if (Array.isArray(done)) return done.map((n) => ({ done: Number(n) }));
    const { n, type, key, at, dated } = event;
    const start = line.indexOf(PAYLOAD);
    if (typeof n !== 'number' || typeof at !== 'number' || start < 0) return null;
    if (typeof type !== 'string' || typeof key !== 'string') return null;
    // The payload is the last member: its own text is kept.
    const payload = line.slice(start + PAYLOAD.length, -1);
    return [{ event: { n, type, key, at, dated: dated === true, payload } }];
  } catch {
    return null;
  }
}

/** @throws Error if the process that has the lock runs */
function lock(path: string): void {
  for (;;) {
    try {
      writeFileSync(path, String(process.pid), { flag: 'wx', mode: 0o600 });
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      const owner = Number(readLock(path));
      if (owner > 0 && owner !== process.pid && isRunning(owner))
        throw new Error(`${path}: the queue is used by process ${owner}.`);
      rmSync(path, { force: true });
    }
  }
}

function readLock(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
