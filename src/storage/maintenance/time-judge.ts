/**
 * The one judge of time. Whatever destroys, hides or gives up because time has passed asks it, and not a clock: a clock that is wrong
 * for a minute must cost nothing for good.
 *
 * It has three witnesses: the wall clock of this process, the clock of the database, and its own reckoning: the time of its last look
 * and what a clock that nobody sets has counted since. By {@link TimeJudge.now} something has passed only if all three say so. A
 * jump of both clocks is believed once they have stood by it for a day of running; a machine that was asleep has not jumped.
 */
import { Rounds } from '../../base/rounds.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../base/time-units.ts';
import type { Fragment, Sql, Transaction } from '../database/connect.ts';

/** What the database says. Times are milliseconds since 1970. */
export interface DatabaseTimes {
  readonly now: number;
  /** By what was destroyed last, in whichever process, and for how long a jump from there had stood; null: never noted. */
  readonly noted: { readonly at: number; readonly stoodMs: number } | null;
}

export interface TimeJudgeOptions {
  readonly wall: () => number;
  /** Milliseconds of a clock that nobody sets. */
  readonly elapsed: () => number;
  /** Milliseconds of that clock, but for the time in which the machine sleeps: it costs a call of the system. Absent: it never sleeps. */
  readonly uptime?: (() => number) | undefined;
  /** Asks the database; null: its clock is the wall clock, as in tests that move one, and nothing is noted. */
  readonly database: {
    readonly read: () => Promise<DatabaseTimes>;
    readonly note: (noted: NonNullable<DatabaseTimes['noted']>) => Promise<void>;
  } | null;
  readonly log: {
    info(fields: object, message: string): void;
    warn(fields: object, message: string): void;
  };
}

/** Why what time destroys waits. Positive numbers are ahead. */
export interface Doubt {
  /** The database's clock less this process's. */
  readonly databaseSeconds: number;
  /** The clocks less what they should show by the reckoning. */
  readonly jumpSeconds: number;
}

const EVERY_MS = 10_000;
const DIFFERENCE_MS = MINUTE_MS;
const JUMP_MS = HOUR_MS;
/** From the last note to a start: machines are off over night, and retention counts days. */
const OFF_MS = DAY_MS;
const BELIEVED_AFTER_MS = DAY_MS;
const NOTE_EVERY_MS = MINUTE_MS;

/** The row of `installation` with what was noted. */
const CLOCK = 'clock';

export class TimeJudge {
  readonly #options: TimeJudgeOptions;
  readonly #rounds: Rounds;
  /** At the last look; the following are of that instant. */
  #lookedAt: { readonly elapsed: number; readonly uptime: number };
  #database: number;
  /** What the clocks should show. */
  #reckoned: number;
  /** What is destroyed by; behind the reckoning after a start long after the last note. */
  #limit: number;
  #stoodMs = 0;
  /** The latest of all that was judged and noted. */
  #latest = 0;
  #notedAt = Number.NEGATIVE_INFINITY;
  #isBegun = false;
  #doubt: Doubt | null = null;

