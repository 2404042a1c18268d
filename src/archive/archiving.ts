/** Writes days of events to the archive, reads them back, and says whether both agree with the counts. */
import { createHash } from 'node:crypto';
import { listFields } from '../apps/fields.ts';
import { DAY_MS, utcDay } from '../base/time-units.ts';
import { OperatorError } from '../errors.ts';
import { spellPath } from '../read/fields/payload-paths.ts';
import type { Sql } from '../storage/database/connect.ts';
import { countDaysAway, readDaysAway, readWantedDays } from '../storage/maintenance/days-away.ts';
import { readRetention } from '../storage/retention.ts';
import type { Storage } from '../storage/storage.ts';
import type { EventRow } from '../storage/write/accepted-event.ts';
import {
  type ArchivedDay,
  type ArchivedGroup,
  type ArchivedPart,
  alone,
  CHANGED,
  type DayFilter,
  forgetDay,
  LOST,
  listArchivedDays,
  noteArchived,
  noteAttempt,
  noteChanged,
  noteRemoved,
  noteVerified,
  RESTORED,
} from './days.ts';
import {
  type ArchivedEvent,
  type ArchivedField,
  EventDigest,
  type ParquetPart,
  PartWriter,
  readPart,
} from './parquet.ts';
import { ArchiveError, type ArchiveStore } from './store.ts';

export interface ArchivingOptions {
  /** A pool of one connection, whose session holds the lock. */
  readonly sql: Sql;
  readonly storage: Storage;
  readonly store: ArchiveStore;
  /** Identity of this database: objects of another one are read and never removed. */
  readonly installationId: string;
}

/** A day of an app, and what became of it. */
export interface DayOutcome {
  readonly appId: string;
  /** A day of UTC as YYYY-MM-DD. */
  readonly day: string;
  readonly events: number;
  /** Bytes of all its objects. */
  readonly bytes: number;
  /** Null: it is in the archive, and what was read back equals the count. */
  readonly problem: string | null;
  /** Whether its rows have left the database. */
  readonly isAway: boolean;
}

/** An app with its internal id. */
export interface ArchivedApp {
  readonly id: number;
  readonly publicId: string;
}

/** A part ends with the group that takes it beyond either. */
const EVENTS_OF_PART = 500_000;
const BYTES_OF_PART = 64 * 1_048_576;
/** Events that are read in one step. */
const ROWS_AT_ONCE = 5_000;

/**
 * Archives the days that are due: those with events that are not in the archive, or that have changed since. Rows of a day leave the
 * database once it is archived, unless they are to be kept. Days that somebody needs are brought back between any two of them, and stay
 * until the next run.
 * @param options.until the end of the last day, milliseconds since 1970
 * @param options.keepRows whether the rows of archived days stay in the database, too
 * @param options.reachMs  how long they stay for a consumer that has not had them
 * @param options.onDay called after each day
 * @returns false where another process archives
 * @throws OperatorError where the archive is another one than before
 */
export async function archiveDueDays(
  options: ArchivingOptions & {
    readonly filter: DayFilter;
    readonly until: number;
    readonly keepRows: boolean;
    readonly reachMs: number;
    /** Whether days are archived again whose rows are in the database and whose files are not there; those whose rows are not are named. */
    readonly again?: boolean;
    readonly onDay: (outcome: DayOutcome) => void;
    readonly isStopped?: () => boolean;
  },
): Promise<boolean> {
  const { sql, filter, until, onDay, again = false, isStopped = () => false } = options;
  const ended = await alone(sql, async () => {
    const problem = again ? null : await problemOfPlace(options);
    if (problem !== null) throw new OperatorError(problem);
    if (again) await noteMissing(options);
    await removeObsolete(options);
    const apps = await appsOf(sql, filter);
    const wanted = new WantedDays(options, apps, onDay);
    for (const app of apps) {
      for (const due of await dueDays(options, app, until)) {
        // First, because writers wait for it.
        await wanted.bringSomeBack();
        if (isStopped()) return true;
        if (wanted.has(app.id, due.day)) continue;
        const outcome = await archiveDue(options, app, due);
        if (outcome !== null) onDay(outcome);
      }
    }
    while (!isStopped() && (await wanted.bringSomeBack()) > 0);
    return true;
  });
  return ended === true;
}

/** Archived days whose files are looked for, at most. */
const LOOKED_FOR = 16;

