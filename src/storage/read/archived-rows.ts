/**
 * Events of days whose rows are in the archive alone, in the snapshot of a read.
 *
 * Which groups of which objects have them is in the database, beside the events, and is read in the snapshot. No snapshot waits for the
 * archive: a read that comes to a group whose events it does not have ends there ({@link GroupsNeeded}). The group is then read, and
 * the read begins again, in a new snapshot. So it is answered by one snapshot alone, whatever was moved meanwhile.
 */
import type { Interval } from '../counts/intervals.ts';
import type { ArchivedGroup, ArchiveSource } from '../database/archive-source.ts';
import type { Transaction } from '../database/connect.ts';
import { CopiedRows, RowBuffer } from './copied-rows.ts';

/** An event of an archived day. */
export interface ArchivedRow {
  readonly id: string;
  readonly typeId: number;
  readonly at: number;
  readonly payload: string;
}

/** From where on events can be read: a retention, which knows up to where days are away, too. */
interface Readable {
  /** The end of the last day that is in the archive alone, in milliseconds since 1970; 0: there is none. */
  readonly archivedUntil: number;
  boundaryOf(typeId: number): number;
}

/** Which events: of an app, of some types or all, of an interval. */
export interface ArchivedScope extends Interval {
  readonly appId: number;
  readonly typeIds: readonly number[] | null;
  readonly exceptTypes?: readonly number[];
}

/** What a read cannot go on without. */
interface NeededGroup {
  readonly appId: number;
  readonly group: ArchivedGroup;
  /** Under which name its events are held. */
  readonly name: string;
  /** Null: all of them. */
  readonly isWanted: ((row: CopiedRows) => boolean) | null;
}

/** A read has come to groups whose events it does not have. */
export class GroupsNeeded extends Error {
  readonly groups: readonly NeededGroup[];

  constructor(groups: readonly NeededGroup[]) {
    super('Events of archived days are needed');
    this.groups = groups;
  }
}

/** A test of events, and a name that tells it from others. */
export interface RowTest {
  readonly name: string;
  readonly test: (row: ArchivedRow) => boolean;
}

/** Groups that a read asks for at once. */
const GROUPS_AT_ONCE = 4;

/** The events of groups that a read has got so far. */
export class HeldGroups {
  readonly #rows = new Map<string, Buffer>();

  get(name: string): Buffer | undefined {
    return this.#rows.get(name);
  }

  /** @param bytes rows as COPY sends them */
  add({ name, isWanted }: NeededGroup, bytes: Buffer): void {
    if (isWanted === null) {
      this.#rows.set(name, bytes);
      return;
    }
    const kept = new RowBuffer();
    const rows = new CopiedRows(bytes);
    while (rows.next()) if (isWanted(rows)) kept.addRow(rows.tuple);
    this.#rows.set(name, kept.bytes);
  }
}

/** The archived days of one snapshot. */
export class ArchivedRows {
  readonly #tx: Transaction;
  readonly #held: HeldGroups | null;
  readonly #source: Pick<ArchiveSource, 'peek'> | null;

  /** @param held null: reads see the rows of the database alone */
  constructor(tx: Transaction, held: HeldGroups | null, source: Pick<ArchiveSource, 'peek'> | null) {
    this.#tx = tx;
    this.#held = held;
    this.#source = source;
  }

  /** Whether an instant may be before the end of a day that is in the archive alone. */
  reaches({ archivedUntil }: Pick<Readable, 'archivedUntil'>, from: number): boolean {
    return this.#held !== null && from < archivedUntil;
  }

