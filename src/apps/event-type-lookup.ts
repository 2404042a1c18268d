/** Looks up the type of an event by the id or name that its producer sent. A new name creates a type. */

import { escaped } from '../base/escape.ts';
import type { Path } from '../base/turns.ts';
import { BatchedLookup, type LookupQueue } from '../cache/batched-lookup.ts';
import { type CacheStats, LookupCache, type LookupOptions, lookupFailure } from '../cache/lookup-cache.ts';
import { Refused, Rejection } from '../errors.ts';
import { errorCode } from '../storage/database/connect.ts';
import type { EventSource } from '../storage/write/accepted-event.ts';
import {
  type CreatedTypes,
  getOrCreateEventTypes,
  type StoredType,
  storedTypes,
  TypeCounts,
  type TypeReference,
  typeColumns,
} from './event-types.ts';
import { Redaction } from './redaction.ts';
import { TypeCreation } from './type-creation.ts';
import type { SchemaReference } from './type-schemas.ts';

export interface EventType {
  readonly id: number;
  readonly publicId: string;
  /** The public id as ASCII-only JSON text: a restored public id may be any text. */
  readonly publicIdJson: string;
  /** What its events carry into the journal; one object for all of them. */
  readonly source: EventSource;
  /** What its payloads are checked against; null: nothing. */
  readonly schema: SchemaReference | null;
  /** What is redacted of its payloads; null: nothing. */
  readonly redaction: Redaction | null;
}

export interface EventTypesOptions extends LookupOptions {
  /** The holder of an app's work: its account, then the app. */
  readonly holderOf?: (appId: number) => Path;
  /**
   * The node of a cluster that holds an app, of which only the identity matters: types of apps of one node are created together.
   * Rejects at once where the database could not store a new type of the app now.
   */
  readonly reach?: (appId: number) => Promise<unknown>;
  readonly maxTypesPerApp: number;
  /** The app's own limit of types; null: it has none. */
  readonly ownLimitOf?: (appId: number) => number | null;
  /** Types that an app may create in any 60 seconds; 0 lifts the limit. */
  readonly newTypesPerMinute: number;
  readonly monotonic: () => number;
  /** Changes when the database becomes another one: ids that were looked up before mean nothing then. */
  readonly epoch?: (() => number) | undefined;
}

const UNKNOWN = new Rejection(
  'eventTypeNotFound',
  'The app has no event type with this typeId. The events of another app bring ids of its types: leave out typeId, and the name decides.',
  { param: 'typeId' },
);

const MAX_TYPES = 100_000;
/**
 * Only the last negative result is kept: new types are not announced between processes, and creating them is rate-limited.
 */
const NO_NEGATIVES = 1;

export class EventTypes {
  readonly #options: EventTypesOptions;
  readonly #byId: LookupCache<EventType>;
  readonly #byName: LookupCache<EventType>;
  readonly #counts = new TypeCounts();
  readonly #refusals = new Map<number, Rejection>();
  readonly #names: BatchedLookup<StoredType>;
  readonly #ids: BatchedLookup<StoredType>;
  readonly #creation: TypeCreation;
  readonly #holderOf: (appId: number) => Path;

