/**
 * A PostgreSQL that has of the service's tables what writing needs, and understands the statements of the writers. Each
 * statement happens at one moment, as a whole. The statements' SQL is tested on real servers; here it is known by its text.
 */
import pg from 'pg';
import type { Engine } from '../../src/storage/database/engine.ts';
import { ENGINES } from '../../src/storage/engines/engines.ts';
import { dateOf, dayOf } from '../../src/storage/write/accepted-event.ts';
import { insertValues } from '../../src/storage/write/inserts.ts';
import { readCopies } from './copies.ts';

export interface Row {
  readonly id: string;
  readonly appId: number;
  readonly typeId: number;
  readonly createdAt: number;
  readonly payload: string;
}

export interface Key {
  readonly bodyDigest: Buffer;
  readonly status: number;
  readonly answer: string;
  readonly createdAt: number;
}

export interface Result {
  readonly rows: readonly unknown[];
  readonly rowCount: number;
}

/** A transaction that a session has begun. Its rows are there when it is committed. */
export interface Transaction {
  isAborted: boolean;
  readonly rows: Row[];
}

export const IDENTITY = '00112233445566778899aabbccddeeff';
export const MINUTE = 60_000;
/** A payload with this word is refused, as one with invalid data would be. */
export const POISON_WORD = 'poison';
const KEY_LIFE_MS = 24 * 3_600_000;

export function sqlError(code: string): Error {
  return Object.assign(new pg.DatabaseError(`simulated ${code}`, 0, 'error'), { code, severity: 'ERROR' });
}

/** A statement waits for a lock. */
export class Locked extends Error {}

type Values = readonly (readonly never[])[];

export class Database {
  readonly engine: Engine;
  readonly rows = new Map<string, Row>();
  /** App, type and minute → what was added to the counts (PostgreSQL). */
  readonly counted = new Map<string, number>();
  /** Minutes that the aggregates may lack rows of (TimescaleDB). */
  readonly marked = new Set<number>();
  readonly keys = new Map<string, Key>();
  readonly apps = new Map<string, number>();
  /** Internal app and name → internal id. */
  readonly types = new Map<string, number>();
  readonly days = new Set<number>();
  /** The SQLSTATE with which every write fails now; null: none does. */
  refusal: string | null = null;
  isReadOnly = false;
  readonly lockedDays = new Set<number>();
  isLocked = false;
  areKeysLocked = false;
  /** Days for which no partition can be made. */
  readonly impossibleDays = new Set<number>();
  readonly #statements: ReadonlyMap<string, (values: Values) => Result>;
  /** That of the statement. */
  #transaction: Transaction | null = null;