  /**
   * The groups that may have events of a scope, in order of time.
   * @returns none where the scope does not reach such a day
   */
  async groups(
    readable: Pick<Readable, 'archivedUntil'>,
    { appId, typeIds, exceptTypes = [], from, until }: ArchivedScope,
  ): Promise<readonly ArchivedGroup[]> {
    if (!this.reaches(readable, from) || from >= until) return [];
    const tx = this.#tx;
    const types = typeIds?.map(String) ?? null;
    const rows = await tx<GroupRow[]>`
      SELECT key, bytes::float8, footer, (groups -> -1 ->> 'end')::float8 AS "groupsEnd", (number - 1)::integer AS index, listed AS group
        FROM archived_parts CROSS JOIN LATERAL jsonb_array_elements(groups) WITH ORDINALITY AS lists (listed, number)
       WHERE app_id = ${appId} AND day >= ${dateOf(from)}::text::date AND day <= ${dateOf(until - 1)}::text::date
         AND (listed ->> 'lastAt')::float8 >= ${from} AND (listed ->> 'at')::float8 < ${until}
         AND (${types === null} OR listed -> 'types' ?| ${types ?? []}::text[])
       ORDER BY day, part, number`;
    const left = new Set(exceptTypes);
    return rows
      .map(({ key, bytes, footer, groupsEnd, index, group: { types: counts, ...group } }) => ({
        ...{ ...group, key, objectBytes: bytes, footer, groupsEnd, index },
        types: new Map(Object.entries(counts).map(([typeId, count]) => [Number(typeId), count])),
      }))
      .filter(({ types }) => [...types.keys()].some((typeId) => !left.has(typeId)));
  }

  /** The first day of an interval, in an order, that is in the archive alone: its start; null where there is none. */
  async firstDay(
    readable: Pick<Readable, 'archivedUntil'>,
    { appId, from, until }: Pick<ArchivedScope, 'appId' | 'from' | 'until'>,
    order: 'asc' | 'desc',
  ): Promise<number | null> {
    if (!this.reaches(readable, from) || from >= until) return null;
    const tx = this.#tx;
    const [row] = await tx<{ day: number | null }[]>`
      SELECT (extract(epoch FROM ${order === 'asc' ? tx`min(day)` : tx`max(day)`}) * 1000)::float8 AS day FROM archived_parts
       WHERE app_id = ${appId} AND day >= ${dateOf(from)}::text::date AND day <= ${dateOf(until - 1)}::text::date`;
    return row?.day ?? null;
  }