  constructor(options: EventTypesOptions) {
    this.#options = options;
    const { outage, holderOf = (appId: number): Path => [appId] } = options;
    this.#names = new BatchedLookup((keys) => this.#findMany(keys, 'name'), { outage });
    this.#ids = new BatchedLookup((keys) => this.#findMany(keys, 'publicId'), { outage });
    this.#holderOf = holderOf;
    this.#creation = new TypeCreation({
      create: (names) => this.#createMany(names),
      limitPerMinute: options.newTypesPerMinute,
      holderOf,
      outage,
      now: options.monotonic,
    });
    const memory = {
      max: MAX_TYPES,
      maxNegatives: NO_NEGATIVES,
      ttlMs: options.cacheMs,
      now: options.now,
      outage,
    };
    this.#byId = new LookupCache({ ...memory, load: (key) => this.#loadById(key) });
    this.#byName = new LookupCache({ ...memory, load: (key) => this.#loadByName(key) });
  }

  /** The type that a producer names, synchronously if it is cached. A new name creates it. */
  find(appId: number, reference: TypeReference): EventType | Rejection | Promise<EventType | Rejection> {
    return 'typeId' in reference
      ? foundOr(UNKNOWN, this.#byId.get(`${appId} ${reference.typeId}`))
      : foundOr(this.#tooMany(appId), this.#byName.get(`${appId} ${reference.typeName}`));
  }

  /** Built once for each limit: nearly no event needs it. */
  #tooMany(appId: number): Rejection {
    const { maxTypesPerApp, ownLimitOf } = this.#options;
    const limit = Math.min(maxTypesPerApp, ownLimitOf?.(appId) ?? maxTypesPerApp);
    const known = this.#refusals.get(limit);
    if (known !== undefined) return known;
    const refusal = new Rejection('tooManyEventTypes', `An app may have at most ${limit} event types.`);
    this.#refusals.set(limit, refusal);
    return refusal;
  }

  get caches(): readonly CacheStats[] {
    return [this.#byId, this.#byName];
  }

  /** What waits for lookups by name and by id, and for the creation of types. */
  get queues(): Readonly<Record<'event_types' | 'new_event_types', readonly LookupQueue[]>> {
    return { event_types: [this.#ids.queue, this.#names.queue], new_event_types: [this.#creation.queue] };
  }

  /** Drops all cached types after a change. */
  dropAll(): void {
    this.#byId.dropAll();
    this.#byName.dropAll();
    this.#counts.clear();
  }

  /** Invalidates all cached types: change notifications may have been missed. */
  invalidateAll(): void {
    this.#byId.invalidateAll();
    this.#byName.invalidateAll();
    this.#counts.clear();
  }

  async #loadById(key: string): Promise<EventType | null> {
    const [appId, publicId] = splitKey(key);
    const epoch = this.#options.epoch?.();
    // PostgreSQL's text type cannot store NUL, so no identifier contains it.
    if (publicId.includes('\0')) return null;
    const found = await this.#ids.get(key, this.#holderOf(appId));
    return found === null ? null : eventType(found, epoch);
  }

  async #loadByName(key: string): Promise<EventType | null> {
    const [appId, name] = splitKey(key);
    const epoch = this.#options.epoch?.();
    const found = await this.#names.get(key, this.#holderOf(appId));
    if (found !== null) return eventType(found, epoch);
    const type = await this.#creation.add(appId, name);
    if (type instanceof Rejection) throw new Refused(type);
    return type === 'too-many' ? null : eventType(type, epoch);
  }

  /** Looks up many names or public ids in one statement. */
  async #findMany(
    keys: readonly string[],
    by: 'name' | 'publicId',
  ): Promise<ReadonlyMap<string, StoredType>> {
    const { sql } = this.#options;
    const split = keys.map(splitKey);
    const column = by === 'name' ? sql`type.name` : sql`type.public_id`;
    const rows = await sql<(StoredType & { appId: number })[]>`
      SELECT ${typeColumns(sql)}, type.app_id AS "appId"
        FROM unnest(${split.map(([appId]) => appId)}::int[], ${split.map(([, text]) => text)}::text[])
               AS asked (app_id, text)
        JOIN (${storedTypes(sql)}) ON type.app_id = asked.app_id AND ${column} = asked.text`;
    return new Map(rows.map((row) => [`${row.appId} ${row[by]}`, row]));
  }

  /** Creates types of apps: those of each node in one transaction, or each app's alone if that fails. */
  async #createMany(
    names: ReadonlyMap<number, readonly string[]>,
  ): Promise<ReadonlyMap<number, CreatedTypes | Error>> {
    const outcomes = new Map<number, CreatedTypes | Error>();
    const nodes = new Map<unknown, Map<number, readonly string[]>>();
    for (const [appId, some] of names) {
      try {
        const node = await this.#options.reach?.(appId);
        nodes.set(node, (nodes.get(node) ?? new Map<number, readonly string[]>()).set(appId, some));
      } catch (error) {
        outcomes.set(appId, lookupFailure(error));
      }
    }
    for (const apps of nodes.values())
      for (const [appId, outcome] of await this.#createTogether(apps)) outcomes.set(appId, outcome);
    return outcomes;
  }

  async #createTogether(
    apps: ReadonlyMap<number, readonly string[]>,
  ): Promise<ReadonlyMap<number, CreatedTypes | Error>> {
    const { sql, maxTypesPerApp: maxTypes } = this.#options;
    const create = (some: ReadonlyMap<number, readonly string[]>) =>
      getOrCreateEventTypes(sql, { apps: some, maxTypes, counts: this.#counts });
    try {
      return await create(apps);
    } catch (error) {
      const failure = lookupFailure(error);
      if (apps.size === 1 || !isOfData(error))
        return new Map([...apps.keys()].map((appId) => [appId, failure]));
    }
    // A name that the database does not take is no reason to refuse those of other apps.
    const outcomes = new Map<number, CreatedTypes | Error>();
    for (const one of apps)
      for (const [appId, outcome] of await this.#createTogether(new Map([one]))) outcomes.set(appId, outcome);
    return outcomes;
  }
}

/** Whether the database has refused a value (PostgreSQL documentation, appendix A: classes 22 and 23). */
function isOfData(error: unknown): boolean {
  return /^2[23]/.test(errorCode(error));
}

function eventType(stored: StoredType, epoch: number | undefined): EventType {
  const { id, publicId, name, appPublicId, schema, redaction: rules } = stored;
  const redaction = rules === null ? null : new Redaction(appPublicId, rules);
  const named = { appId: appPublicId, typeId: publicId, typeName: name };
  const source = Object.freeze(epoch === undefined ? named : { ...named, epoch });
  const publicIdJson = JSON.stringify(publicId).replace(/[^ -~]/g, escaped);
  return { id, publicId, publicIdJson, source, schema, redaction };
}

function foundOr(
  refusal: Rejection,
  found: EventType | null | Promise<EventType | null>,
): EventType | Rejection | Promise<EventType | Rejection> {
  if (!(found instanceof Promise)) return found ?? refusal;
  return found.then(
    (type) => type ?? refusal,
    (error: unknown) => {
      if (error instanceof Refused) return error.rejection;
      throw error;
    },
  );
}

function splitKey(key: string): readonly [appId: number, rest: string] {
  const space = key.indexOf(' ');
  return [Number(key.slice(0, space)), key.slice(space + 1)];
}
