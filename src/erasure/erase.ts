/**
 * Does what an erasure asks for. It may be ended at any point, by kill -9 too, and be begun again: each slice of events is one
 * transaction, and everything beside the events may be done twice.
 */

import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ErasureMatch } from '../api-types/answers.ts';
import type { Secret } from '../apps/secret.ts';
import { FRESH_MS } from '../apps/shares.ts';
import { forgetLastViolations } from '../apps/type-schemas.ts';
import { listArchivedDays } from '../archive/days.ts';
import type { ArchivedEvent } from '../archive/parquet.ts';
import type { ArchiveSettings } from '../archive/store.ts';
import { Slots, type Waiter } from '../base/slots.ts';
import { utcDay } from '../base/time-units.ts';
import type { Config } from '../config.ts';
import { namedByAlerts, renameInAlerts } from '../delivery/alerts/erased-values.ts';
import { lineOf, rewriteQuarantine } from '../ingest/journal/quarantine.ts';
import { errorCode, type Sql } from '../storage/database/connect.ts';
import { installationId } from '../storage/database/installation-id.ts';
import {
  countErased,
  digestOfErased,
  ERASED_AT_ONCE,
  type ErasedEvent,
  erasedTogether,
  forgetAnswers,
  readErased,
  readErasedSummary,
  readPayloads,
} from '../storage/maintenance/erasing.ts';
import type { ScanRequest } from '../storage/read/event-scan.ts';
import type { Storage } from '../storage/storage.ts';
import { anonymizer, type ErasureConditions, parseConditions } from './conditions.ts';
import {
  finishErasure,
  finishedErasures,
  insertEarlier,
  type NotDone,
  openConditions,
  requireErasure,
  type ShownErasure,
  type StoredErasure,
  unfinishedErasures,
} from './erasures.ts';
import { ledgerOf, readLedger, writeLedger } from './ledger.ts';

export interface ErasureParts {
  /** A pool of one connection, so that the session that works holds the session lock. */
  readonly sql: Sql;
  readonly storage: Storage;
  readonly secret: Secret;
  readonly config: Pick<Config, 'DATA_DIR' | 'JOURNAL_DIR'> & Partial<ArchiveSettings>;
  readonly now: () => number;
  readonly log: { warn(message: string): void };
}

export interface ErasureProgress {
  /** Up to where events were looked at, milliseconds since 1970. */
  readonly at: number;
  readonly erased: number;
}

export interface RunOptions {
  readonly onProgress?: (progress: ErasureProgress) => void;
  /** Between two slices, and while something else is waited for: others may have their turn. */
  readonly pace?: Pace;
}

/** How an erasure gives way to others. */
export interface Pace {
  /** @returns false where the rest is left for another time */
  goesOn(): Promise<boolean>;
  wait(ms: number): Promise<unknown>;
}

const ALONE: Pace = { goesOn: async () => true, wait: (ms) => sleep(ms) };

/** Rows that one step of a search looks at. */
const ROWS_AT_ONCE = 16_384;
/** How long the journals of this host, and webhooks that are just sending, are waited for. */
const WAIT_MS = 30_000;
const POLL_MS = 100;
/** Lines of the quarantine that are looked at together. */
const LINES_AT_ONCE = 1_000;

/**
 * Counts the events of an app that meet conditions, by looking at all of them, or at those that lists of words name.
 * @param goesOn asked between two steps
 * @returns null if it was stopped
 */
export async function countMatching(
  { sql, storage }: Pick<ErasureParts, 'sql' | 'storage'>,
  app: number,
  { filter }: ErasureConditions,
  { onProgress, goesOn }: Pick<RunOptions, 'onProgress'> & Partial<Pick<Pace, 'goesOn'>> = {},
): Promise<ErasureMatch | null> {
  const reader = storage.reader(sql);
  const scope = scanOfApp(app, null);
  // Counts tell of those, too, that are kept no longer.
  const { total } = await reader.list({ ...scope, after: null, limit: 1, maxBytes: 1, withTotal: true });
  const search = reader.search(scope, filter);
  const days = new Map<string, number>();
  let matching = 0;
  for (;;) {
    const { events, position } = await search.step(ROWS_AT_ONCE);
    matching += events.length;
    for (const { createdAt } of events) {
      const day = utcDay(createdAt.getTime());
      days.set(day, (days.get(day) ?? 0) + 1);
    }
    if (position === null) break;
    onProgress?.({ at: position.at, erased: matching });
    if (goesOn !== undefined && !(await goesOn())) return null;
  }
  return {
    matching,
    total: Math.max(total ?? 0, matching),
    days: [...days].map(([day, events]) => ({ day, events })),
  };
}

