/** Sends the weekly digests: the process that does the maintenance looks which are due, and leaves their mails to the outbox. */
import type { Logger } from 'pino';
import { listHiddenTypes } from '../../apps/event-types.ts';
import { Rounds } from '../../base/rounds.ts';
import { DAY_MS } from '../../base/time-units.ts';
import { errorCode, type Sql } from '../../storage/database/connect.ts';
import { instantOf, localOf, type Series, type Storage } from '../../storage/storage.ts';
import { areDeliveriesStopped } from '../restored.ts';
import { type DueDigest, dueDigests, passDigest } from './digests.ts';
import { digestMail, type WeekOfType } from './message.ts';

export interface DigestRoundsOptions {
  /** A pool of upkeep. */
  readonly sql: Sql;
  readonly storage: Pick<Storage, 'inSnapshot'>;
  /** Whether this process sends. */
  readonly isLeader: () => boolean;
  /** PUBLIC_URL */
  readonly publicUrl: string;
  /** Whether there is a mail server. */
  readonly sendsMail: boolean;
  readonly log: Logger;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

const LOOK_MS = 1_000;
/** Digests of one look. */
const MOST_AT_ONCE = 50;
/** Types whose numbers are compared. */
const MOST_TYPES = 1_000;
/** A digest that is this late is left out: the service was down, and its numbers are old. */
const LATEST_MS = 2 * DAY_MS;

export class DigestRounds {
  readonly #options: DigestRoundsOptions;
  readonly #rounds: Rounds;

  constructor(options: DigestRoundsOptions) {
    this.#options = options;
    this.#rounds = new Rounds({
      work: () => this.#look(),
      pauseMs: () => LOOK_MS,
      onFailure: (error, isFirst) => {
        if (isFirst) options.log.warn({ code: errorCode(error), err: error }, 'digest: failed, retrying');
      },
    });
  }

  start(): void {
    this.#rounds.start();
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
  }

  async #look(): Promise<void> {
    const { sql, isLeader, sendsMail, now } = this.#options;
    if (!sendsMail || !isLeader()) return;
    const due = await dueDigests(sql, now(), MOST_AT_ONCE);
    if (due.length === 0 || (await areDeliveriesStopped(sql))) return;
    for (const digest of due) {
      if (this.#rounds.isStopped) return;
      const isLate = now() - digest.nextAt.getTime() > LATEST_MS;
      const body = isLate ? null : JSON.stringify(await this.#mail(digest));
      await passDigest(sql, digest, { body, now: now() });
    }
  }

  /** The week that ended with the Monday, and the one before: both from one snapshot. */
  async #mail(digest: DueDigest): Promise<object> {
    const { sql, storage, publicUrl } = this.#options;
    const { app, timezone, nextAt } = digest;
    const today = Math.floor(localOf(timezone, nextAt.getTime()) / DAY_MS);
    const [before, from, until] = [14, 7, 0].map((days) => instantOf(timezone, (today - days) * DAY_MS));
    const hidden = await listHiddenTypes(sql, app);
    const asked = { appId: app, typeIds: null, exceptTypes: hidden.map(({ id }) => id), timezone } as const;
    const shape = { buckets: '1d', exactEnds: 'both', topTypes: MOST_TYPES } as const;
    const [week, earlier] = await storage.inSnapshot(sql, (events) =>
      Promise.all([
        events.series({ ...asked, ...shape, from: from ?? 0, until: until ?? 0 }),
        events.series({ ...asked, ...shape, from: before ?? 0, until: from ?? 0 }),
      ]),
    );
    if (typeof week === 'string' || typeof earlier === 'string')
      throw new Error('Two weeks by the day are too many buckets.');
    return digestMail({
      digest,
      publicUrl,
      from: from ?? 0,
      until: until ?? 0,
      days: week,
      types: typesOf(week, earlier),
      before: sum(earlier.all),
    });
  }
}

function typesOf(week: Series, earlier: Series): readonly WeekOfType[] {
  const totals = new Map(earlier.types.map(({ typeId, total }) => [typeId, total]));
  const now = new Set(week.types.map(({ typeId }) => typeId));
  return [
    ...week.types.map(({ typeId, name, total }) => ({
      typeId,
      name,
      total,
      before: totals.get(typeId) ?? 0,
    })),
    ...earlier.types
      .filter(({ typeId }) => !now.has(typeId))
      .map(({ typeId, name, total }) => ({ typeId, name, total: 0, before: total })),
  ];
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
