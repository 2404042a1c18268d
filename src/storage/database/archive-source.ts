/** What reads the events of days whose rows are in the archive alone. The archive implements it; a pool's database has it. */
import type { Waiter } from '../../base/slots.ts';
import type { Path } from '../../base/turns.ts';
import { OperatorError } from '../../errors.ts';

/** A row group of an object of the archive: events in order of time and id. */
export interface ArchivedGroup {
  readonly key: string;
  /** The size of the whole object. */
  readonly objectBytes: number;
  /** Where the last group of the object ends: what follows it, the footer, says how groups are read. */
  readonly groupsEnd: number;
  /** SHA-256 of the footer, in hexadecimal. */
  readonly footer: string;
  /** Its number in the object. */
  readonly index: number;
  /** Time (milliseconds since 1970) and id of its first and of its last event. */
  readonly at: number;
  readonly id: string;
  readonly lastAt: number;
  readonly lastId: string;
  /** Internal id of a type → events. */
  readonly types: ReadonlyMap<number, number>;
  /** Its bytes in the object: from the first to before the last one. */
  readonly start: number;
  readonly end: number;
  /** The hash of these bytes, in hexadecimal. */
  readonly sha256: string;
}

/** Who waits for what is read. */
export interface ArchiveReader {
  /** Null: a command, which waits as long as it takes. */
  readonly waiter: Waiter | null;
  /** Whose turns it takes: an account first. */
  readonly turns: Path;
}

export interface ArchiveSource {
  /** What {@link read} has read of a group not long ago, if it is still there. */
  peek(group: ArchivedGroup): Buffer | undefined;
  /**
   * Reads a group.
   * @param typeIds public id of a type → its internal id, of all types of the group
   * @returns rows as COPY sends them in its binary format: id, time, type (internal), payload
   * @throws ArchiveUnavailable; Abandoned where nobody waits any more
   */
  read(group: ArchivedGroup, typeIds: ReadonlyMap<string, number>, reader: ArchiveReader): Promise<Buffer>;
}

/** Events of archived days cannot be read now. Its message is a sentence for whoever reads events. */
export class ArchiveUnavailable extends OperatorError {
  /** Whether an object is not there: its day has been written again, or was brought back. */
  readonly isMissing: boolean;

  constructor(message: string, { isMissing = false, cause }: { isMissing?: boolean; cause?: unknown } = {}) {
    super(message, { cause, isRetryable: true });
    this.isMissing = isMissing;
  }
}
