/** Writes groups of imported events, each event exactly once, and counts exactly how many were new. */
import { OperatorError } from '../../errors.ts';
import { floorTo, MINUTE_MS } from '../counts/levels.ts';
import type { DatabaseAddress } from '../database/connect.ts';
import {
  BULK_SESSION,
  BULK_TIMEOUTS,
  ConnectionLost,
  CopyConnection,
  type CopyGroup,
} from '../database/copy-connection.ts';
import type { Database } from '../database/database.ts';
import { Retention, retentionOf } from '../retention.ts';
import { datesOf, type EventRow, sizeOf, timestamp } from './accepted-event.ts';
import { daysAwayOf, refuseDaysAway } from './days-away.ts';
import { copyGroup, type EngineWrites } from './engine-writes.ts';
import { backOff, messageOf } from './failures.ts';
import { type Attempt, GroupCommit, type GroupKind, NO_LOG } from './group-commit.ts';
import { columns, Inserts } from './inserts.ts';

export interface ImportOutcome<Event> {
  readonly imported: number;
  /** Were stored before. */
  readonly skipped: number;
  readonly refused: readonly RefusedImport<Event>[];
}

export interface RefusedImport<Event> {
  readonly event: Event;
  /** The retention boundary (milliseconds since 1970) if the event is older, else the message of the database. */
  readonly reason: { readonly boundary: number } | { readonly message: string };
}

export interface ImportWriterOptions {
  readonly database: DatabaseAddress | Database;
  readonly engine: EngineWrites;
  /** Internal id of the app that all events belong to. */
  readonly appId: number;
  /** Retention boundary of RETENTION_DAYS in milliseconds since 1970; the later one of it and the database's applies. */
  readonly boundary: number;
  /** How long a group is retried, in milliseconds; long enough for a restart of PostgreSQL. */
  readonly timeoutMs: number;
}

const BOUNDARY = "(extract(epoch FROM greatest(readable_from, '1970-01-01Z')) * 1000)::float8 AS boundary";

const RULES = `SELECT coalesce(type_id, 0) AS "typeId", ${BOUNDARY} FROM retention_rules WHERE app_id =`;

interface RuleBoundary {
  readonly typeId: number;
  readonly boundary: number;
}

/**
 * Begins a transaction. Its locks keep the app from being removed, the retention boundaries from moving, and new fields from being
 * counted, before the group is committed. One message: in between this process parses lines, and answers wait for that.
 */
function beginGroup(appId: number, holdsFields: boolean): string {
  return `
  BEGIN ISOLATION LEVEL READ COMMITTED;
  SELECT pg_current_xact_id()::text AS xid, ${BOUNDARY}
    FROM apps CROSS JOIN retention
   WHERE apps.id = ${appId}
     FOR KEY SHARE OF apps FOR SHARE OF retention;
  ${RULES} ${appId};
  ${holdsFields ? 'SELECT generation > 0 AS "hasFields" FROM field_generation FOR SHARE' : ''}`;
}

/** Notes minutes whose rows are not counted by the values of declared fields. */
const NOTE_MINUTES = `
  INSERT INTO uncounted_minutes (app_id, bucket)
  SELECT $1::integer, minute FROM unnest($2::timestamptz[]) AS minutes (minute)
   WHERE EXISTS (SELECT FROM declared_fields WHERE app_id = $1)`;

function minutesOf(events: readonly EventRow[]): readonly string[] {
  const minutes = new Set(events.map(({ createdAt }) => floorTo(createdAt, MINUTE_MS)));
  return [...minutes].map(timestamp);
}

interface BegunGroup {
  readonly xid: string;
  readonly retention: Retention;
  /** Whether any declared field is counted. */
  readonly hasFields: boolean;
}

export class ImportWriter<Event extends EventRow> {
  readonly #options: ImportWriterOptions;
  readonly #connection: CopyConnection;
  readonly #commit: GroupCommit;
  readonly #inserts: Inserts;
  readonly #kind: GroupKind<Event, ImportOutcome<Event>>;
  /** Days that have partitions. */
  readonly #daysWithPartitions = new Set<string>();
  /** What was last read. */
  #retention: Retention | null = null;
  /** True after a group of which some events were there already: then COPY would only find that out again. */
  #merging = false;
  /** The group that is being written, and its rows as a query where that is built already. */
  #whole: { readonly events: readonly Event[]; readonly rows: CopyGroup } | null = null;
  /** The transaction whose COMMIT got no response, and the outcome of the group if it was committed. */
  #uncertain: { readonly xid: string; readonly outcome: ImportOutcome<Event> } | null = null;

