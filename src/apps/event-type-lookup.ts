/** An event's type, by the id or the name that its producer sent; a new name makes a new type. */

import { Rejection } from '../errors.ts';
import type { Sql } from '../storage/connect.ts';
import { type CacheStats, LookupCache, type LookupOutage } from '../storage/lookup-cache.ts';
import { getOrCreateEventType, type StoredType, TypeCounts, type TypeReference } from './event-types.ts';

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
  readonly cacheMs: number;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
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

  constructor(options: EventTypesOptions) {
    this.#options = options;
    const limit = options.maxTypesPerApp;
    this.#tooMany = new Rejection('tooManyEventTypes', `An app may have at most ${limit} event types.`);
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
    const [appId, name] = splitKey(key);
    const maxTypes = this.#options.maxTypesPerApp;
    const type = await getOrCreateEventType(this.#options.sql, {
      appId,
      name,
      maxTypes,
      counts: this.#counts,
    });
    return type === 'too-many' ? null : eventType(type);
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
  return found instanceof Promise ? found.then((type) => type ?? refusal) : (found ?? refusal);
}

function splitKey(key: string): readonly [appId: number, rest: string] {
  const space = key.indexOf(' ');
  return [Number(key.slice(0, space)), key.slice(space + 1)];
}