/**
 * Whether the archive has none of the days that were archived: it is another place than before. To go on there would leave days behind
 * that are nowhere else, and files that an erasure is to remove.
 * @returns what is wrong, and what to do; null: it has some, or none was archived
 */
export async function problemOfPlace({
  sql,
  store,
}: Pick<ArchivingOptions, 'sql' | 'store'>): Promise<string | null> {
  const days = (await filedDays(sql, {})).filter(({ counted }) => counted !== LOST);
  const step = Math.ceil(days.length / LOOKED_FOR);
  if (days.length === 0) return null;
  for (let at = 0; at < days.length; at += step) if (!(await isMissing(store, days[at]))) return null;
  const away = await countDaysAway(sql);
  const only = away === 0 ? '' : `, and the rows of ${away} days are there alone`;
  return `ARCHIVE_URL: ${store.place} has no file of the ${days.length} days that were archived${only}: it is another place than before. Copy all files to it, with the paths that they have, or set ARCHIVE_URL to the place where they are. Where they are lost, "tidemark archive run --again" archives the days again whose rows are in the database.`;
}

/** Days that the archive should have. */
async function filedDays(sql: Sql, filter: DayFilter): Promise<readonly ArchivedDay[]> {
  return (await listArchivedDays(sql, filter)).filter(
    ({ publicId, parts, counted }) => publicId !== null && parts.length > 0 && counted !== CHANGED,
  );
}

/** Whether the store says that it does not have the first file of a day. */
async function isMissing(store: ArchiveStore, day: ArchivedDay | undefined): Promise<boolean> {
  try {
    for (const { key } of day?.parts.slice(0, 1) ?? []) await store.get(key, { start: 0, end: 1 });
    return false;
  } catch (error) {
    if (error instanceof ArchiveError) return error.isMissing;
    throw error;
  }
}

/** Has the days archived again whose files are missing, and whose rows are there; the others are lost. */
async function noteMissing({
  sql,
  store,
  filter,
}: ArchivingOptions & { readonly filter: DayFilter }): Promise<void> {
  for (const archived of await filedDays(sql, filter)) {
    const isAway = (await readDaysAway(sql, archived.appId)).some(({ day }) => day === archived.day);
    if (await isMissing(store, archived))
      await noteChanged(sql, archived.appId, archived.day, isAway ? LOST : CHANGED);
  }
}

/** The days that somebody needs, each of which a run brings back, or tries to, once. */
class WantedDays {
  readonly #options: ArchivingOptions;
  readonly #apps: ReadonlyMap<number, AppOfAccount>;
  readonly #onDay: (outcome: DayOutcome) => void;
  readonly #done = new Set<string>();

  /** @param onDay called after each day that cannot be brought back */
  constructor(
    options: ArchivingOptions,
    apps: readonly AppOfAccount[],
    onDay: (outcome: DayOutcome) => void,
  ) {
    this.#options = options;
    this.#apps = new Map(apps.map((app) => [app.id, app]));
    this.#onDay = onDay;
  }

  /** Whether a day was wanted: it stays until the next run. */
  has(appId: number, day: string): boolean {
    return this.#done.has(`${appId} ${day}`);
  }