  constructor(options: ImportWriterOptions) {
    this.#options = options;
    const { database, engine, timeoutMs } = options;
    const timeouts = {
      ...BULK_TIMEOUTS,
      unreachableMs: timeoutMs,
      blockedMs: timeoutMs,
      retryMs: timeoutMs,
    };
    this.#connection = new CopyConnection(database, 'tidemark import', timeouts, {
      ...BULK_SESSION,
      ...engine.session,
    });
    this.#commit = new GroupCommit({ engine, timeouts, log: NO_LOG, now: () => performance.now() });
    this.#inserts = new Inserts(engine);
    this.#kind = {
      name: 'events',
      store: async (_, events, attempt) => [
        (await this.#uncertainOutcome(attempt)) ?? (await this.#store(events, attempt)),
      ],
      eventsOf: (events) => this.#kept(events),
      refuse: (_, event, __, error) => refusedImports([event], error),
      onExhausted: (events, { failure, error }) => {
        if (failure === 'no-partition') return [refusedImports(events, error)];
        if (failure === 'away') throw inArchive(error);
        throw failure === 'fault' ? error : stayedAway(error);
      },
    };
  }

  /**
   * Commits a group; one call at a time.
   * @param events in order of time
   * @param rows   all of them as a query, for {@link CopyConnection.copy}
   * @throws OperatorError if the app was removed meanwhile, or the database stays unavailable
   */
  async write(events: readonly Event[], rows: CopyGroup | null = null): Promise<ImportOutcome<Event>> {
    if (events.length === 0) return { imported: 0, skipped: 0, refused: [] };
    this.#whole = rows && { events, rows };
    const outcomes = await this.#commit.run(this.#kind, this.#connection, events, this.#commit.begin(false));
    return {
      imported: outcomes.reduce((sum, { imported }) => sum + imported, 0),
      skipped: outcomes.reduce((sum, { skipped }) => sum + skipped, 0),
      refused: outcomes.flatMap(({ refused }) => refused),
    };
  }

  close(): Promise<void> {
    return this.#connection.close();
  }

  async #store(events: readonly Event[], attempt: Attempt): Promise<ImportOutcome<Event>> {
    const connection = this.#connection;
    try {
      await this.#createPartitions(events);
      const group = await this.#begin();
      const outcome = await this.#fill(events, group, attempt.uncertain);
      this.#uncertain = { xid: group.xid, outcome };
      await connection.query('COMMIT', []);
      this.#uncertain = null;
      return outcome;
    } catch (error) {
      // Retention may have dropped partitions.
      this.#daysWithPartitions.clear();
      if (error instanceof ConnectionLost) throw error;
      this.#uncertain = null;
      await connection.query('ROLLBACK', []).catch(() => undefined); // A new connection has no transaction to end.
      throw error;
    }
  }

  async #begin(): Promise<BegunGroup> {
    const { appId } = this.#options;
    const holdsFields = this.#options.engine.countDirectly !== undefined;
    const results: unknown = await this.#connection.query(beginGroup(appId, holdsFields), []);
    // Each statement has a result, which the type of the connection does not tell.
    const [, started, rules, fields] = results as readonly [
      unknown,
      { readonly rows: readonly { readonly xid: string; readonly boundary: number }[] },
      { readonly rows: readonly RuleBoundary[] },
      { readonly rows: readonly { readonly hasFields: boolean }[] }?,
    ];
    const [begun] = started.rows;
    if (begun === undefined) throw new OperatorError('the app was removed: its import ends here');
    const retention = this.#retentionOf(begun.boundary, rules.rows);
    return { xid: begun.xid, retention, hasFields: fields?.rows[0]?.hasFields === true };
  }

  /** Writes the events that retention keeps. */
  async #fill(
    events: readonly Event[],
    { retention, hasFields }: BegunGroup,
    uncertain: boolean,
  ): Promise<ImportOutcome<Event>> {
    const kept = this.#kept(events);
    const refused = events
      .filter(({ createdAt, typeId }) => createdAt < retention.boundaryOf(typeId))
      .map((event) => ({ event, reason: { boundary: retention.boundaryOf(event.typeId) } }));
    if (kept.length === 0) return { imported: 0, skipped: 0, refused };
    if (!uncertain && !this.#merging) {
      await this.#copy(kept, hasFields);
      // A row that is in the archive was no duplicate.
      await refuseDaysAway(this.#connection, kept);
      return { imported: kept.length, skipped: 0, refused };
    }
    const { stored: imported } = await this.#inserts.missingInside(this.#connection, columns(kept), {
      bytes: sizeOf(kept),
    });
    this.#merging = imported < kept.length;
    return { imported, skipped: kept.length - imported, refused };
  }

  /** Copies new events, and counts them. */
  async #copy(events: readonly Event[], hasFields: boolean): Promise<void> {
    const { appId, engine } = this.#options;
    const rows = this.#whole?.events === events ? this.#whole.rows : copyGroup(engine, events, ['rows']);
    const copying = this.#connection.copy(rows);
    copying.catch(() => undefined); // Awaited below.
    const addToCounts = engine.countDirectly?.(appId, events) ?? null;
    await copying;
    if (addToCounts === null) {
      await this.#connection.copy(copyGroup(engine, events, ['changes']));
      return;
    }
    // Changes would tell of which minutes the fields are to be counted.
    if (hasFields) await this.#connection.query(NOTE_MINUTES, [appId, minutesOf(events)]);
    await addToCounts(this.#connection);
  }

  /** Creates missing partitions first: COPY would send a whole group to find the first of them missing. */
  async #createPartitions(events: readonly Event[]): Promise<void> {
    this.#retention ?? (await this.#readRetention());
    const dates = datesOf(this.#kept(events)).filter((date) => !this.#daysWithPartitions.has(date));
    await this.#commit.createPartitions(this.#connection, dates);
    for (const date of dates) this.#daysWithPartitions.add(date);
  }

  async #readRetention(): Promise<void> {
    const { rows } = await this.#connection.query<{ boundary: number }>(
      `SELECT ${BOUNDARY} FROM retention`,
      [],
    );
    const rules = await this.#connection.query<RuleBoundary>(`${RULES} ${this.#options.appId}`, []);
    this.#retentionOf(rows[0]?.boundary ?? 0, rules.rows);
  }

  #retentionOf(boundary: number, rules: readonly RuleBoundary[]): Retention {
    this.#retention = retentionOf(Math.max(boundary, this.#options.boundary), rules);
    return this.#retention;
  }

  /** The events that retention keeps; the same list where it keeps all. */
  #kept(events: readonly Event[]): readonly Event[] {
    const retention = this.#retention ?? new Retention(this.#options.boundary);
    if ((events[0]?.createdAt ?? Number.POSITIVE_INFINITY) >= retention.whole()) return events;
    return events.filter(({ createdAt, typeId }) => createdAt >= retention.boundaryOf(typeId));
  }

  /** The outcome of the transaction whose COMMIT got no response; null if it was not committed, or cannot be found out. */
  async #uncertainOutcome({ startedAt }: Attempt): Promise<ImportOutcome<Event> | null> {
    for (let tries = 0; this.#uncertain !== null; tries += 1) {
      const { xid, outcome } = this.#uncertain;
      const status = await this.#statusOf(xid);
      if (status !== 'in progress') this.#uncertain = null;
      if (status === 'committed') return outcome;
      // The old session may not have noticed yet that its client is gone.
      if (performance.now() - startedAt > this.#options.timeoutMs) throw stayedAway('a commit does not end');
      await backOff(tries);
    }
    return null;
  }

  async #statusOf(xid: string): Promise<string | null> {
    try {
      const { rows } = await this.#connection.query<{ status: string | null }>(
        'SELECT pg_xact_status($1::xid8) AS status',
        [xid],
      );
      return rows[0]?.status ?? null;
    } catch (error) {
      if (error instanceof ConnectionLost) throw error;
      return null; // Another server that took over may never have heard of the transaction.
    }
  }
}

function refusedImports<Event>(events: readonly Event[], error: unknown): ImportOutcome<Event> {
  const reason = { message: messageOf(error) };
  return { imported: 0, skipped: 0, refused: events.map((event) => ({ event, reason })) };
}

function inArchive(error: unknown): OperatorError {
  const days = [...new Set((daysAwayOf(error) ?? []).map(({ day }) => day))].join(', ');
  return new OperatorError(
    `the events of ${days} are in the archive, and these may be among them: run "tidemark archive restore" for each of these days, ` +
      'then the same import again, which skips what is imported already',
    { cause: error },
  );
}

function stayedAway(error: unknown): OperatorError {
  return new OperatorError(
    `the database stayed away (${messageOf(error)}): run the same import again, which skips what is imported already`,
    { cause: error },
  );
}