/** The instant after the newest event that there is: an erasure covers those ahead of the clock, too. */
export async function coversUntil(
  { sql, storage }: Pick<ErasureParts, 'sql' | 'storage'>,
  app: number,
  askedAt: number,
): Promise<number> {
  const { lastEventAt } = await storage.reader(sql).appSpan(app);
  return Math.max(askedAt, (lastEventAt?.getTime() ?? 0) + 1);
}

/**
 * Does an erasure, or what is left of it.
 * @returns `busy` where another process does it, `stopped` where the caller wanted it
 */
export async function runErasure(
  parts: ErasureParts,
  erasureId: string,
  options: RunOptions = {},
): Promise<'finished' | 'busy' | 'stopped'> {
  const { sql } = parts;
  const { id } = await requireErasure(sql, erasureId);
  return await alone(sql, id, async () => {
    // Another process may have finished it since.
    const erasure = await requireErasure(sql, erasureId);
    if (erasure.finishedAt !== null) return 'finished';
    const conditions = parseConditions(openConditions(parts.secret, erasure), erasure.action);
    const { pace = ALONE } = options;
    const journal = await untilJournalIsEmpty(parts.config.JOURNAL_DIR, pace);
    if (!(await eraseMatching(parts, erasure, conditions, options))) return 'stopped';
    const quarantined = await eraseQuarantined(parts, erasure, conditions);
    const until = erasure.coversUntil;
    const isErased = ({ at, payload }: ArchivedEvent): boolean =>
      at < until && conditions.filter.matches(payload);
    const archived = await eraseArchived(parts, erasure, { isErased, paths: conditions.paths, pace }, () =>
      eraseMatching(parts, erasure, conditions, options),
    );
    if (archived === 'stopped') return 'stopped';
    await finish(parts, erasure, { conditions, journal, quarantined, archived, appliedAgain: [], pace });
    return 'finished';
  });
}

/** Holds the lock of an erasure. */
async function alone<T>(sql: Sql, id: number, work: () => Promise<T>): Promise<T | 'busy'> {
  const [lock] = await sql<{ isOurs: boolean }[]>`
    SELECT pg_try_advisory_lock(hashtext('tidemark erasure'), ${id}::integer) AS "isOurs"`;
  if (lock?.isOurs !== true) return 'busy';
  try {
    return await work();
  } finally {
    // Where the connection is gone, so is the lock.
    await sql`SELECT pg_advisory_unlock(hashtext('tidemark erasure'), ${id}::integer)`.catch(() => undefined);
  }
}

function scanOfApp(appId: number, until: number | null): ScanRequest {
  return { appId, typeIds: null, from: null, until, order: 'asc', after: null };
}

/**
 * Looks through all events once: it finds each that was committed before. What is stored meanwhile may be dated to where it has looked
 * already, and stays: otherwise whoever stores matching events would keep it from its end.
 * @returns false if it was stopped
 */
async function eraseMatching(
  parts: ErasureParts,
  erasure: StoredErasure,
  { filter, paths }: ErasureConditions,
  { onProgress, pace = ALONE }: RunOptions,
): Promise<boolean> {
  const change = erasure.action === 'delete' ? null : anonymizer(parts.secret, erasure.appId, paths);
  const search = parts.storage
    .readerOfRows(parts.sql)
    .search(scanOfApp(erasure.app, erasure.coversUntil), filter);
  let found: (ErasedEvent & { readonly payload: string })[] = [];
  for (let erased = 0; ; ) {
    const { events, position } = await search.step(ROWS_AT_ONCE);
    for (const { id, createdAt, payload } of events)
      found.push({ id, at: createdAt.getTime(), payload: change === null ? '' : payload });
    const goesOn = position !== null && (await pace.goesOn());
    // A day loses its lists with the first event that is erased of it: the others are found before. Payloads that are changed may not
    // wait, as another erasure may change them meanwhile.
    if (!goesOn || change !== null || found.length >= ERASED_AT_ONCE) {
      erased += await eraseEvents(parts, erasure, found, change);
      found = [];
    }
    if (position === null) return true;
    onProgress?.({ at: position.at, erased });
    if (!goesOn) return false;
  }
}

