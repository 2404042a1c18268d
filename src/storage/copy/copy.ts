/**
 * Copies a database into another one, of any engine, while services write to the first.
 *
 * Events are never changed, and counts are exact in every snapshot: so what the target lacks is told by comparing how many events
 * each app has on each day, then in which hour and minute. Nothing else is remembered of what was copied. A copy that was
 * interrupted goes on from there, and what came late is found as well as what came last.
 *
 * At the switch the source refuses all writes (fence.ts). What was committed until then is copied; everything is compared; then
 * the target takes events, and journals are replayed into it, because it is the same installation.
 */

import { utcDay } from '../../base/time-units.ts';
import { hostsOf } from '../../base/url-hosts.ts';
import { OperatorError } from '../../errors.ts';
import { type Interval, startOfMonth } from '../counts/intervals.ts';
import { ALL_TYPES, DAY_MS, DAYS, floorTo, HOUR_MS, HOURS, MINUTE_MS, MINUTES } from '../counts/levels.ts';
import type { DatabaseAddress } from '../database/connect.ts';
import { readBoundary } from '../retention.ts';
import {
  appsBehind,
  compareRows,
  differing,
  type RowDifference,
  readBothTotals,
  type Totals,
  totalAt,
} from './compare.ts';
import {
  COPIED_FROM,
  type CopySides,
  checkSource,
  closeSide,
  lockTarget,
  openSide,
  prepareTarget,
  readCopyState,
} from './endpoint.ts';
import { closeSource, openSource, refuseOtherTarget } from './fence.ts';
import { copyInterval, Merger } from './rows.ts';
import { copyOutlivedCounts, copySettings, keepRows } from './settings.ts';

/** What is shown while it copies. */
export interface CopyProgress {
  readonly step: 'copying' | 'comparing' | 'switching';
  /** What is counted: events that the target has, or days that were compared. */
  readonly unit: 'events' | 'days';
  readonly done: number;
  readonly total: number;
}

export interface CopyOptions {
  readonly from: DatabaseAddress;
  readonly to: DatabaseAddress;
  readonly onProgress: (progress: CopyProgress) => void;
}

/** A day of an app of which the target lacked rows that it had counted. */
export interface FoundDifference extends Omit<RowDifference, 'appId'> {
  /** Public id. */
  readonly app: string;
}

export interface CopyResult {
  /** Events that were copied now. */
  readonly copied: number;
  /** Days whose rows were compared. */
  readonly days: number;
  /** Differences of rows that were found and repaired. */
  readonly repaired: readonly FoundDifference[];
  /** Whether the target is the database of the installation now. */
  readonly switched: boolean;
}

/** Up to so many events a day is copied in one transaction, else each of its hours. */
const MAX_DAY = 500_000;
/** So many events, of which the target has some, are sent all rather than looked for in hours and minutes. */
const MAX_MERGE = 5_000;
/** Copied events after which the counts of the target are settled, so that comparing stays cheap. */
const SETTLE_EVERY = 200_000;
/** A round that copies no more than this ends the catching up: what is left takes a moment at the switch. */
const CAUGHT_UP = 5_000;
const MOST_ROUNDS = 50;
/** Rounds without a writer, after which nothing may be left. */
const LAST_ROUNDS = 3;

/** Copies; see `tidemark copy`. @param isSwitch whether to make the target the database of the installation */
export async function copyDatabase(options: CopyOptions, isSwitch: boolean): Promise<CopyResult> {
  return await withSides(options, async (sides) => {
    const { from, to } = sides;
    const identity = await checkSource(from);
    await refuseOtherTarget(from.sql, nameOf(options.to));
    await refuseComplete(sides, identity);
    await keepRows(from);
    await prepareTarget(to, identity, () => copyOutlivedCounts(sides));
    const copy = new Copy(sides, options);
    try {
      return await copy.run(isSwitch);
    } finally {
      await copy.close();
    }
  });
}