  /** Brings back the day of each account that has waited longest: nobody waits for all days of another one. @returns of how many */
  async bringSomeBack(): Promise<number> {
    const served = new Set<number | string>();
    for (const { appId, day, events } of await readWantedDays(this.#options.sql)) {
      const app = this.#apps.get(appId);
      if (app === undefined || this.has(appId, day) || served.has(app.account)) continue;
      served.add(app.account);
      this.#done.add(`${appId} ${day}`);
      const problem = await bringDayBack(this.#options, app, day, CHANGED);
      if (problem !== null)
        this.#onDay({ appId: app.publicId, day, events, bytes: 0, problem, isAway: true });
    }
    return served.size;
  }
}

/**
 * Brings a day back whose rows have left.
 * @param note what it is from now on
 * @returns what has kept it from that; null: it is there, or was not away
 */
export async function bringDayBack(
  options: ArchivingOptions,
  app: ArchivedApp,
  day: string,
  note: typeof CHANGED | typeof RESTORED,
): Promise<string | null> {
  const { sql, storage, store } = options;
  const [known] = await listArchivedDays(sql, { app: app.publicId, from: day, to: day });
  const away = (await readDaysAway(sql, app.id)).find((one) => one.day === day);
  if (away === undefined) return null;
  const parts = (known?.parts ?? []).filter(({ key }) => away.keys.includes(key));
  if (parts.length !== away.keys.length) return 'its files are not those that its rows are in';
  const types = await readTypes(sql, app.id);
  try {
    const rows = rowsOf(readArchivedDay(store, { parts }), app, types);
    const outcome = await storage.bringBack(sql, { appId: app.id, day, keys: away.keys, rows });
    if (outcome === null) return 'the database is being copied: it is brought back later';
    await noteChanged(sql, app.id, day, note);
    if (outcome.repeated > 0) await storage.recount(sql, intervalOf(day), () => undefined);
    return null;
  } catch (error) {
    if (error instanceof ArchiveError) return `${store.place}: ${error.message}`;
    throw error;
  }
}

async function* rowsOf(
  parts: AsyncIterable<readonly ArchivedEvent[]>,
  app: ArchivedApp,
  types: ReadonlyMap<string, EventType>,
): AsyncGenerator<readonly EventRow[]> {
  for await (const events of parts)
    yield events.map(({ id, typeId, at, payload }): EventRow => {
      const type = types.get(typeId);
      if (type === undefined) throw new Error(`The event type ${typeId} is gone.`);
      return { id, appId: app.id, typeId: type.id, createdAt: at, payload };
    });
}

type RunOptions = ArchivingOptions & { readonly keepRows: boolean; readonly reachMs: number };

/** @returns null where nothing was done */
async function archiveDue(
  options: RunOptions,
  app: ArchivedApp,
  { day, counted, known, isAway }: DueDay,
): Promise<DayOutcome | null> {
  if (isAway) {
    // Late events: with those of before they make the day.
    const problem = await bringDayBack(options, app, day, CHANGED);
    if (problem !== null)
      return { appId: app.publicId, day, events: counted, bytes: 0, problem, isAway: true };
  } else if (known !== null) return await takeDayAway(options, app, known);
  const outcome = await archiveDay(options, app, day, counted);
  if (options.keepRows || outcome.problem !== null) return outcome;
  const [archived] = await listArchivedDays(options.sql, { app: app.publicId, from: day, to: day });
  if (archived === undefined || archived.parts.length === 0) return outcome;
  return { ...outcome, ...(await moveRows(options, app, archived)) };
}

/** Rows of a day leave that was archived before: it is read back once more. @returns null where they stay for now */
async function takeDayAway(
  options: RunOptions,
  app: ArchivedApp,
  known: ArchivedDay,
): Promise<DayOutcome | null> {
  const { appId: id, day, events, parts } = known;
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
  const outcome = { appId: app.publicId, day, events, bytes };
  const broken = await problemOfDay(options.store, known);
  if (broken !== null) {
    await noteChanged(options.sql, id, day);
    return { ...outcome, problem: `${broken}: it is archived again`, isAway: false };
  }
  const moved = await moveRows(options, app, known);
  return moved.isAway || moved.problem !== null ? { ...outcome, ...moved } : null;
}

/** @returns a problem where the archive does not have the rows that there are */
async function moveRows(
  { sql, storage, reachMs }: RunOptions,
  app: ArchivedApp,
  { day, parts }: ArchivedDay,
): Promise<Pick<DayOutcome, 'problem' | 'isAway'>> {
  const why = await storage.takeAway(sql, {
    ...{ appId: app.id, day, reachMs },
    parts: parts.map(({ key, events, bytes, ids = '', groups = [], footer = '' }) => ({
      ...{ key, events, bytes, ids, groups, footer },
    })),
  });
  if (why?.isChanged === true) await noteChanged(sql, app.id, day);
  return { problem: why?.isChanged === true ? why.reason : null, isAway: why === null };
}

/** Whether the rows of a day can leave: an earlier release has not said of its files what readers need. */
function canLeave({ parts }: ArchivedDay): boolean {
  return parts.length > 0 && parts.every(({ groups, ids }) => groups !== undefined && ids !== undefined);
}

interface AppOfAccount extends ArchivedApp {
  /** Its owner; an app without one is an account of its own. */
  readonly account: string;
}

/** Apps whose events can be read. */
async function appsOf(sql: Sql, filter: DayFilter): Promise<readonly AppOfAccount[]> {
  const { app = null } = filter;
  return await sql<AppOfAccount[]>`
    SELECT id, public_id AS "publicId",
           coalesce((SELECT min(user_id)::text FROM app_members WHERE app_id = apps.id AND role = 'owner'), 'app ' || id) AS account
      FROM apps
     WHERE removed_at IS NULL AND (${app}::text IS NULL OR public_id = ${app}) ORDER BY id`;
}

/** A day with something to do. */
interface DueDay {
  readonly day: string;
  readonly counted: number;
  /** Not null: it is in the archive, and its rows are to leave. */
  readonly known: ArchivedDay | null;
  /** Whether its rows have left. */
  readonly isAway: boolean;
}

/** Days that the archive does not have, or has with another count; and those whose rows are to leave. */
async function dueDays(
  {
    sql,
    storage,
    filter,
    keepRows,
    again = false,
  }: ArchivingOptions & { readonly filter: DayFilter; readonly keepRows: boolean; readonly again?: boolean },
  app: ArchivedApp,
  until: number,
): Promise<readonly DueDay[]> {
  // Before it, counts are all that is left.
  const boundary = (await readRetention(sql, app.id)).first();
  const from = Math.max(boundary, timeOf(filter.from) ?? 0);
  const end = Math.min(until, (timeOf(filter.to) ?? Number.POSITIVE_INFINITY) + DAY_MS);
  if (from >= end) return [];
  const counts = await storage.readerOfRows(sql).dayCounts(app.id, { from, until: end });
  const archived = new Map((await listArchivedDays(sql, { app: app.publicId })).map((one) => [one.day, one]));
  const away = new Set((await readDaysAway(sql, app.id)).map(({ day }) => day));
  const isNamed = filter.from !== undefined && filter.to !== undefined;
  return [...counts].flatMap(([at, counted]): DueDay[] => {
    const day = utcDay(at);
    const known = archived.get(day) ?? null;
    if (known?.counted === RESTORED && !isNamed) return [];
    if (known?.counted === LOST && !again) return [];
    const isAway = away.has(day);
    if (known === null && counted === 0) return [];
    if (known?.counted !== counted) return [{ day, counted, known: null, isAway }];
    if (keepRows || isAway || counted === 0) return [];
    return [{ day, counted, known: canLeave(known) ? known : null, isAway }];
  });
}

/** A day is in the archive once it was read back from there, and has as many events as the counts say. */
async function archiveDay(
  options: ArchivingOptions,
  app: ArchivedApp,
  day: string,
  counted: number,
): Promise<DayOutcome> {
  const { sql, store, installationId } = options;
  const parts: ArchivedPart[] = [];
  const outcome = (problem: string | null): DayOutcome => ({
    ...{ appId: app.publicId, day, problem, isAway: false },
    events: parts.reduce((sum, { events }) => sum + events, 0),
    bytes: parts.reduce((sum, { bytes }) => sum + bytes, 0),
  });
  try {
    for await (const part of parquetParts(options, app, day))
      parts.push(await storePart(options, app, day, parts.length, part));
    const expected = await countOf(options, app, day);
    const found = outcome(null);
    if (found.events !== expected)
      return outcome(
        `${expected} events are counted and ${found.events} were read: it is archived again later`,
      );
    await store.put(manifestBeside(`${installationId}/${app.publicId}/${day}/`), manifestOf(app, day, parts));
    await noteArchived(sql, { appId: app.id, day, counted, parts });
    await removeObsolete(options, { app: app.publicId, from: day, to: day });
    return found;
  } catch (error) {
    if (error instanceof ArchiveError) return outcome(`${store.place}: ${error.message}`);
    throw error;
  }
}

/** Stores a file and reads it back. @throws ArchiveError where it is not what was written */
async function storePart(
  { sql, store, installationId }: ArchivingOptions,
  app: ArchivedApp,
  day: string,
  index: number,
  part: ParquetPart,
): Promise<ArchivedPart> {
  const sha256 = createHash('sha256').update(part.bytes).digest('hex');
  const key = `${installationId}/${app.publicId}/${day}/${index}-${sha256.slice(0, 16)}.parquet`;
  await noteAttempt(sql, app.id, day, [key]);
  await store.put(key, part.bytes);
  const { events, digest, firstAt, lastAt, ids, footer } = part;
  const groups = groupsOf(part, await readTypes(sql, app.id));
  const stored = {
    key,
    events,
    bytes: part.bytes.byteLength,
    sha256,
    digest,
    firstAt,
    lastAt,
    groups,
    ids,
    footer,
  };
  const problem = await problemOf(store, stored);
  if (problem !== null) throw new ArchiveError(`${key} was read back, and ${problem}`);
  return stored;
}

/** The groups of a file, with the internal ids of their types. */
function groupsOf({ groups }: ParquetPart, known: ReadonlyMap<string, EventType>): ArchivedGroup[] {
  return groups.map(({ types, ...group }) => ({
    ...group,
    types: Object.fromEntries(
      [...types].map(([typeId, events]) => {
        const type = known.get(typeId);
        if (type === undefined) throw new Error(`The event type ${typeId} is gone.`);
        return [String(type.id), events];
      }),
    ),
  }));
}

function manifestOf(app: ArchivedApp, day: string, parts: readonly ArchivedPart[]): Buffer {
  const manifest = {
    ...{ format: 1, appId: app.publicId, day, events: parts.reduce((sum, { events }) => sum + events, 0) },
    parts: parts.map(({ key, firstAt, lastAt, groups, ids, footer, ...part }) => ({
      file: key.slice(key.lastIndexOf('/') + 1),
      ...part,
      first: new Date(firstAt).toISOString(),
      last: new Date(lastAt).toISOString(),
    })),
  };
  return Buffer.from(`${JSON.stringify(manifest, null, 2)}\n`);
}

/** How many events of a day can be read, by the counts. */
export async function countOf(
  { sql, storage }: Pick<ArchivingOptions, 'sql' | 'storage'>,
  app: Pick<ArchivedApp, 'id'>,
  day: string,
): Promise<number> {
  const scope = { appId: app.id, typeIds: null, ...intervalOf(day) };
  const page = await storage
    .readerOfRows(sql)
    .page({ scope, offset: 0, limit: 1, order: 'asc', maxBytes: 1 });
  return page.total;
}

/** The events of a day, in files. Each is made when it is asked for. */
async function* parquetParts(
  { sql, storage }: ArchivingOptions,
  app: ArchivedApp,
  day: string,
): AsyncGenerator<ParquetPart> {
  let types = await readTypes(sql, app.id);
  const fields = await fieldsOf(sql, app.id);
  const begin = (): PartWriter => new PartWriter(fields, { format: '1', app: app.publicId, day });
  const request = { appId: app.id, typeIds: null, ...intervalOf(day), order: 'asc', after: null } as const;
  const search = storage.readerOfRows(sql).search(request, null);
  let writer = begin();
  for (let isOver = false; !isOver; ) {
    const { events, position } = await search.step(ROWS_AT_ONCE);
    isOver = position === null;
    // A type may have come since.
    if (events.some(({ typeId }) => !types.has(typeId))) types = await readTypes(sql, app.id);
    await writer.add(
      events.map(
        ({ id, typeId, createdAt, payload }): ArchivedEvent => ({
          ...{ id, typeId, payload, at: createdAt.getTime() },
          typeName: types.get(typeId)?.name ?? '',
        }),
      ),
    );
    if (writer.events >= EVENTS_OF_PART || writer.bytes >= BYTES_OF_PART) {
      yield await writer.end();
      writer = begin();
    }
  }
  if (writer.events > 0) yield await writer.end();
}

interface EventType {
  readonly id: number;
  readonly name: string;
}

/** By public id. */
async function readTypes(sql: Sql, appId: number): Promise<ReadonlyMap<string, EventType>> {
  const types = await sql<(EventType & { readonly typeId: string })[]>`
    SELECT public_id AS "typeId", id, name FROM event_types WHERE app_id = ${appId}`;
  return new Map(types.map(({ typeId, ...type }) => [typeId, type]));
}

/** Each path once: what is declared of one type, or by another path, has the same values. */
async function fieldsOf(sql: Sql, appId: number): Promise<readonly ArchivedField[]> {
  const fields = new Map<string, ArchivedField>();
  for (const { path, kind } of await listFields(sql, appId)) {
    const name = spellPath(path);
    const known = fields.get(name);
    fields.set(name, { path, name, isNumber: kind === 'number' && known?.isNumber !== false });
  }
  return [...fields.values()];
}

/** Whether an object is what it should be. @returns what is wrong with it; null: nothing */
async function problemOf(store: ArchiveStore, part: ArchivedPart): Promise<string | null> {
  const bytes = await store.get(part.key);
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  if (sha256 !== part.sha256) return `it has ${bytes.length} bytes that are not those that were written`;
  const events = await readPart(bytes);
  const digest = new EventDigest();
  for (const event of events) digest.add(event);
  return events.length === part.events && digest.end() === part.digest
    ? null
    : `its ${events.length} events are not those that were written`;
}

/** The key of a day's manifest, by that of one of its files. */
function manifestBeside(key: string): string {
  return `${key.slice(0, key.lastIndexOf('/') + 1)}manifest.json`;
}

/** Removes objects that are no parts, and days of apps that are gone. What the store does not remove now stays noted for the next run. */
async function removeObsolete(options: ArchivingOptions, filter: DayFilter = {}): Promise<void> {
  for (const day of await listArchivedDays(options.sql, filter)) {
    try {
      await removeObsoleteOf(options, day);
    } catch (error) {
      if (!(error instanceof ArchiveError)) throw error;
    }
  }
}

async function removeObsoleteOf(
  { sql, store, installationId }: ArchivingOptions,
  { appId, publicId, day, parts, obsolete, archivedAt }: ArchivedDay,
): Promise<void> {
  const isGone = publicId === null;
  if (obsolete.length === 0 && !isGone) return;
  const parted = parts.map(({ key }) => key);
  // An attempt to write the same events again has noted the key of a part.
  const keys = isGone ? [...obsolete, ...parted] : obsolete.filter((key) => !parted.includes(key));
  // What rows have left for is no leftover, whatever was noted.
  const away = isGone ? [] : ((await readDaysAway(sql, appId)).find((one) => one.day === day)?.keys ?? []);
  if (keys.some((key) => away.includes(key))) return;
  const own = keys.filter((key) => key.startsWith(`${installationId}/`));
  for (const key of own) await store.remove(key);
  const [first] = own;
  if (isGone && first !== undefined) await store.remove(manifestBeside(first));
  if (isGone || archivedAt === null) await forgetDay(sql, appId, day);
  else await noteRemoved(sql, appId, day);
}

/**
 * Reads days of the archive, and compares them with what was written.
 * @param onDay called after each day
 */
export async function verifyArchive(
  options: ArchivingOptions & { readonly filter: DayFilter; readonly onDay: (outcome: DayOutcome) => void },
): Promise<void> {
  const { sql, store, filter, onDay } = options;
  for (const archived of await listArchivedDays(sql, filter)) {
    if (archived.archivedAt === null || archived.publicId === null) continue;
    const problem = await problemOfDay(store, archived);
    if (problem === null) await noteVerified(sql, archived.appId, archived.day);
    const bytes = archived.parts.reduce((sum, part) => sum + part.bytes, 0);
    const isAway = (await readDaysAway(sql, archived.appId)).some(({ day }) => day === archived.day);
    onDay({ appId: archived.publicId, day: archived.day, events: archived.events, bytes, problem, isAway });
  }
}

async function problemOfDay(store: ArchiveStore, { parts }: ArchivedDay): Promise<string | null> {
  for (const part of parts) {
    try {
      const problem = await problemOf(store, part);
      if (problem !== null) return `${part.key}: ${problem}`;
    } catch (error) {
      return `${part.key}: ${error instanceof Error ? error.message : String(error)}`;
    }
  }
  return null;
}

/** Reads the events of a day, part by part. @throws ArchiveError where an object is missing or not what was written */
export async function* readArchivedDay(
  store: ArchiveStore,
  { parts }: Pick<ArchivedDay, 'parts'>,
): AsyncGenerator<readonly ArchivedEvent[]> {
  for (const part of parts) {
    const bytes = await fileOf(store, part.key);
    if (createHash('sha256').update(bytes).digest('hex') !== part.sha256)
      throw new ArchiveError(`${part.key} is not what was written`);
    yield await readPart(bytes);
  }
}

/** @throws ArchiveError that names the file */
async function fileOf(store: ArchiveStore, key: string): Promise<Buffer> {
  try {
    return await store.get(key);
  } catch (error) {
    if (!(error instanceof ArchiveError)) throw error;
    throw new ArchiveError(`${key}: ${error.message}`, { isMissing: error.isMissing, cause: error });
  }
}

/** The events of a day that retention lets be read: others have no rows any more, or soon none, and their counts are there. */
export async function* readReadable(
  { sql, store }: Pick<ArchivingOptions, 'sql' | 'store'>,
  { appId, parts }: Pick<ArchivedDay, 'appId' | 'parts'>,
): AsyncGenerator<readonly ArchivedEvent[]> {
  const retention = await readRetention(sql, appId);
  const types = await readTypes(sql, appId);
  for await (const events of readArchivedDay(store, { parts }))
    yield events.filter(({ typeId, at }) => at >= retention.boundaryOf(types.get(typeId)?.id ?? 0));
}

/**
 * Writes the files of an app again where a change takes events out of them or alters their payloads, also of days before the retention
 * boundary. Days whose rows have left and that have such events are brought back in place of that: their rows and counts are the caller's,
 * who calls again afterwards.
 * @param app    internal and public id
 * @param change null: the event goes; the event itself: it stays as it is
 * @param goesOn asked between two days: false leaves the rest for another call
 * @returns how many events were changed, and how many days were brought back; null where another process works on the archive
 * @throws ArchiveError
 */
export async function rewriteArchive(
  options: ArchivingOptions,
  app: ArchivedApp,
  change: (event: ArchivedEvent) => ArchivedEvent | null,
  goesOn: () => Promise<boolean> = async () => true,
): Promise<{ readonly changed: number; readonly broughtBack: number } | null | 'stopped'> {
  const { sql } = options;
  return await alone(sql, async () => {
    const sum = { changed: 0, broughtBack: 0 };
    const away = new Set((await readDaysAway(sql, app.id)).map(({ day }) => day));
    for (const day of await listArchivedDays(sql, { app: app.publicId })) {
      if (!(await goesOn())) return 'stopped' as const;
      if (away.has(day.day)) {
        if (!(await hasChanges(options.store, day, change))) continue;
        const problem = await bringDayBack(options, app, day.day, CHANGED);
        if (problem !== null) throw new ArchiveError(`${day.day} cannot be brought back: ${problem}`);
        sum.broughtBack += 1;
        continue;
      }
      for (const part of day.parts)
        sum.changed += await rewritePart(options, app, { day: day.day, key: part.key }, change);
    }
    return sum;
  });
}

async function hasChanges(
  store: ArchiveStore,
  day: ArchivedDay,
  change: (event: ArchivedEvent) => ArchivedEvent | null,
): Promise<boolean> {
  for await (const events of readArchivedDay(store, day))
    if (events.some((event) => change(event) !== event)) return true;
  return false;
}

async function rewritePart(
  options: ArchivingOptions,
  app: ArchivedApp,
  { day, key }: { readonly day: string; readonly key: string },
  change: (event: ArchivedEvent) => ArchivedEvent | null,
): Promise<number> {
  const { sql, store, installationId } = options;
  // The parts of before: an earlier one of this day may have been written again.
  const [known] = await listArchivedDays(sql, { app: app.publicId, from: day, to: day });
  const old = known?.parts.find((part) => part.key === key);
  if (known === undefined || old === undefined) return 0;
  const writer = new PartWriter(await fieldsOf(sql, app.id), { format: '1', app: app.publicId, day });
  let changed = 0;
  for await (const events of readArchivedDay(store, { parts: [old] })) {
    const kept = events.map((event) => {
      const after = change(event);
      if (after !== event) changed += 1;
      return after;
    });
    await writer.add(kept.filter((event) => event !== null));
  }
  if (changed === 0) return 0;
  const stored =
    writer.events === 0
      ? []
      : [await storePart(options, app, day, known.parts.indexOf(old), await writer.end())];
  const parts = known.parts.flatMap((part) => (part === old ? stored : [part]));
  await store.put(manifestBeside(`${installationId}/${app.publicId}/${day}/`), manifestOf(app, day, parts));
  await noteArchived(sql, { appId: app.id, day, counted: known.counted, parts });
  await removeObsolete(options, { app: app.publicId, from: day, to: day });
  return changed;
}

function intervalOf(day: string): { from: number; until: number } {
  const from = timeOf(day) ?? 0;
  return { from, until: from + DAY_MS };
}

function timeOf(day: string | undefined): number | null {
  return day === undefined ? null : Date.parse(`${day}T00:00:00Z`);
}
