/**
 * Writes the audit log to AUDIT_LOG as it grows, one JSON object a line. The process that does the maintenance writes it, and how far it
 * has come is in the database: each entry is written once, and again only after a write of which nobody knows whether it was complete.
 */
import { open } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { Rounds } from '../../base/rounds.ts';
import { type LineOutput, standardOutput } from '../../process/log-output.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { auditHorizon, auditLines } from './audit-export.ts';

export interface AuditOutputOptions {
  readonly sql: Sql;
  /** AUDIT_LOG: empty for none, `-` for standard output, or the path of a file. */
  readonly target: string;
  readonly log: Logger;
  /** Whether this process does the maintenance. */
  readonly isLeader: () => boolean;
  /** In place of standard output. */
  readonly standard?: () => LineOutput;
}

export interface AuditOutputStats {
  /** Entries that this process has written. */
  written: number;
  /** Attempts that failed, and are made again. */
  failures: number;
}

/** What can be written to. @throws where the lines may not have been written */
type Sink = (lines: Buffer) => Promise<void>;

const ROUND_MS = 1_000;
/** Time between two looks whether standard output has taken what was written. */
const LOOK_MS = 20;
/** For its owner alone: entries have email addresses. */
const MODE = 0o600;
const NEWLINE = 0x0a;

export class AuditOutput extends Rounds {
  readonly #options: AuditOutputOptions;
  readonly #sink: Sink;
  readonly stats: AuditOutputStats = { written: 0, failures: 0 };

  constructor(options: AuditOutputOptions) {
    const { target, log, standard = () => standardOutput(1) } = options;
    super({
      work: () => this.#write(),
      pauseMs: () => ROUND_MS,
      onFailure: (error, isFirst) => {
        this.stats.failures += 1;
        if (isFirst) log.error({ err: error, target }, 'audit: AUDIT_LOG cannot be written, retrying');
      },
      onRecovery: () => log.info({ target }, 'audit: AUDIT_LOG is written again'),
    });
    this.#options = options;
    this.#sink =
      target === '-'
        ? (lines) => writeStandard(standard(), lines, () => this.isStopped)
        : (lines) => appendTo(target, lines);
  }

  override start(): void {
    if (this.#options.target !== '') super.start();
  }

  /** Writes the entries since the last round. */
  async #write(): Promise<void> {
    const { sql, isLeader } = this.#options;
    if (!isLeader()) return;
    const [known] = await sql<{ after: number; last: number }[]>`
      SELECT coalesce((SELECT last_entry_id FROM audit_log_position), 0)::float8 AS after,
             coalesce((SELECT max(id) FROM audit_entries), 0)::float8 AS last`;
    const { after = 0, last = 0 } = known ?? {};
    if (last > after) await this.#writeAfter(after);
  }

  async #writeAfter(after: number): Promise<void> {
    const { sql } = this.#options;
    const horizon = await auditHorizon(sql);
    // A transaction that takes long may still commit a lower id: the next round looks again.
    if (horizon === null) return;
    for await (const part of auditLines(sql, { appId: null, from: null, until: null, after }, horizon)) {
      if (this.isStopped) return;
      await this.#sink(part.lines);
      this.stats.written += part.entries;
      await sql`
        INSERT INTO audit_log_position AS known (id, last_entry_id) VALUES (true, ${part.lastEntryId})
        ON CONFLICT (id) DO UPDATE SET last_entry_id = greatest(known.last_entry_id, excluded.last_entry_id)`;
    }
  }
}

/**
 * Appends to a file, which is opened for each part: one that was rotated away is followed by a new one. A line that an earlier write
 * has cut is ended first.
 */
async function appendTo(path: string, lines: Buffer): Promise<void> {
  // For reading as well: so a pipe that nobody reads does not keep the thread that opens it.
  const file = await open(path, 'a+', MODE);
  try {
    const stats = await file.stat();
    if (!stats.isFile()) throw new Error('AUDIT_LOG must be a file, or - for standard output');
    const last = Buffer.alloc(1, NEWLINE);
    if (stats.size > 0) await file.read(last, 0, 1, stats.size - 1);
    await file.appendFile(last[0] === NEWLINE ? lines : Buffer.concat([Buffer.of(NEWLINE), lines]));
    await file.datasync();
  } finally {
    await file.close();
  }
}

/** Writes to a reader that may be slow: further parts wait until it has taken this one. */
async function writeStandard(output: LineOutput, lines: Buffer, isStopped: () => boolean): Promise<void> {
  const { dropped } = output.stats;
  output.write(lines.toString());
  while (output.stats.waitingBytes > 0 && !isStopped()) await sleep(LOOK_MS);
  if (output.stats.dropped > dropped || output.stats.waitingBytes > 0)
    throw new Error('standard output does not take the lines');
}