/** Lets the source of a switch that was not completed take events again. @throws OperatorError if the target may have new ones */
export async function reopenSource(options: Omit<CopyOptions, 'onProgress'>): Promise<void> {
  await withSides(options, async (sides) => {
    const identity = await checkSource(sides.from);
    await lockTarget(sides.to);
    await refuseComplete(sides, identity);
    await openSource(sides.from, nameOf(options.to));
  });
}

async function withSides<T>(
  options: Omit<CopyOptions, 'onProgress'>,
  work: (sides: CopySides) => Promise<T>,
): Promise<T> {
  const from = await openSide(options.from);
  try {
    const to = await openSide(options.to);
    try {
      return await work({ from, to });
    } finally {
      await closeSide(to);
    }
  } finally {
    await closeSide(from);
  }
}

async function refuseComplete({ from, to }: CopySides, identity: string): Promise<void> {
  const [source, target] = [await readCopyState(from.sql), await readCopyState(to.sql)];
  if (target.identity === identity && target.copiedFrom === null && source.movedTo !== null)
    throw new OperatorError('the switch is complete: the services use the database that was copied to');
}

class Copy {
  readonly #endpoints: CopySides;
  readonly #options: CopyOptions;
  readonly #merger: Merger;
  #apps: readonly number[] = [];
  #step: CopyProgress['step'] = 'copying';
  #done = 0;
  #total = 0;
  #copied = 0;
  #settledAt = 0;
  /** Days that have got rows since their rows were compared. */
  readonly #changed = new Set<number>();

  constructor(sides: CopySides, options: CopyOptions) {
    this.#endpoints = sides;
    this.#options = options;
    this.#merger = new Merger(sides);
  }

  close(): Promise<void> {
    return this.#merger.close();
  }

