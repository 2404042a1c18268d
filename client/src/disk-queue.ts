/**
 * Events that wait, on disk: an append-only journal in a folder, which the Python client reads and writes as well (its format is
 * described in client/README.md). Segments are removed oldest first, once their events are done: a later one may have the dates
 * of their events.
 */
import { randomUUID } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeSync,
} from 'node:fs';
import { hostname } from 'node:os';
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
  readonly #lock: FolderLock;
  /** The segment of each event that waits, and how many each segment has. */
  readonly #segmentOf = new Map<number, number>();
  readonly #left = new Map<number, number>();
  #number = 0;
  /** Null while no segment can begin. */
  #file: number | null = null;
  #isClosed = false;
  #size = 0;
  /** Whether the last line was cut off. */
  #isCut = false;
  /** What earlier processes have left, oldest first. */
  readonly found: readonly StoredEvent[];
  readonly highest: number;
  /** Lines that could not be read: none of them was ever accepted, unless a disk has lost something. */
  readonly damaged: number;

  /**
   * Where no segment can begin now, it begins with the first event that can be written.
   * @throws QueueInUse if another process uses the folder; Error if it cannot be read or locked
   */
  constructor(folder: string, sync: Sync) {
    this.#folder = folder;
    this.#sync = sync;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    this.#lock = new FolderLock(folder);
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
    try {
      this.#rotate();
      this.#removeDone();
    } catch {
      // A full disk, for example. Each write tries again, and tells its caller.
    }
  }

  /** Whether an event is on disk, and not done. */
  has(n: number): boolean {
    return this.#segmentOf.has(n);
  }

  /** @throws Error if it cannot be written: the event is then not on disk */
  append({ n, type, key, at, dated, payload }: StoredEvent): void {
    this.#write(`${JSON.stringify({ n, type, key, at, dated }).slice(0, -1)}${PAYLOAD}${payload}}`);
    this.#segmentOf.set(n, this.#number);
    this.#left.set(this.#number, (this.#left.get(this.#number) ?? 0) + 1);
    if (this.#sync === 'always' && this.#file !== null) fsyncSync(this.#file);
  }

  /** Notes the times that events of the queue are sent with, before they are. @throws Error if that cannot be written */
  date(dates: readonly (readonly [n: number, date: number])[]): void {
    const known = dates.filter(([n]) => this.#segmentOf.has(n));
    if (known.length === 0) return;
    this.#write(JSON.stringify({ dates: Object.fromEntries(known) }));
    if (this.#sync !== 'never' && this.#file !== null) fsyncSync(this.#file);
  }

  /** @throws Error if no new segment can begin: the events are done all the same, and the old segment goes on */
  done(numbers: readonly number[]): void {
    const known = numbers.filter((n) => this.#segmentOf.has(n));
    if (known.length === 0 || this.#isClosed) return;
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
    if (this.#isClosed) return;
    this.#isClosed = true;
    const file = this.#file;
    this.#file = null;
    try {
      if (file !== null) closeSync(file);
    } finally {
      this.#lock.release();
    }
  }

  #write(line: string): void {
    if (this.#isClosed) throw new Error('The queue is closed.');
    if (this.#lock.isLost) throw new Error(`Another process has taken the queue in ${this.#folder}.`);
    if (this.#file === null) this.#rotate();
    const file = this.#file;
    if (file === null) throw new Error('The queue has no segment.');
    // A line that was cut off by a full disk ends before the next one.
    const bytes = Buffer.from(`${this.#isCut ? '\n' : ''}${line}\n`);
    let written = 0;
    try {
      while (written < bytes.length) written += writeSync(file, bytes, written);
      this.#isCut = false;
    } finally {
      if (written > 0 && written < bytes.length) this.#isCut = true;
      this.#size += written;
    }
  }

  /** @throws Error if no segment can begin: the one before goes on */
  #rotate(): void {
    const next = this.#number + 1;
    const file = openSync(join(this.#folder, nameOf(next)), 'ax', 0o600);
    const before = this.#file;
    this.#file = file;
    this.#number = next;
    this.#size = 0;
    this.#isCut = false;
    this.#left.set(next, 0);
    if (before !== null) closeSync(before);
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

/** How often an owner shows that it lives. */
const BEAT_MS = 1_000;
/** How long an owner elsewhere is watched for that. */
const WATCHED_MS = 3_500;
const LOOK_MS = 100;
/** How often a lock is tried for that others take and leave meanwhile. */
const TRIES = 100;

/** Another process uses the folder of the queue. */
export class QueueInUse extends Error {
  override readonly name = 'QueueInUse';
}

interface Owner {
  readonly pid: number;
  readonly start: string;
  readonly place: string;
  readonly host: string;
  readonly id: string;
}

/** The locks of this process, by their ids. */
const OWN = new Set<string>();

/**
 * Which process uses a folder. The file `lock` names it: `{"pid":…,"start":…,"place":…,"host":…,"id":…}`. The Python client writes
 * and reads the same. Process ids are compared within one place, a boot of a machine and a namespace of process ids, where they mean
 * something. Elsewhere, as in two containers, the owner lives as long as it goes on to renew the file.
 */
class FolderLock {
  readonly #path: string;
  readonly #text: string;
  readonly #id = randomUUID();
  readonly #beat: NodeJS.Timeout;
  #isLost = false;

  /** @throws QueueInUse if another process has it; Error if the folder cannot be written */
  constructor(folder: string) {
    this.#path = join(folder, 'lock');
    const { pid } = process;
    const owner: Owner = { pid, start: startOf(pid), place: placeOfThis(), host: hostname(), id: this.#id };
    this.#text = JSON.stringify(owner);
    this.#take();
    OWN.add(this.#id);
    this.#beat = setInterval(() => this.#renew(), BEAT_MS);
    this.#beat.unref();
  }

  /** Whether another process has taken it, as after this one was stopped for long. */
  get isLost(): boolean {
    return this.#isLost;
  }

  release(): void {
    clearInterval(this.#beat);
    OWN.delete(this.#id);
    try {
      const text = read(this.#path);
      const isOthers = text !== this.#text && text !== null && (ownerOf(text)?.id ?? '') !== '';
      if (!isOthers) rmSync(this.#path, { force: true });
    } catch {
      // What is left names a process that has ended.
    }
  }

  #renew(): void {
    const text = read(this.#path);
    // A folder that cannot be read now, or was moved away, may come back.
    if (text !== null) this.#isLost = text !== this.#text;
    if (text !== this.#text) return;
    try {
      const now = new Date();
      utimesSync(this.#path, now, now);
    } catch {
      // The next one tries again.
    }
  }

  #take(): void {
    for (let tries = 0; tries < TRIES; tries += 1) {
      if (this.#made()) return;
      const text = read(this.#path);
      if (text === null) continue;
      const owner = ownerOf(text);
      if (owner !== null && isAlive(owner, this.#path))
        throw new QueueInUse(
          `The folder of the queue is used by process ${owner.pid} on ${owner.host || 'this machine'}: ${this.#path} names it. Give each process a folder of its own.`,
        );
      this.#remove(text);
    }
    throw new QueueInUse(`${this.#path}: other processes take the folder of the queue at the same time.`);
  }

  /** @returns false if there is one */
  #made(): boolean {
    let file: number;
    try {
      file = openSync(this.#path, 'wx', 0o600);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw error;
    }
    try {
      const bytes = Buffer.from(this.#text);
      if (writeSync(file, bytes) < bytes.length) throw new Error(`${this.#path} cannot be written whole.`);
      return true;
    } catch (error) {
      rmSync(this.#path, { force: true });
      throw error;
    } finally {
      closeSync(file);
    }
  }

  /** Removes the lock that has this text; not one that another process has made meanwhile. */
  #remove(text: string): void {
    const aside = `${this.#path}.${this.#id}`;
    try {
      renameSync(this.#path, aside);
      if (read(aside) !== text) linkSync(aside, this.#path);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code !== 'ENOENT' && code !== 'EEXIST') throw error;
    } finally {
      rmSync(aside, { force: true });
    }
  }
}

function read(path: string): string | null {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return null;
  }
}

/** Null for a lock that names nobody, such as one that was cut off. */
function ownerOf(text: string): Owner | null {
  try {
    const value: unknown = JSON.parse(text);
    // Earlier releases wrote the process id alone.
    if (typeof value === 'number') return { pid: value, start: '', place: placeOfThis(), host: '', id: '' };
    const { pid, start, place, host, id } = value as Record<string, unknown>;
    if (typeof pid !== 'number' || pid <= 0) return null;
    return { pid, start: String(start), place: String(place), host: String(host), id: String(id) };
  } catch {
    return null;
  }
}

function isAlive({ pid, start, place, id }: Owner, path: string): boolean {
  if (OWN.has(id)) return true;
  if (place !== placeOfThis()) return beats(path);
  // This process is another one than that which had its id.
  if (pid === process.pid) return false;
  return isRunning(pid) && (start === '' || start === startOf(pid));
}

/** Whether somebody renews the lock. By what changes, as clocks of two machines may differ. */
function beats(path: string): boolean {
  const timeOf = (): number => {
    try {
      return statSync(path).mtimeMs;
    } catch {
      return 0;
    }
  };
  const before = timeOf();
  const end = performance.now() + WATCHED_MS;
  while (performance.now() < end) {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LOOK_MS);
    if (timeOf() !== before) return true;
  }
  return false;
}

/** In which process ids mean the same: this boot and this namespace on Linux, else this machine. */
function placeOfThis(): string {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot} ${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return hostname();
  }
}

/** When a process began, in ticks since the boot; empty where that is not known. */
function startOf(pid: number): string {
  const text = read(`/proc/${pid}/stat`);
  // The name, in parentheses, may have spaces.
  return text?.slice(text.lastIndexOf(')') + 2).split(' ')[19] ?? '';
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