  /**
   * The events of a scope that the first of some groups has, in order of time.
   * @param groups the first one, and those that are likely to be needed after it
   * @param only   leaves out others, which need not be held
   * @throws GroupsNeeded where the read does not have them
   */
  rows(
    readable: Readable,
    scope: ArchivedScope,
    groups: readonly ArchivedGroup[],
    only: RowTest | null = null,
  ): ArchivedRow[] {
    const { appId, typeIds, exceptTypes, from, until } = scope;
    const isOfScope = wantedOf(readable, scope);
    const isWanted = only === null ? isOfScope : (row: ArchivedRow) => isOfScope(row) && only.test(row);
    // What is held under a name is the same in all snapshots of a read, but for what a later one does not let be read.
    const name = JSON.stringify([typeIds, exceptTypes, from, until, only?.name]);
    const rows = new CopiedRows(this.#bytes(appId, groups, name, isWanted));
    const found: ArchivedRow[] = [];
    while (rows.next()) {
      if (!isWanted(rows)) continue;
      const { id, typeId, at, payload } = rows;
      found.push({ id, typeId, at, payload });
    }
    return found;
  }

  /** All events of a group, of every type and whether they can be read or not. @throws GroupsNeeded */
  whole(appId: number, group: ArchivedGroup): CopiedRows {
    return new CopiedRows(this.#bytes(appId, [group], 'all', null));
  }

  #bytes(
    appId: number,
    groups: readonly ArchivedGroup[],
    label: string,
    isWanted: ((row: CopiedRows) => boolean) | null,
  ): Buffer {
    const named = groups.map((group) => ({
      ...{ appId, group, isWanted },
      name: `${group.key} ${group.start} ${label}`,
    }));
    const [first] = named;
    if (first === undefined || this.#held === null) return Buffer.alloc(0);
    const bytes = this.#held.get(first.name) ?? this.#source?.peek(first.group);
    if (bytes !== undefined) return bytes;
    const missing = named.filter(({ name }) => this.#held?.get(name) === undefined);
    throw new GroupsNeeded(missing.slice(0, GROUPS_AT_ONCE));
  }

  /** Whether events of a scope are in the archive alone. */
  async has(readable: Readable, scope: ArchivedScope): Promise<boolean> {
    const isWanted = wantedOf(readable, scope);
    const groups = await this.groups(readable, scope);
    const cut = groups.filter((group) => !isUncut(group, readable, scope));
    const hasWhole = groups.some(
      (group) =>
        !cut.includes(group) && [...group.types.keys()].some((typeId) => isWanted({ at: group.at, typeId })),
    );
    return hasWhole || cut.some((_, index) => this.rows(readable, scope, cut.slice(index)).length > 0);
  }

  /** How many events of a scope are in the archive alone. */
  async count(readable: Readable, scope: ArchivedScope): Promise<number> {
    let sum = 0;
    for (const count of (await this.countByType(readable, scope)).values()) sum += count;
    return sum;
  }

  /** Counts rows by type (internal id). */
  async countByType(readable: Readable, scope: ArchivedScope): Promise<ReadonlyMap<number, number>> {
    const isWanted = wantedOf(readable, scope);
    const counts = new Map<number, number>();
    const add = (typeId: number, count: number): void => {
      counts.set(typeId, (counts.get(typeId) ?? 0) + count);
    };
    const groups = await this.groups(readable, scope);
    const cut = groups.filter((group) => !isUncut(group, readable, scope));
    for (const group of groups) {
      const place = cut.indexOf(group);
      if (place >= 0) for (const { typeId } of this.rows(readable, scope, cut.slice(place))) add(typeId, 1);
      else
        for (const [typeId, count] of group.types) if (isWanted({ at: group.at, typeId })) add(typeId, count);
    }
    return counts;
  }
}

interface GroupRow {
  readonly key: string;
  readonly bytes: number;
  readonly footer: string;
  readonly groupsEnd: number;
  readonly index: number;
  readonly group: Omit<ArchivedGroup, 'key' | 'objectBytes' | 'footer' | 'groupsEnd' | 'index' | 'types'> & {
    readonly types: Readonly<Record<string, number>>;
  };
}

/** Whether an event is of a scope and can be read. */
export function wantedOf(
  readable: Pick<Readable, 'boundaryOf'>,
  { typeIds, exceptTypes = [], from, until }: Omit<ArchivedScope, 'appId'>,
): (row: Pick<ArchivedRow, 'at' | 'typeId'>) => boolean {
  const isOfType =
    typeIds === null ? (id: number) => !exceptTypes.includes(id) : (id: number) => typeIds.includes(id);
  return ({ at, typeId }) =>
    at >= from && at < until && isOfType(typeId) && at >= readable.boundaryOf(typeId);
}

/** Whether all events of a group are of the interval, and those of a type can all be read or none of them. */
export function isUncut(
  { at, lastAt, types }: ArchivedGroup,
  readable: Pick<Readable, 'boundaryOf'>,
  { from, until }: Pick<ArchivedScope, 'from' | 'until'>,
): boolean {
  if (at < from || lastAt >= until) return false;
  return [...types.keys()].every((typeId) => {
    const boundary = readable.boundaryOf(typeId);
    return boundary <= at || boundary > lastAt;
  });
}

function dateOf(ms: number): string {
  return new Date(Math.max(EARLIEST, Math.min(ms, LATEST))).toISOString().slice(0, 'YYYY-MM-DD'.length);
}

/** The bounds of years with four digits. */
const EARLIEST = Date.UTC(1000, 0, 1);
const LATEST = Date.UTC(9999, 11, 31);
