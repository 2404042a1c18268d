/** Looks up the type of an event by the id or name that its producer sent. A new name creates a type. */

import { Rejection } from '../errors.ts';
import { BatchedLookup } from '../storage/batched-lookup.ts';
import type { Sql } from '../storage/connect.ts';
import { type CacheStats, LookupCache, type LookupOutage } from '../storage/lookup-cache.ts';
import type { EventSource } from '../storage/write/accepted-event.ts';
import {
  getOrCreateEventTypes,
  type StoredType,
  storedTypes,
  TypeCounts,
  type TypeReference,
  typeColumns,
} from './event-types.ts';
import { TypeCreation } from './type-creation.ts';
import type { SchemaReference } from './type-schemas.ts';

export interface EventType {
  /** Internal id. */
  readonly id: number;
  readonly publicId: string;
  /** The public id as ASCII-only JSON text: a restored public id may be any text. */
  readonly publicIdJson: string;
  /** What its events carry into the journal; one object for all of them. */
  readonly source: EventSource;
  /** What its payloads are checked against; null: nothing. */
  readonly schema: SchemaReference | null;
}

export interface EventTypesOptions {
  readonly sql: Sql;
  /** Rejects at once where the database could not store a new type of an app now. */
  readonly reach?: (appId: number) => Promise<unknown>;
  readonly maxTypesPerApp: number;
  /** Types that an app may create in any 60 seconds; 0 lifts the limit. */
  readonly newTypesPerMinute: number;
  readonly cacheMs: number;
  /** Milliseconds since the Unix epoch. */
  readonly now: () => number;
  /** Milliseconds of a monotonic clock. */
  readonly monotonic: () => number;
  readonly outage?: LookupOutage | undefined;
  /** Changes when the database becomes another one: ids that were looked up before mean nothing then. */
  readonly epoch?: (() => number) | undefined;
}

const UNKNOWN = new Rejection('eventTypeNotFound', 'The app has no event type with this typeId.');

const MAX_TYPES = 100_000;
/**
 * Of negative results only the last one is kept: new types are not announced between processes, and creating them is rate-limited.
 */
const NO_NEGATIVES = 1;

export class EventTypes {
  readonly #options: EventTypesOptions;
  readonly #byId: LookupCache<EventType>;
  readonly #byName: LookupCache<EventType>;
  readonly #tooMany: Rejection;
  readonly #counts = new TypeCounts();
  readonly #names: BatchedLookup<StoredType>;
  readonly #creation: TypeCreation;

  constructor(options: EventTypesOptions) {
    this.#options = options;
    const limit = options.maxTypesPerApp;
    this.#tooMany = new Rejection('tooManyEventTypes', `An app may have at most ${limit} event types.`);
    this.#names = new BatchedLookup((keys) => this.#findByNames(keys));
    this.#creation = new TypeCreation({
      create: async (appId, names) => {
        await options.reach?.(appId);
        const counts = this.#counts;
        return await getOrCreateEventTypes(options.sql, { appId, names, maxTypes: limit, counts });
      },
      limitPerMinute: options.newTypesPerMinute,
      now: options.monotonic,
    });
    const memory = {
      max: MAX_TYPES,
      maxNegatives: NO_NEGATIVES,
      ttlMs: options.cacheMs,
      now: options.now,
      outage: options.outage,
    };
    this.#byId = new LookupCache({ ...memory, load: (key) => this.#loadById(key) });
    this.#byName = new LookupCache({ ...memory, load: (key) => this.#loadByName(key) });
  }

  /** The type that a producer names, synchronously if it is cached. A new name creates it. */
  find(appId: number, reference: TypeReference): EventType | Rejection | Promise<EventType | Rejection> {
    return 'typeId' in reference
      ? foundOr(UNKNOWN, this.#byId.get(`${appId} ${reference.typeId}`))
      : foundOr(this.#tooMany, this.#byName.get(`${appId} ${reference.typeName}`));
  }

  get caches(): readonly CacheStats[] {
    return [this.#byId, this.#byName];
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
    const [row] = await this.#options.sql<StoredType[]>`
      SELECT ${typeColumns(this.#options.sql)} FROM ${storedTypes(this.#options.sql)}
       WHERE type.public_id = ${publicId} AND type.app_id = ${appId}`;
    return row === undefined ? null : eventType(row, epoch);
  }

  async #loadByName(key: string): Promise<EventType | null> {
    const epoch = this.#options.epoch?.();
    const found = await this.#names.get(key);
    if (found !== null) return eventType(found, epoch);
    const type = await this.#creation.add(...splitKey(key));
    if (type instanceof Rejection) throw new Refused(type);
    return type === 'too-many' ? null : eventType(type, epoch);
  }

  /** Looks up many names in one statement. */
  async #findByNames(keys: readonly string[]): Promise<ReadonlyMap<string, StoredType>> {
    const split = keys.map(splitKey);
    const rows = await this.#options.sql<(StoredType & { appId: number })[]>`
      SELECT ${typeColumns(this.#options.sql)}, type.app_id AS "appId"
        FROM unnest(${split.map(([appId]) => appId)}::int[], ${split.map(([, name]) => name)}::text[])
               AS asked (app_id, name)
        JOIN (${storedTypes(this.#options.sql)}) ON type.app_id = asked.app_id AND type.name = asked.name`;
    return new Map(rows.map((row) => [`${row.appId} ${row.name}`, row]));
  }
}

/** A lookup that ends in a refusal, which is not cached. */
class Refused extends Error {
  readonly rejection: Rejection;

  constructor(rejection: Rejection) {
    super(rejection.details);
    this.rejection = rejection;
  }
}

function eventType(stored: StoredType, epoch: number | undefined): EventType {
  const { id, publicId, name, appPublicId, schema } = stored;
  const escaped = (character: string): string =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  const named = { appId: appPublicId, typeId: publicId, typeName: name };
  const source = Object.freeze(epoch === undefined ? named : { ...named, epoch });
  return { id, publicId, publicIdJson: JSON.stringify(publicId).replace(/[^ -~]/g, escaped), source, schema };
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
