/** The journal keeps accepted events on disk while the database cannot be reached. */
import { dirname, join } from 'node:path';
import type { Logger } from 'pino';
import { OperatorError, Rejection } from '../../errors.ts';
import { errorCode, isDiskFull } from '../../storage/database/connect.ts';
import type { Installation } from '../../storage/database/installation-id.ts';
import type { JournaledEvent } from '../../storage/write/accepted-event.ts';
import { DISK_FULL, FAULT } from '../../storage/write/failures.ts';
import type { Claim } from './claim.ts';
import { type JournalFile, type JournalFiles, SYSTEM_FILES } from './files.ts';
import type { Leftover } from './leftovers.ts';
import { isSegment, type Leftovers, leftoversOf, requireFolder, segmentNames } from './leftovers.ts';
import { Quarantine, type Quarantined } from './quarantine.ts';
import {
  ENDS_AT,
  encodeBody,
  encodeEnd,
  encodeFrame,
  encodeHeader,
  HEADER_BYTES,
  newHeader,
  RECORD_OVERHEAD_BYTES,
  readSegment,
  type SegmentHeader,
} from './segment.ts';

export interface JournalOptions {
  /** JOURNAL_DIR. Each process claims a folder in it. */
  readonly folder: string;
  /** The installation that the events belong to. */
  readonly installation: Installation;
  /** Limit of the files in bytes. */
  readonly maxBytes: number;
  readonly log: Logger;
  readonly files?: JournalFiles;
}

/** State of the journal, and counts since the start, for metrics. */
export interface JournalStats {
  /** Events on disk that are not in the database yet. */
  readonly waitingEvents: number;
  readonly waitingBytes: number;
  readonly appendedEvents: number;
  readonly replayedEvents: number;
  /** Events that could not be stored at their replay and went to quarantine. */
  readonly quarantinedEvents: number;
  /** Events in quarantine, of all processes that share JOURNAL_DIR. */
  readonly quarantineEvents: number;
  /** True while the database belongs to another installation: nothing is replayed into it. */
  readonly wrongDatabase: boolean;
  /** Writes to the journal that failed, and writes that found it full. */
  readonly failures: number;
  /** Damaged files, which are kept under another name. */
  readonly damagedSegments: number;
}

export interface WaitingSegment extends Omit<Leftover, 'tornBytes'> {
  /** Claim of another process's folder, released after its last segment is replayed. */
  readonly claim: Claim | null;
}

/** A segment that is being written. */
interface OpenSegment {
  readonly path: string;
  readonly file: JournalFile;
  readonly header: SegmentHeader;
  /** Durable bytes. */
  length: number;
  events: number;
}

interface Append {
  readonly body: Buffer;
  readonly events: number;
  readonly resolve: (refusal: Rejection | null) => void;
}

/** A replay reads a whole segment into memory. */
const SEGMENT_BYTES = 16 * 1_048_576;
/** Limit of processes that share a JOURNAL_DIR. */
const MAX_FOLDERS = 1_000;

const FULL = new Rejection(
  'unavailable',
  'The database is unavailable and the journal is full; try again shortly.',
);
const FAILED = new Rejection(
  'unavailable',
  'The database is unavailable and the journal cannot be written; try again shortly.',
);
const UNKNOWN = new Rejection(
  'outcomeUnknown',
  'The database is unavailable, and a write to the journal failed: the event may be stored.',
);

export class Journal {
  readonly #options: JournalOptions;
  readonly #files: JournalFiles;
  readonly #folder: string;
  readonly #claim: Claim;
  /** Oldest first. */
  readonly #waiting: WaitingSegment[] = [];
  #open: OpenSegment | null = null;
  #queue: Append[] = [];
  /** Serializes operations on the open segment. */
  #work: Promise<unknown> = Promise.resolve();
  #sequence = 0;
  #queuedBytes = 0;
  #failing = false;
  /** Replayed events of the oldest segment. */
  #storedOfOldest = 0;
  /** Set by the replay. */
  wrongDatabase = false;
  readonly #quarantine: Quarantine;
  #stats = { appendedEvents: 0, replayedEvents: 0, quarantinedEvents: 0, failures: 0, damagedSegments: 0 };

