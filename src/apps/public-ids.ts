/** Maps public identifiers of apps and event types to internal integer ids. */
import { BatchedCache, type LookupQueue } from '../cache/batched-lookup.ts';
import type { CacheStats, LookupOptions } from '../cache/lookup-cache.ts';
import type { Sql } from '../storage/database/connect.ts';

interface EventType {
  readonly id: number;
  readonly appId: number;
}

const MAX_APPS = 10_000;
const MAX_TYPES = 50_000;
const MAX_UNKNOWN = 10_000;

/** Longer texts are neither looked up nor cached. */
const MAX_ID_LENGTH = 200;

export class PublicIds {
  readonly #apps: BatchedCache<number>;
  readonly #types: BatchedCache<EventType>;

  constructor({ sql, cacheMs, now, outage }: LookupOptions) {
    const common = { maxNegatives: MAX_UNKNOWN, ttlMs: cacheMs, now, outage };
    this.#apps = new BatchedCache((publicIds) => findApps(sql, publicIds), { ...common, max: MAX_APPS });
    this.#types = new BatchedCache((publicIds) => findTypes(sql, publicIds), { ...common, max: MAX_TYPES });
  }

  /** @returns the app's internal id; null if there is no such app */
  async appId(publicId: string): Promise<number | null> {
    return canExist(publicId) ? await this.#apps.get(publicId) : null;
  }

  /** @returns the type's internal id; null if the app has no such type */
  async typeId(appId: number, publicId: string): Promise<number | null> {
    const type = canExist(publicId) ? await this.#types.get(publicId) : null;
    return type?.appId === appId ? type.id : null;
  }

  get caches(): readonly CacheStats[] {
    return [this.#apps, this.#types];
  }

  get queues(): Readonly<Record<'apps', readonly LookupQueue[]>> {
    return { apps: [this.#apps.queue, this.#types.queue] };
  }

  /** Drops all cached ids after a change of an app or a type. */
  dropAll(): void {
    this.#apps.dropAll();
    this.#types.dropAll();
  }
}

/** PostgreSQL's text type cannot store NUL, and a query with it fails. */
function canExist(publicId: string): boolean {
  return publicId.length <= MAX_ID_LENGTH && !publicId.includes('\0');
}

async function findApps(sql: Sql, publicIds: readonly string[]): Promise<ReadonlyMap<string, number>> {
  const rows = await sql<{ id: number; publicId: string }[]>`
    SELECT id, public_id AS "publicId" FROM apps WHERE public_id = ANY(${[...publicIds]}::text[])`;
  return new Map(rows.map(({ id, publicId }) => [publicId, id]));
}

async function findTypes(sql: Sql, publicIds: readonly string[]): Promise<ReadonlyMap<string, EventType>> {
  const rows = await sql<(EventType & { publicId: string })[]>`
    SELECT id, app_id AS "appId", public_id AS "publicId"
      FROM event_types WHERE public_id = ANY(${[...publicIds]}::text[])`;
  return new Map(rows.map(({ publicId, ...type }) => [publicId, type]));
}
