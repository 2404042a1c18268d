/** An event's type, by the id or the name that its producer sent; a new name makes a new type. */

import { Rejection } from '../errors.ts';
import { BatchedLookup } from '../storage/batched-lookup.ts';
import type { Sql } from '../storage/connect.ts';
import { type CacheStats, LookupCache, type LookupOutage } from '../storage/lookup-cache.ts';
import { getOrCreateEventTypes, type StoredType, TypeCounts, type TypeReference } from './event-types.ts';
import { TypeCreation } from './type-creation.ts';

export interface EventType {
  /** Internal id. */
  readonly id: number;
  readonly publicId: string;
  /** The public id as JSON text of ASCII alone: one that came by a restore may be any text. */
  readonly publicIdJson: string;
}

export interface EventTypesOptions {
  readonly sql: Sql;
  readonly maxTypesPerApp: number;
  /** Types that an app may create in any 60 seconds; 0 lifts the limit. */
  readonly newTypesPerMinute: number;
  readonly cacheMs: number;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Milliseconds of a monotonic clock. */
  readonly monotonic: () => number;
  readonly outage?: LookupOutage | undefined;
}

const UNKNOWN = new Rejection('eventTypeNotFound', 'The app has no event type with this typeId.');

const MAX_TYPES = 100_000;
/**
 * What is not there is as good as not remembered: nobody notifies of a new type, and asking again is rate-limited.
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
      create: (appId, names) =>
        getOrCreateEventTypes(options.sql, { appId, names, maxTypes: limit, counts: this.#counts }),
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

  /** The type of an app that a producer means, at once where it is remembered; made where it is a new name. */
  find(appId: number, reference: TypeReference): EventType | Rejection | Promise<EventType | Rejection> {
    return 'typeId' in reference
      ? foundOr(UNKNOWN, this.#byId.get(`${appId} ${reference.typeId}`))
      : foundOr(this.#tooMany, this.#byName.get(`${appId} ${reference.typeName}`));
  }

  get caches(): readonly CacheStats[] {
    return [this.#byId, this.#byName];
  }

  /** Forgets every type: one of them has changed. */
  dropAll(): void {
    this.#byId.dropAll();
    this.#byName.dropAll();
    this.#counts.clear();
  }

  /** Asks for everything again: changes may have been missed. */
  invalidateAll(): void {
    this.#byId.invalidateAll();
    this.#byName.invalidateAll();
    this.#counts.clear();
  }

  async #loadById(key: string): Promise<EventType | null> {
    const [appId, publicId] = splitKey(key);
    // A NUL can be in no identifier, and PostgreSQL takes none in a text.
    if (publicId.includes('\0')) return null;
    const [row] = await this.#options.sql<StoredType[]>`
      SELECT id, public_id AS "publicId" FROM event_types WHERE public_id = ${publicId} AND app_id = ${appId}`;
    return row === undefined ? null : eventType(row);
  }

  async #loadByName(key: string): Promise<EventType | null> {
    const found = await this.#names.get(key);
    if (found !== null) return eventType(found);
    const type = await this.#creation.add(...splitKey(key));
    if (type instanceof Rejection) throw new Refused(type);
    return type === 'too-many' ? null : eventType(type);
  }

  /** Ten thousand names of one batch are a few statements. */
  async #findByNames(keys: readonly string[]): Promise<ReadonlyMap<string, StoredType>> {
    const split = keys.map(splitKey);
    const rows = await this.#options.sql<(StoredType & { appId: number; name: string })[]>`
      SELECT type.id, type.public_id AS "publicId", type.app_id AS "appId", type.name
        FROM unnest(${split.map(([appId]) => appId)}::int[], ${split.map(([, name]) => name)}::text[])
               AS asked (app_id, name)
        JOIN event_types AS type USING (app_id, name)`;
    return new Map(rows.map((row) => [`${row.appId} ${row.name}`, row]));
  }
}

/** A lookup that ends in a refusal, which is not remembered. */
class Refused extends Error {
  readonly rejection: Rejection;

  constructor(rejection: Rejection) {
    super(rejection.details);
    this.rejection = rejection;
  }
}

function eventType({ id, publicId }: StoredType): EventType {
  const escaped = (character: string): string =>
    `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return { id, publicId, publicIdJson: JSON.stringify(publicId).replace(/[^ -~]/g, escaped) };
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