  private constructor(options: JournalOptions, folder: string, claim: Claim) {
    this.#options = options;
    this.#files = options.files ?? SYSTEM_FILES;
    this.#folder = folder;
    this.#claim = claim;
    this.#quarantine = new Quarantine(options.folder, this.#files);
  }

  /**
   * Claims a folder in JOURNAL_DIR, and adopts segments that ended processes have left.
   * @throws OperatorError if a segment belongs to another database
   */
  static async open(options: JournalOptions): Promise<Journal> {
    const { files = SYSTEM_FILES } = options;
    for (let number = 1; number <= MAX_FOLDERS; number += 1) {
      const folder = join(options.folder, `writer-${number}`);
      await requireFolder(files, folder);
      await makeWritersFolder(files, folder);
      const claim = await files.claim(folder);
      if (claim === null) continue;
      const journal = new Journal(options, folder, claim);
      try {
        await journal.#adopt(await leftoversOf(files, folder, options.installation.identity), null);
        await journal.adoptLeftovers();
      } catch (error) {
        await journal.close();
        throw error;
      }
      return journal;
    }
    throw new Error(`All of ${MAX_FOLDERS} folders in ${options.folder} are in use.`);
  }

  get stats(): JournalStats {
    const open = this.#open;
    return {
      ...this.#stats,
      waitingEvents: Math.max(
        0,
        this.#waiting.reduce((sum, { events }) => sum + events, open?.events ?? 0) - this.#storedOfOldest,
      ),
      quarantineEvents: this.#quarantine.events,
      wrongDatabase: this.wrongDatabase,
      waitingBytes: this.#waiting.reduce((sum, { length }) => sum + length, open?.length ?? 0),
    };
  }

  /** The installation that the events belong to. */
  get installation(): Installation {
    return this.#options.installation;
  }

  /** False while the last write failed or found the journal full. */
  get takesEvents(): boolean {
    return !this.#failing;
  }

  get isEmpty(): boolean {
    return this.#waiting.length === 0 && (this.#open?.events ?? 0) === 0;
  }

  /**
   * Appends a group of events. Groups that arrive while the disk is busy share one write and one sync.
   * @returns null once it is durable; else the reason why it is not, or may not be. Never rejects
   */
  append(group: readonly JournaledEvent[]): Promise<Rejection | null> {
    let body: Buffer;
    try {
      body = encodeBody(group);
    } catch (error) {
      this.#options.log.error(
        { err: error, events: group.length },
        'journal: a group of events cannot be encoded',
      );
      return Promise.resolve(FAULT);
    }
    const bytes = RECORD_OVERHEAD_BYTES + body.length;
    const header = this.#open === null ? HEADER_BYTES : 0;
    if (this.stats.waitingBytes + this.#queuedBytes + header + bytes > this.#options.maxBytes) {
      this.#fail({ maxBytes: this.#options.maxBytes }, 'journal: full, refusing events');
      return Promise.resolve(FULL);
    }
    this.#queuedBytes += bytes;
    return new Promise((resolve) => {
      this.#queue.push({ body, events: group.length, resolve });
      if (this.#queue.length === 1) void this.#exclusively(() => this.#writeQueue());
    });
  }

  /** The oldest waiting segment; null if there is none. Later appends go to another segment. */
  async oldest(): Promise<WaitingSegment | null> {
    if (this.#waiting.length === 0 && (this.#open?.events ?? 0) > 0)
      await this.#exclusively(() => this.#retire());
    return this.#waiting[0] ?? null;
  }

  /** The batches of a segment, in order. Logs damage. */
  async read(segment: WaitingSegment): Promise<{
    readonly batches: readonly (readonly JournaledEvent[])[];
    readonly damaged: boolean;
    /** Whether the events are of the journal's installation: not known of a file without a header. */
    readonly ownerKnown: boolean;
  }> {
    const bytes = await this.#files.read(segment.path);
    const missingBytes = Math.max(0, segment.length - bytes.length);
    const { header, batches, events, tornBytes, damagedBytes } = readSegment(
      bytes.subarray(0, segment.length),
    );
    // A torn write of a killed process was cut off before, so missing bytes were acknowledged.
    const lostBytes = missingBytes + tornBytes + damagedBytes;
    const damaged = header === null || lostBytes > 0;
    const { path, written } = segment;
    const lostEvents = written === null ? undefined : written - events;
    if (damaged)
      this.#options.log.error(
        { segment: path, events, damagedBytes: lostBytes, lostEvents },
        header === null
          ? 'journal: file without a header, its readable events go to quarantine and it is kept as .corrupt'
          : 'journal: file damaged, its readable events are stored and it is kept as .corrupt',
      );
    return { batches, damaged, ownerKnown: header !== null };
  }

