/** Maps public identifiers of apps and event types to internal integer ids. */
import type { Sql } from '../storage/connect.ts';
import { type CacheStats, LookupCache, type LookupOutage } from '../storage/lookup-cache.ts';

export interface PublicIdsOptions {
  readonly sql: Sql;
  /** Longest time in milliseconds that a cached answer is used without a query. */
  readonly cacheMs: number;
  readonly now: () => number;
  readonly outage?: LookupOutage | undefined;
}

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
  readonly #apps: LookupCache<number>;
  readonly #types: LookupCache<EventType>;

  constructor({ sql, cacheMs, now, outage }: PublicIdsOptions) {
    const common = { maxNegatives: MAX_UNKNOWN, ttlMs: cacheMs, now, outage };
    this.#apps = new LookupCache({ ...common, max: MAX_APPS, load: (publicId) => findApp(sql, publicId) });
    this.#types = new LookupCache({ ...common, max: MAX_TYPES, load: (publicId) => findType(sql, publicId) });
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

async function findApp(sql: Sql, publicId: string): Promise<number | null> {
  const [app] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${publicId}`;
  return app?.id ?? null;
}

async function findType(sql: Sql, publicId: string): Promise<EventType | null> {
  const [type] = await sql<EventType[]>`
    SELECT id, app_id AS "appId" FROM event_types WHERE public_id = ${publicId}`;
  return type ?? null;
}