  constructor(engine: Engine) {
    this.engine = engine;
    const { writes } = ENGINES[engine];
    this.#statements = new Map<string, (values: Values) => Result>([
      [insertValues(writes), (values) => this.#insertMissing(values)],
      [writes.createPartitions, ([dates = []]) => this.#makeRoom(dates)],
      [writes.lockedDays, ([dates = []]) => this.#lockedAmong(dates)],
    ]);
  }

  /** COPY commands as one transaction. @throws DatabaseError, Locked */
  copy(messages: Buffer): void {
    const { events, deltas, marks } = readCopies(messages);
    this.#mayWrite(events, []);
    const keys = new Set(events.map(keyOf));
    if (keys.size < events.length || events.some((row) => this.rows.has(keyOf(row)))) throw sqlError('23505');
    for (const row of events) this.rows.set(keyOf(row), row);
    for (const { appId, typeId, bucket, count } of deltas) this.#count(`${appId} ${typeId} ${bucket}`, count);
    for (const minute of marks) this.marked.add(minute);
  }

  /** One statement. @throws DatabaseError, Locked */
  query(statement: string, values: Values, transaction: Transaction | null): Result {
    if (transaction?.isAborted === true) throw sqlError('25P02');
    this.#transaction = transaction;
    try {
      return this.#meaningOf(statement)(values);
    } catch (error) {
      if (transaction !== null && !(error instanceof Locked)) transaction.isAborted = true;
      throw error;
    }
  }

  /** Stores the rows of a transaction. What others have stored meanwhile it would have waited for. */
  commit({ isAborted, rows }: Transaction): void {
    if (isAborted) return;
    if (this.isReadOnly) throw sqlError('25006');
    this.#transaction = null;
    this.#insert(rows);
  }

  #meaningOf(statement: string): (values: Values) => Result {
    const known = this.#statements.get(statement);
    if (known !== undefined) return known;
    if (statement.startsWith('SET LOCAL')) return () => ({ rows: [], rowCount: 0 });
    if (statement.includes('"isReadOnly"'))
      return () => ({ rows: [{ isReadOnly: this.isReadOnly, forbidden: this.#forbidden }], rowCount: 1 });
    if (statement.includes('WITH home AS')) return (values) => this.#resolve(values);
    if (statement.includes('INSERT INTO idempotency_keys'))
      return statement.includes('LEFT JOIN kept')
        ? (values) => this.#storeMissing(values)
        : (values) => this.#storeNew(values);
    if (statement.includes('JOIN idempotency_keys')) return (values) => this.#findKeys(values);
    throw new Error(`The simulation does not know this statement: ${statement}`);
  }

  get #forbidden(): string[] {
    return this.refusal === '42501' ? ['events'] : [];
  }

  #mayWrite(events: readonly Row[], keys: readonly string[]): void {
    if (this.isReadOnly) throw sqlError('25006');
    if (this.refusal !== null) throw sqlError(this.refusal);
    if (this.isLocked || (keys.length > 0 && this.areKeysLocked)) throw new Locked();
    if (events.some(({ createdAt }) => this.lockedDays.has(dayOf(createdAt)))) throw new Locked();
    if (events.some(({ payload }) => payload.includes(POISON_WORD))) throw sqlError('22P02');
    const missing = events.find(({ createdAt }) => !this.days.has(dayOf(createdAt)));
    if (missing === undefined) return;
    // Without a constraint's name: no partition.
    if (this.engine === 'postgres') throw sqlError('23514');
    for (const { createdAt } of events) {
      if (this.impossibleDays.has(dayOf(createdAt))) throw sqlError('23514');
      this.days.add(dayOf(createdAt));
    }
  }

  #makeRoom(dates: readonly string[]): Result {
    if (this.isReadOnly) throw sqlError('25006');
    if (this.refusal !== null) throw sqlError(this.refusal);
    if (this.isLocked) throw new Locked();
    const days = dates.map((date) => dayOf(Date.parse(date)));
    if (days.some((day) => this.impossibleDays.has(day))) throw sqlError('42P17');
    for (const day of days) this.days.add(day);
    return { rows: [], rowCount: 0 };
  }

  #lockedAmong(dates: readonly string[]): Result {
    const rows = dates
      .filter((date) => this.isLocked || this.lockedDays.has(dayOf(Date.parse(date))))
      .map((day) => ({ day }));
    return { rows, rowCount: rows.length };
  }

  #insertMissing(values: Values): Result {
    const events = rowsOf(values);
    this.#mayWrite(events, []);
    return { rows: [this.#insert(events)], rowCount: 1 };
  }

  /** @returns what a statement tells of it */
  #insert(events: readonly Row[]): { stored: number; repeated: readonly string[] } {
    const stored = new Set<string>();
    for (const row of events) {
      const key = keyOf(row);
      if (this.rows.has(key) || stored.has(key)) continue;
      stored.add(key);
      if (this.#transaction !== null) {
        this.#transaction.rows.push(row);
        continue;
      }
      this.rows.set(key, row);
      const minute = Math.floor(row.createdAt / MINUTE) * MINUTE;
      this.#count(`${row.appId} ${row.typeId} ${minute}`, 1);
      this.marked.add(minute);
    }
    const ids = new Set(events.filter((row) => stored.has(keyOf(row))).map(({ id }) => id));
    const isAll = stored.size === events.length;
    return {
      stored: stored.size,
      repeated: isAll ? [] : [...new Set(events.map(({ id }) => id))].filter((id) => !ids.has(id)),
    };
  }