  constructor(options: TimeJudgeOptions) {
    this.#options = options;
    this.#lookedAt = this.#instant();
    this.#database = options.wall();
    this.#reckoned = this.#database;
    this.#limit = this.#database;
    this.#rounds = new Rounds({
      work: () => this.look(),
      pauseMs: () => EVERY_MS,
      onFailure: (error, isFirst) => {
        if (isFirst) options.log.warn({ err: error }, "clock: the database's clock cannot be read, retrying");
      },
    });
  }

  /** The wall clock, or where it is the only one that has jumped, what the other two say. Events, keys and sessions are stamped with it. */
  readonly wall = (): number => {
    const wall = this.#options.wall();
    const gone = this.#gone(wall);
    const reckoned = this.#reckoned + gone;
    const database = this.#options.database === null ? wall : this.#database + gone;
    if (isNear(wall, reckoned) || isNear(wall, database)) return wall;
    return Math.floor([wall, reckoned, database].sort((a, b) => a - b)[1] ?? wall);
  };

  /** By which time passes for what is destroyed, hidden or given up: no later than any witness says. */
  readonly now = (): number => {
    const gone = this.#gone(this.#options.wall());
    const database = this.#options.database === null ? Number.POSITIVE_INFINITY : this.#database + gone;
    const wall = this.wall();
    // Clocks are corrected by seconds all the time, which is no jump.
    const limit = this.#limit + gone;
    return Math.floor(Math.min(wall, database, this.#stoodMs === 0 && isNear(wall, limit) ? wall : limit));
  };

  /** Whether the clocks have gone back to before what was ended by them: what is dated by them now may be over at once. */
  readonly isBehind = (): boolean => this.#latest - this.wall() > JUMP_MS;

  /** Null while the witnesses agree. */
  get doubt(): Doubt | null {
    return this.#doubt;
  }

  /** Compares before anything is destroyed, and from then on again and again. */
  async start(): Promise<void> {
    await this.look();
    this.#rounds.start();
  }

  async stop(): Promise<void> {
    await this.#rounds.stop();
  }

  async look(): Promise<void> {
    const { elapsed, database } = this.#options;
    const asked = elapsed();
    const said = await database?.read();
    const answered = elapsed();
    const wall = this.#options.wall();
    const gone = this.#gone(null);
    // Between question and answer: a slow answer is no difference.
    const now = said === undefined ? wall : said.now + (answered - asked) / 2;
    const earlier = Math.min(wall, now);
    if (!this.#isBegun) this.#begin(wall, now, said?.noted ?? null);
    else this.#goOn(wall, now, gone);
    this.#isBegun = true;
    this.#lookedAt = this.#instant();
    this.#database = now;
    this.#latest = Math.max(this.#latest, said?.noted?.at ?? 0, this.now());
    const difference = Math.abs(now - wall) - (answered - asked) / 2 > DIFFERENCE_MS ? now - wall : 0;
    const jump = this.#stoodMs > 0 ? earlier - this.#limit : 0;
    this.#report(difference, jump);
    if (database !== null && Math.abs(answered - this.#notedAt) >= NOTE_EVERY_MS) {
      await database.note({ at: this.now(), stoodMs: this.#stoodMs });
      this.#notedAt = answered;
    }
  }

  /** There is no reckoning yet, but what was noted before a start. */
  #begin(wall: number, database: number, noted: DatabaseTimes['noted']): void {
    const earlier = Math.min(wall, database);
    this.#reckoned = earlier;
    this.#limit = earlier;
    if (noted === null) return;
    // The one of the two that the note is nearer to.
    this.#reckoned = Math.abs(wall - noted.at) <= Math.abs(database - noted.at) ? wall : database;
    if (this.#reckoned - noted.at <= OFF_MS) return;
    this.#limit = noted.at;
    this.#stoodMs = Math.max(1, noted.stoodMs);
  }

  #goOn(wall: number, database: number, gone: number): void {
    const reckoned = this.#reckoned + gone;
    const steady = [wall, database].find((clock) => isNear(clock, reckoned));
    this.#limit += gone;
    this.#reckoned = steady ?? reckoned;
    // After a start it is the limit that is behind, and not the clocks that jump.
    const isBehind = steady !== undefined && steady - this.#limit > JUMP_MS;
    if (steady !== undefined && !isBehind) {
      this.#stoodMs = 0;
      this.#limit = steady;
      return;
    }
    this.#stoodMs += Math.max(1, gone);
    if (this.#stoodMs < BELIEVED_AFTER_MS) return;
    this.#stoodMs = 0;
    this.#reckoned = Math.min(wall, database);
    this.#limit = this.#reckoned;
  }

  #instant(): { readonly elapsed: number; readonly uptime: number } {
    const { elapsed, uptime } = this.#options;
    return { elapsed: elapsed(), uptime: uptime?.() ?? 0 };
  }

  /** Since the last look. @param wall near what it should be, the machine has not slept; null: unknown */
  #gone(wall: number | null): number {
    const { elapsed, uptime } = this.#options;
    const gone = elapsed() - this.#lookedAt.elapsed;
    if (uptime === undefined || (wall !== null && isNear(wall, this.#reckoned + gone))) return gone;
    return Math.max(gone, uptime() - this.#lookedAt.uptime);
  }

  #report(difference: number, jump: number): void {
    const { log } = this.#options;
    const before = this.#doubt;
    this.#doubt =
      difference === 0 && jump === 0
        ? null
        : { databaseSeconds: Math.round(difference / 1_000), jumpSeconds: Math.round(jump / 1_000) };
    if (this.#doubt !== null && before === null)
      log.warn(this.#doubt, 'clock: a clock is wrong or has jumped: what is deleted by time waits');
    if (this.#doubt === null && before !== null)
      log.info({}, 'clock: the clocks agree: what is deleted by time goes on');
  }
}

function isNear(a: number, b: number): boolean {
  return Math.abs(a - b) <= JUMP_MS;
}

/** The clock of a database, and what is noted in it. */
export function databaseClock(sql: Sql): NonNullable<TimeJudgeOptions['database']> {
  return {
    read: async () => {
      const [row] = await sql<{ now: number; noted: string | null }[]>`
        SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now,
               (SELECT value FROM installation WHERE name = ${CLOCK}) AS noted`;
      if (row === undefined) throw new Error('A SELECT without FROM has a row.');
      const [at = Number.NaN, stoodMs = 0] = (row.noted ?? '').split(' ').map(Number);
      return { now: row.now, noted: row.noted === null || Number.isNaN(at) ? null : { at, stoodMs } };
    },
    note: async ({ at, stoodMs }) => {
      // Another process may have noted a later one.
      await sql`
        INSERT INTO installation AS known (name, value) VALUES (${CLOCK}, ${`${Math.floor(at)} ${Math.floor(stoodMs)}`})
        ON CONFLICT (name) DO UPDATE SET value = excluded.value
         WHERE split_part(known.value, ' ', 1)::bigint <= split_part(excluded.value, ' ', 1)::bigint`;
    },
  };
}

/**
 * The judged time for a statement that ends or hides what has expired: no later than what a running process has noted in the last minute. Where
 * none has run for a while what expired meanwhile stays until one does.
 */
export function judgedTime(sql: Sql | Transaction): Fragment {
  return sql`least(now(), (SELECT to_timestamp(split_part(value, ' ', 1)::float8 / 1000) + interval '1 minute'
                             FROM installation WHERE name = ${CLOCK}))`;
}

/** The judgement of a command, which has no reckoning but what was noted. */
export async function judgedNow(sql: Sql): Promise<number> {
  const silent = { info: () => undefined, warn: () => undefined };
  const { read } = databaseClock(sql);
  const judge = new TimeJudge({
    wall: Date.now,
    elapsed: () => performance.now(),
    database: { read, note: async () => undefined },
    log: silent,
  });
  await judge.look();
  return judge.now();
}
