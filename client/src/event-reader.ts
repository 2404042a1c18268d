/** Reads events and counts with a resource token. */
import { isRetryable, Pause, pauseMs } from './retry.ts';
import { errorOf, type JsonObject, TidemarkError } from './tidemark-error.ts';

export interface EventReaderOptions {
  /** Address of the service, such as `https://events.example.com`. */
  readonly url: string;
  readonly resourceToken: string;
  /** How long a response is waited for, in milliseconds. Default: 60,000. */
  readonly timeoutMs?: number;
  /** Tries of a request before its failure is thrown. Default: 10. */
  readonly tries?: number;
}

/** Which events; times are dates or ISO 8601, `to` is exclusive. */
interface Scope {
  readonly typeId?: string | readonly string[];
  readonly typeName?: string | readonly string[];
  readonly from?: Date | string;
  readonly to?: Date | string;
}

export interface EventsQuery extends Scope {
  /** By `createdAt`, then `id`. Default: `asc`. */
  readonly order?: 'asc' | 'desc';
  /** Such as `user.id:42`; several must all match. */
  readonly filter?: string | readonly string[];
  /** A substring of the payload's text. */
  readonly q?: string;
  /** Events of a page, 1 to 1,000. Default: 1,000. */
  readonly limit?: number;
  /** Where an earlier read ended: the `cursor` of a page. */
  readonly cursor?: string;
}

export interface SeriesQuery extends Scope {
  readonly interval?: '1m' | '5m' | '15m' | '1h' | '3h' | '6h' | '12h' | '1d' | '7d' | '1M' | 'auto';
  /** IANA time zone. Default: UTC. */
  readonly timezone?: string;
}

export interface StoredEvent {
  readonly id: string;
  readonly typeId: string;
  readonly payload: JsonObject;
  /** ISO 8601. */
  readonly createdAt: string;
}

export interface Bucket {
  /** ISO 8601; `end` is exclusive. */
  readonly start: string;
  readonly end: string;
  readonly count: number;
  /** Present if only a part of the bucket lies between `from` and `to`. */
  readonly partial?: true;
}

interface EventsPage {
  readonly events: readonly StoredEvent[];
  readonly pagination: { readonly nextCursor?: string };
}

interface SeriesPage {
  readonly series: readonly Bucket[];
  readonly interval: string;
  readonly from: string;
  readonly to: string;
}

/** Milliseconds of a bucket at least. */
const WIDTH_MS: Readonly<Record<string, number>> = {
  '1m': 60_000,
  '5m': 300_000,
  '15m': 900_000,
  '1h': 3_600_000,
  '3h': 10_800_000,
  '6h': 21_600_000,
  '12h': 43_200_000,
  '1d': 86_400_000,
  '7d': 604_800_000,
  '1M': 28 * 86_400_000,
};
/** Below the service's limit of 1,000: hours and days are shorter and longer where the clock changes. */
const BUCKETS = 900;

export class EventReader {
  readonly #options: Required<EventReaderOptions>;

  constructor(options: EventReaderOptions) {
    this.#options = { timeoutMs: 60_000, tries: 10, ...options };
  }

  /** The events of an app, page by page behind the scenes. */
  async *events(appId: string, query: EventsQuery = {}): AsyncGenerator<StoredEvent, void, undefined> {
    let cursor = query.cursor;
    do {
      const page: EventsPage = await this.#get(`/v1/apps/${encodeURIComponent(appId)}/events`, {
        limit: 1_000,
        ...query,
        cursor,
      });
      yield* page.events;
      cursor = page.pagination.nextCursor;
    } while (cursor !== undefined);
  }

  /**
   * Counts by bucket, however many there are. A series of more than 1,000 buckets is read in several requests, each exact at
   * its own time.
   */
  async *series(appId: string, query: SeriesQuery = {}): AsyncGenerator<Bucket, void, undefined> {
    const path = `/v1/apps/${encodeURIComponent(appId)}/series`;
    const { interval = 'auto' } = query;
    const width = WIDTH_MS[interval];
    if (width === undefined) {
      yield* (await this.#get<SeriesPage>(path, { ...query, interval })).series;
      return;
    }
    const ends =
      query.from === undefined ? await this.#get<SeriesPage>(path, { ...query, interval: 'auto' }) : null;
    const to = time(query.to ?? ends?.to ?? new Date());
    for (let from = time(query.from ?? ends?.from ?? to); ; ) {
      const until = Math.min(from + BUCKETS * width, to);
      const range = { from: new Date(from), to: new Date(until) };
      const { series } = await this.#get<SeriesPage>(path, { ...query, interval, ...range });
      const last = series.at(-1);
      if (until === to || last === undefined) {
        yield* series;
        return;
      }
      // The last bucket may be cut off: it begins the next part.
      yield* series.slice(0, -1);
      from = Date.parse(last.start);
    }
  }

  async #get<Data>(path: string, query: object): Promise<Data> {
    const url = new URL(path, this.#options.url);
    for (const [name, value] of Object.entries(query) as [string, unknown][])
      for (const one of Array.isArray(value) ? value : [value])
        if (one !== undefined)
          url.searchParams.append(name, one instanceof Date ? one.toISOString() : String(one));
    for (let failures = 1; ; failures += 1) {
      const outcome = await this.#try<Data>(url);
      if ('data' in outcome) return outcome.data;
      const { error, retryAfter } = outcome;
      const status = error instanceof TidemarkError ? error.status : 0;
      if (!isRetryable(status) || failures >= this.#options.tries) throw error;
      await new Pause().wait(pauseMs(failures, retryAfter));
    }
  }

  async #try<Data>(
    url: URL,
  ): Promise<{ readonly data: Data } | { readonly error: Error; readonly retryAfter: string | null }> {
    let retryAfter: string | null = null;
    try {
      const response = await fetch(url, {
        headers: { Authorization: `Bearer ${this.#options.resourceToken}` },
        signal: AbortSignal.timeout(this.#options.timeoutMs),
        redirect: 'error',
      });
      retryAfter = response.headers.get('retry-after');
      const body: unknown = await response.json().catch((error: unknown) => {
        if (response.ok) throw error;
        return null;
      });
      if (!response.ok) return { error: errorOf(response.status, body), retryAfter };
      return { data: (body as { readonly data: Data }).data };
    } catch (error) {
      return { error: error as Error, retryAfter };
    }
  }
}

function time(value: Date | string | number): number {
  const ms = new Date(value).getTime();
  if (Number.isNaN(ms)) throw new RangeError(`${String(value)} is not a time.`);
  return ms;
}