/** @param events in order of time @returns how many were there */
async function eraseEvents(
  { sql, storage }: ErasureParts,
  { app, id }: StoredErasure,
  events: readonly (ErasedEvent & { readonly payload: string })[],
  change: ((payload: string) => string) | null,
): Promise<number> {
  let erased = 0;
  for (const some of erasedTogether(events)) {
    const payloads = change === null ? null : some.map(({ payload }) => change(payload));
    erased += await storage.erase(sql, { appId: app, erasureId: id, events: some, payloads });
  }
  return erased;
}

/** Where files of the journal wait: their events are stored soon, and then found. @returns false if some wait for longer */
async function untilJournalIsEmpty(folder: string, { wait }: Pace): Promise<boolean> {
  if (folder === '') return true;
  for (let waited = 0; waited < WAIT_MS; waited += POLL_MS) {
    if (!(await hasSegments(folder))) return true;
    await wait(POLL_MS);
  }
  return false;
}

async function hasSegments(folder: string): Promise<boolean> {
  const names = await namesIn(folder);
  for (const name of names.filter((one) => /^writer-\d+$/.test(one)))
    if ((await namesIn(join(folder, name))).some((one) => one.endsWith('.journal'))) return true;
  return false;
}

async function namesIn(folder: string): Promise<readonly string[]> {
  try {
    return await readdir(folder);
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  }
}

/** @returns how many events of the quarantine were erased; null where it could not be rewritten */
async function eraseQuarantined(
  { config, secret, log }: ErasureParts,
  { appId, action, coversUntil: until }: StoredErasure,
  { filter, paths }: ErasureConditions,
): Promise<number | null> {
  if (config.JOURNAL_DIR === '') return 0;
  const change = action === 'delete' ? null : anonymizer(secret, appId, paths);
  let erased = 0;
  try {
    await rewriteQuarantine(
      config.JOURNAL_DIR,
      async (lines) =>
        lines.flatMap(({ text, quarantined }) => {
          if (quarantined === null) return [text];
          const { event, why } = quarantined;
          const isTaken = event.source.appId === appId && event.createdAt < until;
          if (!isTaken || !filter.matches(event.payload)) return [text];
          erased += 1;
          return change === null
            ? []
            : [lineOf({ event: { ...event, payload: change(event.payload) }, why }).trimEnd()];
        }),
      LINES_AT_ONCE,
    );
    return erased;
  } catch (error) {
    log.warn(`erasure: the quarantine in ${config.JOURNAL_DIR} cannot be rewritten: ${String(error)}`);
    return null;
  }
}

interface ErasedOfArchive {
  readonly isErased: (event: ArchivedEvent) => boolean;
  readonly paths: readonly (readonly string[])[];
  readonly pace: Pace;
}

/**
 * Takes events out of the archive, also those of days that are nowhere else any more: such days are brought back, and their rows erased as
 * all others.
 * @param eraseRows erases the rows that are there; false: it was stopped
 * @returns how many; null where it could not be written
 */
async function eraseArchived(
  parts: ErasureParts,
  erasure: StoredErasure,
  erased: ErasedOfArchive,
  eraseRows: () => Promise<boolean>,
): Promise<number | null | 'stopped'> {
  for (let changed = 0; ; ) {
    const outcome = await rewriteFiles(parts, erasure, erased);
    if (outcome === null || outcome === 'stopped') return outcome;
    changed += outcome.changed;
    if (outcome.broughtBack === 0) return changed;
    if (!(await eraseRows())) return 'stopped';
  }
}

