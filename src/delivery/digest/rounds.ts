/** Sends the weekly digests: the process that does the maintenance looks which are due, and leaves their mails to the outbox. */
import type { Logger } from 'pino';
import { Rounds } from '../../base/rounds.ts';
import { DAY_MS, MINUTE_MS } from '../../base/time-units.ts';
import { errorCode } from '../../storage/database/connect.ts';
import { areDeliveriesStopped } from '../restored.ts';
import { type DueDigest, dueDigests, passDigest } from './digests.ts';
import { digestMail } from './message.ts';
import { readWeek, type WeekNumbers, type WeekSources } from './weeks.ts';

export interface DigestRoundsOptions extends WeekSources {
  /** Whether this process sends. */
  readonly isLeader: () => boolean;
  readonly publicUrl: string;
  /** Whether there is a mail server. */
  readonly sendsMail: boolean;
  readonly log: Logger;
}

const LOOK_MS = 1_000;
/** Digests of one look. */
const MOST_AT_ONCE = 50;
/** No further digest of a look begins after that: those that are due by then have their turn in the next one. */
const TURN_MS = 5_000;
/** A digest that is this late is left out: the service was down, and its numbers are old. */
const LATEST_MS = 2 * DAY_MS;
/** How long the others come first after the numbers of a digest could not be read. */
const RETRY_MS = MINUTE_MS;

export class DigestRounds extends Rounds {
  readonly #options: DigestRoundsOptions;
  /** When digests that failed are tried again, by id. */
  readonly #waiting = new Map<number, number>();
  /** What could not be read when it was last tried. */
  readonly #failing = new Set<string>();

  constructor(options: DigestRoundsOptions) {
    super({
      work: () => this.look(),
      pauseMs: () => LOOK_MS,
      onFailure: (error, isFirst) => {
        if (isFirst) options.log.warn({ code: errorCode(error), err: error }, 'digest: failed, retrying');
      },
    });
    this.#options = options;
  }

  /** One round: what is due now. */
  async look(): Promise<void> {
    const { sql, isLeader, sendsMail, now } = this.#options;
    if (!sendsMail || !isLeader()) return;
    for (const [id, at] of this.#waiting) if (at <= now()) this.#waiting.delete(id);
    const due = await dueDigests(sql, now(), { most: MOST_AT_ONCE, waiting: [...this.#waiting.keys()] });
    if (due.length === 0 || (await areDeliveriesStopped(sql))) return;
    const reads = new Map<string, Promise<WeekNumbers | null>>();
    const until = now() + TURN_MS;
    for (const digest of due) {
      if (this.isStopped || now() > until) return;
      const key = keyOf(digest);
      const isLate = now() - digest.nextAt.getTime() > LATEST_MS;
      // All who have asked for the same numbers get those of one read.
      if (!isLate && !reads.has(key)) reads.set(key, this.#read(digest, key));
      const week = isLate ? null : ((await reads.get(key)) ?? null);
      if (isLate) this.#failing.delete(key);
      else if (week === null) {
        this.#waiting.set(digest.id, now() + RETRY_MS);
        continue;
      }
      await passDigest(sql, digest, { body: week && this.#bodyOf(digest, week), now: now() });
    }
  }

  /** @returns null where its board is gone, or it cannot be read now: another app's digests do not wait for it */
  async #read(digest: DueDigest, key: string): Promise<WeekNumbers | null> {
    const { log } = this.#options;
    try {
      const week = await readWeek(this.#options, digest);
      this.#failing.delete(key);
      return week;
    } catch (error) {
      const { appId, boardId } = digest;
      if (!this.#failing.has(key))
        log.warn(
          { appId, boardId, code: errorCode(error), err: error },
          'digest: cannot read numbers, retrying',
        );
      this.#failing.add(key);
      return null;
    }
  }

  #bodyOf(digest: DueDigest, week: WeekNumbers): string {
    return JSON.stringify(digestMail({ digest, publicUrl: this.#options.publicUrl, week }));
  }
}

const keyOf = ({ app, boardId, timezone, nextAt }: DueDigest): string =>
  [app, boardId, timezone, nextAt.getTime()].join(' ');