  #count(key: string, more: number): void {
    if (this.engine === 'postgres') this.counted.set(key, (this.counted.get(key) ?? 0) + more);
  }

  #storeNew(values: Values): Result {
    const events = rowsOf(values.slice(6));
    const numbers: readonly number[] = values[11] ?? [];
    const keys = keysOf(values);
    this.#mayWrite(
      events,
      keys.map(({ name }) => name),
    );
    const kept = new Set(keys.flatMap(({ name, key }, index) => (this.#isNew(name, key) ? [index + 1] : [])));
    const added = events.filter((_, index) => kept.has(numbers[index] ?? 0));
    if (added.some((row) => this.rows.has(keyOf(row)))) throw sqlError('23505');
    if (this.#transaction === null)
      for (const { name, key } of keys) if (this.#isNew(name, key)) this.keys.set(name, key);
    this.#insert(added);
    return { rows: [], rowCount: added.length };
  }

  #storeMissing(values: Values): Result {
    const events = rowsOf(values.slice(6));
    const numbers: readonly number[] = values[11] ?? [];
    const keys = keysOf(values);
    this.#mayWrite(
      events,
      keys.map(({ name }) => name),
    );
    const kept = new Set<number>();
    for (const [index, { name, key }] of keys.entries()) {
      if (!this.#isNew(name, key)) continue;
      kept.add(index + 1);
      this.keys.set(name, key);
    }
    const added = events.filter((_, index) => numbers[index] === 0 || kept.has(numbers[index] ?? 0));
    const { stored, repeated } = this.#insert(added);
    const left = events.filter((row) => !added.includes(row)).map(({ id }) => id);
    return {
      rows: [{ stored, repeated: [...new Set([...repeated, ...left])], kept: kept.size }],
      rowCount: 1,
    };
  }

  #isNew(name: string, { createdAt }: Key): boolean {
    const known = this.keys.get(name);
    return known === undefined || known.createdAt <= createdAt - KEY_LIFE_MS;
  }

  #findKeys([apps = [], digests = []]: Values): Result {
    if (this.areKeysLocked) throw new Locked();
    const rows = apps.flatMap((app, index) => {
      const known = this.keys.get(nameOfKey(app, digests[index] ?? NO_DIGEST));
      return known === undefined ? [] : [{ index, ...known }];
    });
    return { rows, rowCount: rows.length };
  }

  #resolve(values: Values): Result {
    const [identity, apps = [], types = [], names = []] = values as readonly (readonly string[])[];
    const isOurs = String(identity) === IDENTITY;
    const rows = apps.map((app, index) => {
      const appId = isOurs ? (this.apps.get(app) ?? null) : null;
      const known = this.types.get(`${appId} ${names[index]}`) ?? Number(types[index]?.split('_')[1]);
      return { isOurs, number: index + 1, appId, typeId: appId === null ? null : known };
    });
    return { rows, rowCount: rows.length };
  }

  /** The days that have rows, for messages. */
  describe(): string {
    return `${this.rows.size} rows of ${[...new Set([...this.rows.values()].map(({ createdAt }) => dateOf(dayOf(createdAt))))].join()}`;
  }
}

const NO_DIGEST = Buffer.alloc(0);

/** The unique index. */
export function keyOf({ appId, createdAt, id }: Pick<Row, 'appId' | 'createdAt' | 'id'>): string {
  return `${appId} ${createdAt} ${id}`;
}

function nameOfKey(appId: number, digest: Buffer): string {
  return `${appId} ${digest.toString('hex')}`;
}

/** The rows of the columns of `columns`. */
function rowsOf(values: Values): Row[] {
  const [ids = [], apps = [], types = [], times = [], payloads = []] =
    values as readonly (readonly never[])[];
  return ids.map((id, index) => ({
    id,
    appId: apps[index] ?? 0,
    typeId: types[index] ?? 0,
    createdAt: Date.parse(times[index] ?? ''),
    payload: payloads[index] ?? '',
  }));
}

function keysOf(values: Values): { readonly name: string; readonly key: Key }[] {
  const [apps = [], digests = [], bodies = [], statuses = [], answers = [], times = []] = values;
  return apps.map((app, index) => ({
    name: nameOfKey(app, digests[index] ?? NO_DIGEST),
    key: {
      bodyDigest: bodies[index] ?? NO_DIGEST,
      status: statuses[index] ?? 0,
      answer: answers[index] ?? '',
      createdAt: Date.parse(times[index] ?? ''),
    },
  }));
}