async function rewriteFiles(
  { sql, storage, config, secret, log }: ErasureParts,
  { app, appId, action, erasureId }: StoredErasure,
  { isErased, paths, pace }: ErasedOfArchive,
): Promise<{ readonly changed: number; readonly broughtBack: number } | null | 'stopped'> {
  const { ARCHIVE_URL = '' } = config;
  const days = await listArchivedDays(sql, { app: appId });
  if (days.length === 0) return { changed: 0, broughtBack: 0 };
  if (!hasArchive(config)) {
    log.warn(`erasure: ${erasureId} cannot reach the archive: ARCHIVE_URL is not set`);
    return null;
  }
  const change = action === 'delete' ? null : anonymizer(secret, appId, paths);
  const erase = (event: ArchivedEvent): ArchivedEvent | null => {
    if (!isErased(event)) return event;
    return change === null ? null : { ...event, payload: change(event.payload) };
  };
  // Parquet is a large library, and most installations have no archive.
  const [{ rewriteArchive }, { ArchiveError, openArchiveStore }] = await Promise.all([
    import('../archive/archiving.ts'),
    import('../archive/store.ts'),
  ]);
  const options = {
    sql,
    storage,
    store: openArchiveStore(config),
    installationId: await installationId(sql),
  };
  try {
    for (let waited = 0; waited < WAIT_MS; waited += POLL_MS) {
      const erased = await rewriteArchive(options, { id: app, publicId: appId }, erase, () => pace.goesOn());
      if (erased !== null) return erased;
      await pace.wait(POLL_MS);
    }
    log.warn(`erasure: ${erasureId} cannot change the archive: another process works on it`);
  } catch (error) {
    if (!(error instanceof ArchiveError)) throw error;
    log.warn(`erasure: ${erasureId} cannot change the archive at ${ARCHIVE_URL}: ${error.message}`);
  }
  return null;
}

function hasArchive(config: Partial<ArchiveSettings>): config is ArchiveSettings {
  return config.ARCHIVE_URL !== undefined && config.ARCHIVE_URL !== '';
}

/** Erasures of an app, with one statement for all that run. */
export async function showErasures(
  { sql, storage }: Pick<ErasureParts, 'sql' | 'storage'>,
  app: number,
  erasures: readonly StoredErasure[],
): Promise<readonly ShownErasure[]> {
  const running = erasures.filter(({ receipt }) => receipt === null).map(({ id }) => id);
  const erased =
    running.length === 0 ? new Map() : await countErased(await storage.poolOfApp(sql, app), app, running);
  return erasures.map(
    ({ id, erasureId, appId, action, by, reason, conditionHmac, askedAt, finishedAt, receipt }) => ({
      ...{ erasureId, appId, state: finishedAt === null ? 'running' : 'finished', action, by, reason },
      ...{ conditionHmac, askedAt, finishedAt, erased: receipt?.events ?? erased.get(id) ?? 0, receipt },
    }),
  );
}

interface Done {
  /** Null where the events came from the ledger. */
  readonly conditions: ErasureConditions | null;
  /** Whether the journal was empty. */
  readonly journal: boolean;
  readonly quarantined: number | null;
  readonly archived: number | null;
  readonly appliedAgain: readonly string[];
  readonly pace: Pace;
}

/** What follows the rows: answers, counts of fields, the ledger, the receipt. */
async function finish(
  parts: ErasureParts,
  erasure: StoredErasure,
  { conditions, journal, quarantined, archived, appliedAgain, pace }: Done,
  paths = conditions?.paths ?? [],
): Promise<void> {
  const { sql, storage, now, config, log } = parts;
  const { id, app, erasureId, action } = erasure;
  const place = await storage.poolOfApp(sql, app);
  const answers = action === 'delete' ? await forgetAnswers(place, app, id, () => pace.goesOn()) : 0;
  const of = { appId: app, erasureId: id, name: `erased:${erasureId}`, pass: () => pace.goesOn() };
  const named = await namedByAlerts(sql, app);
  const forgotten = await storage.recountErased(sql, of, { values: conditions?.values ?? [], named }, now());
  await renameInAlerts(sql, app, forgotten, of.name);
  await forgetLastViolations(sql, app);
  const sending = await untilDelivered(place, app, pace);
  // Answers of before are forgotten by then, in every process. Where the ledger is applied, nobody has read yet.
  if (conditions !== null && (await isShared(sql, app))) await pace.wait(FRESH_MS);
  const finishedAt = now();
  const summary = await readErasedSummary(place, app, id);
  const replaced = action === 'delete' ? [] : paths;
  const { receipt: _, id: __, app: ___, coversUntil: ____, sealedConditions: _____, ...shown } = erasure;
  const head = { ...shown, paths: replaced, finishedAt: new Date(finishedAt) };
  const isKept = await writeLedger(config.DATA_DIR, head, readErased(place, app, id)).then(
    () => true,
    (error: unknown) => {
      log.warn(`erasure: ${erasureId} cannot be kept in DATA_DIR, in the database alone: ${String(error)}`);
      return false;
    },
  );
  const receipt = {
    ...summary,
    committedBefore: erasure.askedAt.toISOString(),
    idsSha256: await digestOfErased(place, app, id),
    paths: replaced,
    answers,
    quarantined: quarantined ?? 0,
    archived: archived ?? 0,
    notDone: [
      ...(journal
        ? []
        : [leftOver('journal', null, 'events wait in JOURNAL_DIR and are stored later: erase again')]),
      ...(quarantined !== null
        ? []
        : [leftOver('journal', null, 'the quarantine could not be rewritten: erase again')]),
      ...(archived !== null
        ? []
        : [leftOver('archive', null, 'its files could not be written again: erase again')]),
      ...sending.map((name) =>
        leftOver('delivery', name, 'was still sending events that it had read before'),
      ),
      ...(isKept
        ? []
        : [
            leftOver(
              'ledger',
              null,
              'DATA_DIR could not be written: a backup that is restored has the events',
            ),
          ]),
      ...(await copiesOutside(sql, place, app, new Date(finishedAt))),
    ],
    appliedAgain,
  };
  await sql.begin('isolation level read committed', (tx) => finishErasure(tx, erasure, receipt, finishedAt));
}