  /** Moves events that cannot be stored to quarantine. */
  async setAside(some: readonly Quarantined[]): Promise<void> {
    await this.#quarantine.add(some);
    this.#stats.quarantinedEvents += some.length;
  }

  /**
   * Counts replayed events.
   * @param done events of the oldest segment that need no replay any more
   */
  countReplayed(events: number, done: number): void {
    this.#stats.replayedEvents += events;
    this.#storedOfOldest = done;
  }

  /** The oldest segment is in the database: removes its file, or renames it if it is damaged. */
  async finish(segment: WaitingSegment, damaged: boolean): Promise<void> {
    if (damaged) {
      this.#stats.damagedSegments += 1;
      await this.#files.rename(segment.path, `${segment.path}.corrupt`);
    } else {
      await this.#files.remove(segment.path);
    }
    this.#waiting.splice(this.#waiting.indexOf(segment), 1);
    this.#storedOfOldest = 0;
    const { claim } = segment;
    if (claim !== null && !this.#waiting.some((other) => other.claim === claim)) await claim.release();
  }

  /** Adopts segments of ended processes. @throws OperatorError if one belongs to another database */
  async adoptLeftovers(): Promise<void> {
    await this.#quarantine.look();
    const names = (await this.#files.list(this.#options.folder)).filter((name) => /^writer-\d+$/.test(name));
    for (const name of names) {
      const folder = join(this.#options.folder, name);
      await requireFolder(this.#files, folder);
      if (folder === this.#folder || !(await this.#files.list(folder)).some(isSegment)) continue;
      if (this.#waiting.some(({ path }) => path.startsWith(join(folder, '/')))) continue;
      const claim = await this.#files.claim(folder);
      if (claim === null) continue;
      try {
        const leftovers = await leftoversOf(this.#files, folder, this.#options.installation.identity);
        await this.#adopt(leftovers, claim);
        if (leftovers.segments.length === 0) await claim.release();
      } catch (error) {
        await claim.release();
        throw error;
      }
    }
  }

  /** Stops accepting events. Waiting ones stay on disk for the next start. */
  async close(): Promise<void> {
    await this.#exclusively(() => this.#retire());
    await this.#claim.release();
    await Promise.all(new Set(this.#waiting.map(({ claim }) => claim?.release())));
  }

  async #adopt({ segments, strangers, lastNumber }: Leftovers, claim: Claim | null): Promise<void> {
    if (claim === null) this.#sequence = lastNumber;
    this.#stats.damagedSegments += strangers.length;
    for (const stranger of strangers)
      this.#options.log.error(stranger, 'journal: not a file of the journal, set aside as .corrupt');
    for (const { path, length, events, tornBytes, written } of segments) {
      if (written === null)
        this.#options.log.warn(
          { segment: path, events, tornBytes },
          'journal: the process that wrote this file was killed; what is missing at its end may have been acknowledged',
        );
      // Cut it before anything is written after it.
      if (tornBytes > 0) await this.#files.cut(path, length);
      this.#waiting.push({ path, length, events, written, claim });
    }
  }

  #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#work.then(work);
    this.#work = done.catch(() => undefined);
    return done;
  }

  async #writeQueue(): Promise<void> {
    const group = this.#queue;
    this.#queue = [];
    const outcome = await this.#write(group);
    for (const { body, resolve } of group) {
      this.#queuedBytes -= RECORD_OVERHEAD_BYTES + body.length;
      resolve(outcome);
    }
  }

  async #write(group: readonly Append[]): Promise<Rejection | null> {
    let segment: OpenSegment;
    try {
      segment = await this.#writable();
    } catch (error) {
      this.#fail({ err: error }, 'journal: write failed, refusing events');
      return isDiskFull(error) ? DISK_FULL : FAILED;
    }
    const { marker } = segment.header;
    const records = group.flatMap(({ body, events }) => [encodeFrame(marker, body, events), body]);
    const bytes = Buffer.concat(records);
    try {
      await segment.file.write(bytes, segment.length);
      await segment.file.sync();
    } catch (error) {
      return await this.#takeBack(segment, error);
    }
    const events = group.reduce((sum, append) => sum + append.events, 0);
    segment.length += bytes.length;
    segment.events += events;
    this.#stats.appendedEvents += events;
    if (this.#failing) this.#options.log.info('journal: taking events again');
    this.#failing = false;
    return null;
  }

  /**
   * After a failed write or sync it is unknown which bytes are durable, and a second sync does not prove that the pages of
   * the first one are. So the file is truncated to its last synced length and not written any more.
   */
  async #takeBack(segment: OpenSegment, cause: unknown): Promise<Rejection> {
    this.#open = null;
    this.#wait(segment);
    let outcome = isDiskFull(cause) ? DISK_FULL : FAILED;
    try {
      await segment.file.truncate(segment.length);
    } catch (error) {
      this.#options.log.error(
        { err: error, segment: segment.path },
        'journal: a failed write could not be removed from the file',
      );
      outcome = UNKNOWN;
    }
    await segment.file.close().catch(() => undefined); // The kernel closes it with the process.
    this.#fail({ err: cause, segment: segment.path }, 'journal: write failed, refusing events');
    return outcome;
  }

  #fail(context: object, message: string): void {
    this.#stats.failures += 1;
    if (!this.#failing) this.#options.log.error(context, message);
    this.#failing = true;
  }

  /** The segment for the next record: the open one until it is full, then a new one. */
  async #writable(): Promise<OpenSegment> {
    if (this.#open !== null && this.#open.length >= SEGMENT_BYTES) await this.#retire();
    this.#open ??= await this.#create();
    return this.#open;
  }

  async #create(): Promise<OpenSegment> {
    this.#sequence += 1;
    const { unfinished, finished } = segmentNames(this.#sequence);
    const [made, path] = [join(this.#folder, unfinished), join(this.#folder, finished)];
    const header = newHeader(this.#options.installation);
    const file = await this.#files.create(made);
    try {
      await file.write(encodeHeader(header), 0);
      await file.sync();
      await this.#files.rename(made, path);
      await this.#files.syncFolder(this.#folder);
    } catch (error) {
      // It has no records, so it does no harm if it cannot be removed.
      await file.close().catch(() => undefined);
      for (const name of [made, path]) await this.#files.remove(name).catch(() => undefined);
      throw error;
    }
    return { path, file, header, length: HEADER_BYTES, events: 0 };
  }

  async #retire(): Promise<void> {
    const segment = this.#open;
    if (segment === null) return;
    this.#open = null;
    // Before any await, so that its events never drop out of the count.
    if (segment.events > 0) this.#wait(segment);
    if (segment.events > 0) await this.#complete(segment);
    await segment.file.close().catch(() => undefined); // Everything is synced.
    if (segment.events === 0) await this.#files.remove(segment.path);
  }

  /** Writes where the file ends, so that a later start notices what is missing of it. */
  async #complete({ path, file, header, length, events }: OpenSegment): Promise<void> {
    try {
      const end = encodeEnd(header.marker, { length, events });
      for (const at of ENDS_AT) {
        await file.write(end, at);
        await file.sync();
      }
    } catch (error) {
      this.#options.log.warn(
        { err: error, segment: path },
        'journal: the end of a file cannot be noted in it',
      );
    }
  }

  #wait({ path, length, events }: OpenSegment): void {
    this.#waiting.push({ path, length, events, written: events, claim: null });
  }
}

/**
 * Its name is durable before anything in it is: a power cut must not take the folder with acknowledged events.
 * @throws OperatorError if the folder does not exist and cannot be created
 */
async function makeWritersFolder(files: JournalFiles, folder: string): Promise<void> {
  try {
    await files.makeFolder(folder);
    await files.syncFolder(dirname(folder));
    // JOURNAL_DIR may have been made just now, too. Where this user cannot read its parent, another user has made it.
    await files.syncFolder(dirname(dirname(folder))).catch(() => undefined);
  } catch (error) {
    throw new OperatorError(
      `JOURNAL_DIR: the folder ${folder} cannot be created (${errorCode(error)}): choose a folder on a local disk that this user may write to`,
      { cause: error },
    );
  }
}