  async run(isSwitch: boolean): Promise<CopyResult> {
    await this.#readSums();
    await this.#catchUp(MOST_ROUNDS, CAUGHT_UP);
    await copySettings(this.#endpoints, false);
    const days = await this.#days();
    const repaired = await this.#compareAndRepair(days);
    if (isSwitch) repaired.push(...(await this.#switch()));
    return {
      copied: this.#copied,
      days: days.length,
      repaired: await this.#withNames(repaired),
      switched: isSwitch,
    };
  }

  /** Makes the target the database of the installation. @returns differences that were found and repaired */
  async #switch(): Promise<RowDifference[]> {
    const { from } = this.#endpoints;
    const target = nameOf(this.#options.to);
    this.#step = 'switching';
    let repaired: RowDifference[];
    try {
      await closeSource(from, target);
      await this.#catchUp(LAST_ROUNDS, 0);
      await copySettings(this.#endpoints, true);
      repaired = await this.#compareAndRepair([...this.#changed]);
      await this.#expectEqual();
    } catch (error) {
      // The services go on with the source; nothing was written to the target but by this copy.
      await openSource(from, target).catch((cause: unknown) => {
        throw new OperatorError('the switch failed, and the original is closed: use --reopen', { cause });
      });
      throw error;
    }
    await this.#complete();
    return repaired;
  }

  /** The last step, after which the target takes events. Until its outcome is known neither database does. */
  async #complete(): Promise<void> {
    const { sql } = this.#endpoints.to;
    try {
      await sql`DELETE FROM installation WHERE name = ${COPIED_FROM}`;
    } catch (cause) {
      const state = await readCopyState(sql).catch(() => null);
      if (state?.copiedFrom === null) return;
      throw new OperatorError(
        'whether the last step of the switch was done is not known, so the original stays closed: run the switch again',
        { cause },
      );
    }
  }

  /** Copies what the target lacks, again and again, until that is little. */
  async #catchUp(rounds: number, enough: number): Promise<void> {
    for (let round = 1; round <= rounds; round += 1) {
      const before = this.#copied;
      await this.#round();
      if (this.#step === 'copying') await this.#settle();
      if (this.#copied - before <= enough) return;
    }
  }

  async #round(): Promise<void> {
    const rows = await this.#endpoints.from.sql<{ id: number }[]>`SELECT id FROM apps ORDER BY id`;
    this.#apps = rows.map(({ id }) => id);
    for (const month of await this.#months()) {
      const [source, target] = await readBothTotals(this.#endpoints, this.#apps, DAYS, month);
      for (const day of differing(source, target)) {
        if (appsBehind(source, target, day).length === 0) continue;
        this.#changed.add(day);
        await this.#copyDay(day, source, target);
      }
    }
  }

  async #copyDay(day: number, source: Totals, target: Totals): Promise<void> {
    const interval = { from: day, until: day + DAY_MS };
    if (totalAt(source, day) <= MAX_DAY && (await this.#copyAtOnce(interval, source, target))) return;
    const [sent, kept] = await readBothTotals(this.#endpoints, this.#apps, HOURS, interval);
    for (const hour of differing(sent, kept)) await this.#copyHour(hour, sent, kept);
  }

  async #copyHour(hour: number, source: Totals, target: Totals): Promise<void> {
    const interval = { from: hour, until: hour + HOUR_MS };
    if (await this.#copyAtOnce(interval, source, target)) return;
    const apps = appsBehind(source, target, hour);
    const [sent, kept] = await readBothTotals(this.#endpoints, apps, MINUTES, interval);
    for (const minute of differing(sent, kept)) {
      const behind = appsBehind(sent, kept, minute);
      const until = minute + MINUTE_MS;
      if (behind.length > 0)
        await this.#noteCopied(await this.#merger.merge({ from: minute, until }, behind));
    }
  }

  /** Copies what the target lacks of a bucket. @returns false if it has some of it, and there is too much to look for the rest */
  async #copyAtOnce(interval: Interval, source: Totals, target: Totals): Promise<boolean> {
    const { from: start } = interval;
    const behind = appsBehind(source, target, start);
    if (behind.length === 0) return true;
    if (totalAt(target, start) === 0) {
      await this.#noteCopied(await copyInterval(this.#endpoints, interval, this.#apps));
      return true;
    }
    const toMerge = behind.reduce((sum, appId) => sum + (source.get(start)?.get(appId) ?? 0), 0);
    if (toMerge > MAX_MERGE) return false;
    await this.#noteCopied(await this.#merger.merge(interval, behind));
    return true;
  }

  async #noteCopied(events: number): Promise<void> {
    this.#copied += events;
    this.#done += events;
    this.#report();
    const isDue = this.#copied - this.#settledAt >= SETTLE_EVERY;
    if (this.#endpoints.to.engine.settlesBesideWriters && isDue) await this.#settle();
  }

  async #settle(): Promise<void> {
    if (this.#copied === this.#settledAt) return;
    this.#settledAt = this.#copied;
    const { engine, sql } = this.#endpoints.to;
    await engine.settleCounts(sql, Date.now());
  }

  /**
   * Compares the rows of days. Where the target lacks rows that it has counted, it is counted again and gets them.
   * @throws OperatorError if that does not help
   */
  async #compareAndRepair(days: readonly number[]): Promise<RowDifference[]> {
    const found = await this.#compare(days);
    if (found.length === 0) return [];
    for (const day of new Set(found.map((one) => one.day)))
      await this.#endpoints.to.engine.recountDay(this.#endpoints.to.sql, day);
    await this.#round();
    const left = await this.#compare([...new Set(found.map((one) => one.day))]);
    if (left.length > 0) throw await this.#unequal(left);
    return found;
  }

  async #compare(days: readonly number[]): Promise<RowDifference[]> {
    const found: RowDifference[] = [];
    const step = this.#step === 'switching' ? 'switching' : 'comparing';
    for (const [at, day] of days.entries()) {
      this.#options.onProgress({
        step,
        unit: 'days',
        done: at,
        total: days.length,
      });
      this.#changed.delete(day);
      const { differences, isBehind } = await compareRows(this.#endpoints, this.#apps, day);
      found.push(...differences);
      if (isBehind) this.#changed.add(day);
    }
    return found;
  }

  /** Compares the number of events of every app on every day, also of days that have counts alone. @throws OperatorError if any differs */
  async #expectEqual(): Promise<void> {
    const outlived = { from: 0, until: await readBoundary(this.#endpoints.from.sql) };
    for (const month of [outlived, ...(await this.#months())]) {
      const [source, target] = await readBothTotals(this.#endpoints, this.#apps, DAYS, month);
      const found = differing(source, target).flatMap((day) =>
        this.#apps.map((appId) => ({
          appId,
          day,
          source: source.get(day)?.get(appId) ?? 0,
          target: target.get(day)?.get(appId) ?? 0,
        })),
      );
      const different = found.filter((one) => one.source !== one.target);
      if (different.length > 0) throw await this.#unequal(different);
    }
  }

  async #unequal(differences: readonly RowDifference[]): Promise<OperatorError> {
    const [first] = await this.#withNames(differences.slice(0, 1));
    return new OperatorError(
      `the copy is not equal: of app ${first?.app} on ${utcDay(first?.day ?? 0)} it has ` +
        `${first?.target} events instead of ${first?.source}, and ${differences.length - 1} other differences: ` +
        'nothing was switched; copy into an empty database',
    );
  }

  async #withNames(differences: readonly RowDifference[]): Promise<FoundDifference[]> {
    if (differences.length === 0) return [];
    const ids = differences.map(({ appId }) => appId);
    const rows = await this.#endpoints.from.sql<{ id: number; name: string }[]>`
      SELECT id, public_id AS name FROM apps WHERE id = ANY(${ids}::integer[])`;
    const names = new Map(rows.map(({ id, name }) => [id, name]));
    return differences.map(({ appId, ...rest }) => ({ app: names.get(appId) ?? String(appId), ...rest }));
  }

  /** The months in which the source has room for events that can be read; the oldest first, which retention takes first. */
  async #months(): Promise<Interval[]> {
    const { sql, engine } = this.#endpoints.from;
    const boundary = await readBoundary(sql);
    const [span] = await sql<{ from: number | null; until: number | null }[]>`
      SELECT (extract(epoch FROM min(start)) * 1000)::float8 AS from, (extract(epoch FROM max(finish)) * 1000)::float8 AS until
        FROM (${sql.unsafe(engine.eventIntervals)}) AS parts`;
    const months: Interval[] = [];
    const until = span?.until ?? 0;
    for (let from = Math.max(floorTo(span?.from ?? 0, DAY_MS), boundary); from < until; ) {
      const end = Math.min(startOfMonth(from, 1), until);
      months.push({ from, until: end });
      from = end;
    }
    return months;
  }

  /** The days of which either database has events. */
  async #days(): Promise<number[]> {
    const days = new Set<number>();
    for (const month of await this.#months())
      for (const totals of await readBothTotals(this.#endpoints, this.#apps, DAYS, month))
        for (const day of totals.keys()) days.add(day);
    return [...days].sort((a, b) => a - b);
  }

  /** About how many events there are to copy, and how many were copied before. */
  async #readSums(): Promise<void> {
    const boundary = new Date(await readBoundary(this.#endpoints.from.sql));
    const sums = await Promise.all(
      [this.#endpoints.from, this.#endpoints.to].map(async ({ sql, engine }) => {
        const [row] = await sql<{ sum: number }[]>`
          SELECT coalesce(sum(count), 0)::float8 AS sum FROM ${sql.unsafe(engine.totalsOfAllApps(DAYS))} AS days
           WHERE type_id = ${ALL_TYPES} AND bucket >= ${boundary}`;
        return row?.sum ?? 0;
      }),
    );
    [this.#total = 0, this.#done = 0] = sums;
  }

  #report(): void {
    this.#options.onProgress({
      step: this.#step,
      unit: 'events',
      done: this.#done,
      total: Math.max(this.#total, this.#done),
    });
  }
}

/** Host and name of a database, without the password. */
function nameOf(address: DatabaseAddress): string {
  if (!('url' in address)) return `${address.host}/${address.database}`;
  return `${hostsOf(address.url)}${new URL(address.url.replace(hostsOf(address.url), 'host')).pathname}`;
}