async function isShared(sql: Sql, app: number): Promise<boolean> {
  return (await sql`SELECT FROM shares WHERE app_id = ${app} LIMIT 1`).length > 0;
}

function leftOver(kind: NotDone['kind'], name: string | null, details: string): NotDone {
  return { kind, name, details };
}

/** What an erasure cannot reach. */
async function copiesOutside(sql: Sql, place: Sql, app: number, finishedAt: Date): Promise<NotDone[]> {
  const consumers = await place<{ name: string; kind: string }[]>`
    SELECT name, kind FROM consumers WHERE app_id = ${app} AND kind = 'consumer' ORDER BY name`;
  const webhooks = await sql<{ name: string; url: string }[]>`
    SELECT public_id AS name, url FROM webhooks WHERE app_id = ${app} ORDER BY id`;
  return [
    leftOver(
      'backups',
      null,
      `made before ${finishedAt.toISOString()} have the events: where one is restored with this DATA_DIR, they are erased again`,
    ),
    ...consumers.map(({ name }) => leftOver('consumer', name, 'may have read events that are erased')),
    ...webhooks.map(({ name, url }) =>
      leftOver('webhook', name, `may have sent events that are erased to ${hostOf(url)}`),
    ),
    leftOver(
      'disk',
      null,
      'dead rows and the write-ahead log hold the bytes until they are overwritten: docs/erasure.md',
    ),
  ];
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : 'its address';
}

/**
 * Webhooks that have read events before send them for a while: those turns are waited for.
 * @returns the names of those that take longer
 */
async function untilDelivered(place: Sql, app: number, { wait }: Pace): Promise<readonly string[]> {
  const leased = (): Promise<{ name: string; lease: string }[]> =>
    place<{ name: string; lease: string }[]>`
      SELECT name, lease::text FROM consumers
       WHERE app_id = ${app} AND kind = 'webhook' AND leased_to IS NOT NULL AND leased_until > now()`;
  const before = await leased();
  for (let waited = 0; before.length > 0; waited += POLL_MS) {
    const now = await leased();
    const left = before.filter(({ name, lease }) =>
      now.some((one) => one.name === name && one.lease === lease),
    );
    if (left.length === 0) break;
    if (waited >= WAIT_MS) return left.map(({ name }) => name);
    await wait(POLL_MS);
  }
  return [];
}

/**
 * Erases again what was erased before a backup was restored: the ledger has it, and the database does not. And writes down what the
 * database has and the ledger does not, as after an erasure on another host.
 * @returns how many erasures were applied again
 */
export async function applyLedger(parts: ErasureParts): Promise<number> {
  const { sql, config } = parts;
  const known = await ledgerOf(config.DATA_DIR);
  const finished = await finishedErasures(sql);
  const done = new Set(finished.map(({ erasureId }) => erasureId));
  let applied = 0;
  for (const erasureId of known)
    if (!done.has(erasureId) && (await applyAgain(parts, erasureId))) applied += 1;
  for (const erasure of finished) if (!known.has(erasure.erasureId)) await writeDown(parts, erasure);
  return applied;
}

/** @returns false where the database has no such app, or another process does it */
async function applyAgain(parts: ErasureParts, erasureId: string): Promise<boolean> {
  const { sql, storage, config, secret, now } = parts;
  const { head } = await readLedger(config.DATA_DIR, erasureId);
  const [app] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${head.appId}`;
  if (app === undefined) return false;
  await insertEarlier(sql, app.id, head);
  const { id } = await requireErasure(sql, erasureId);
  const outcome = await alone(sql, id, async () => {
    const erasure = await requireErasure(sql, erasureId);
    if (erasure.finishedAt !== null) return 'finished';
    const change = head.action === 'delete' ? null : anonymizer(secret, head.appId, head.paths);
    const place = await storage.poolOfApp(sql, app.id);
    const ids = new Set<string>();
    const eraseRows = async (): Promise<boolean> => {
      const { events } = await readLedger(config.DATA_DIR, erasureId);
      for await (const some of events) {
        for (const event of some) ids.add(event.id);
        const found =
          change === null
            ? some.map((event) => ({ ...event, payload: '' }))
            : await readPayloads(place, app.id, some);
        await eraseEvents(parts, erasure, found, change);
      }
      return true;
    };
    await eraseRows();
    const isErased = ({ id: erasedId }: ArchivedEvent): boolean => ids.has(erasedId);
    const erased = { isErased, paths: head.paths, pace: ALONE };
    const archived = await eraseArchived(parts, erasure, erased, eraseRows);
    // Nobody stops it.
    if (archived === 'stopped') return 'busy';
    const appliedAgain = [new Date(now()).toISOString()];
    await finish(
      parts,
      erasure,
      { conditions: null, journal: true, quarantined: 0, archived, appliedAgain, pace: ALONE },
      head.paths,
    );
    return 'finished';
  });
  return outcome !== 'busy';
}

async function writeDown({ sql, storage, config, log }: ErasureParts, erasure: StoredErasure): Promise<void> {
  const { receipt, id, app, coversUntil: _, sealedConditions: __, ...shown } = erasure;
  const place = await storage.poolOfApp(sql, app);
  await writeLedger(
    config.DATA_DIR,
    { ...shown, paths: receipt?.paths ?? [] },
    readErased(place, app, id),
  ).catch((error: unknown) =>
    log.warn(
      `erasure: ${shown.erasureId} cannot be kept in DATA_DIR, in the database alone: ${String(error)}`,
    ),
  );
}

/** How often those are looked for that were asked for meanwhile, and those that another process does. */
const LOOK_MS = 500;
/** Nobody else waits for the turns of erasures: they end with the work. */
const NOBODY: Waiter = { settled: false, whenSettled: () => () => undefined };

/**
 * Does all erasures that are not finished, also those that are asked for meanwhile. Accounts take turns, a slice each, and one that fails
 * is left to the next call.
 * @returns the ids of those that are left
 */
export async function continueErasures(
  parts: ErasureParts,
  isStopped: () => boolean = () => false,
): Promise<readonly string[]> {
  const slots = new Slots(1, Number.POSITIVE_INFINITY);
  const begun = new Set<string>();
  const left: string[] = [];
  const running = new Set<Promise<void>>();
  const work = async (erasureId: string, account: string): Promise<void> => {
    const outcome = await slots
      .run([account], NOBODY, async (place) => {
        const pace: Pace = {
          goesOn: async () => !isStopped() && (await place.pass()) === null,
          wait: (ms) => place.outside(() => sleep(ms)),
        };
        for (;;) {
          const done = isStopped() ? 'stopped' : await runErasure(parts, erasureId, { pace });
          if (done !== 'busy') return done;
          await pace.wait(LOOK_MS);
        }
      })
      .catch((error: unknown) => {
        parts.log.warn(
          `erasure: ${erasureId} failed: ${error instanceof Error ? error.message : String(error)}`,
        );
        return 'failed' as const;
      });
    if (outcome !== 'finished') left.push(erasureId);
  };
  do {
    const asked = isStopped() ? [] : await unfinishedErasures(parts.sql);
    for (const { erasureId, account } of asked.filter((one) => !begun.has(one.erasureId))) {
      begun.add(erasureId);
      const one = work(erasureId, account);
      running.add(one);
      void one.then(() => running.delete(one));
    }
    await Promise.race([...running, sleep(LOOK_MS)]);
  } while (running.size > 0);
  return left;
}
