/** Producers that keep a ledger of what they were told, to be compared with the table. */
import type { Sql } from '../../src/storage/database/connect.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { HttpConnection } from './http-client.ts';

/** What a producer knows of one event. */
type Told =
  /** 201: it is stored, under this id. */
  | { readonly state: 'acknowledged'; readonly eventId: string }
  /** Any other answer: it is not stored. */
  | { readonly state: 'refused' }
  /** No answer, or OUTCOME_UNKNOWN: it may be stored. */
  | { readonly state: 'unknown' };

export interface Comparison {
  readonly acknowledgedAndMissing: number;
  readonly storedTwice: number;
  readonly storedAndRefused: number;
  readonly storedAndNeverSent: number;
  /** Rows and the sum of the counts that readers add up. */
  readonly miscounted: number;
}

/** The events of all apps as readers count them, whatever the engine. */
async function countedEvents(sql: Sql): Promise<number> {
  const reader = (await openStorage(sql)).reader(sql);
  let sum = 0;
  for (const { id } of await sql<{ id: number }[]>`SELECT id FROM apps`)
    sum += (await reader.appSpan(id)).total;
  return sum;
}

export class Ledger {
  readonly #told = new Map<string, Told>();
  readonly #producers: Promise<void>[] = [];
  readonly #loggingToken: string;
  readonly #typeName: string;
  /** Where the server is now; null while it is known to be down. */
  readonly #port: () => number | null;
  #stopping = false;
  #acknowledged = 0;
  #inFlight = 0;
  /** Requests that were on their way when nothing more was to be sent, and got no answer. */
  #unanswered = 0;
  #statuses = new Map<number, number>();

  constructor(options: { loggingToken: string; typeName: string; port: () => number | null }) {
    this.#loggingToken = options.loggingToken;
    this.#typeName = options.typeName;
    this.#port = options.port;
  }

  get acknowledged(): number {
    return this.#acknowledged;
  }

  /** Requests without an answer yet. */
  get inFlight(): number {
    return this.#inFlight;
  }

  get unanswered(): number {
    return this.#unanswered;
  }

  /** How often each status was answered. */
  get statuses(): ReadonlyMap<number, number> {
    return this.#statuses;
  }

  /** Producers that post one event after the other, each on a connection of its own. */
  start(producers: number): void {
    for (let more = producers; more > 0; more -= 1)
      this.#producers.push(this.#produce(this.#producers.length));
  }

  /** Sends nothing more; resolves when every request has its answer, or none will come. */
  async stop(): Promise<void> {
    this.#stopping = true;
    await Promise.all(this.#producers);
  }

  async #produce(producer: number): Promise<void> {
    let connection: HttpConnection | null = null;
    for (let sequence = 0; !this.#stopping; ) {
      const port = this.#port();
      connection ??= port === null ? null : await HttpConnection.open(port).catch(() => null);
      if (connection === null) {
        await new Promise((resolve) => setTimeout(resolve, 10));
        continue;
      }
      const key = `${producer}-${sequence}`;
      sequence += 1;
      const isOpen = await this.#post(connection, key);
      if (isOpen) continue;
      connection.destroy();
      connection = null;
    }
    connection?.destroy();
  }

  /** @returns whether the connection can be used again */
  async #post(connection: HttpConnection, key: string): Promise<boolean> {
    this.#told.set(key, { state: 'unknown' });
    this.#inFlight += 1;
    try {
      const payload = `{"key":"${key}","filler":"${'x'.repeat(100)}"}`;
      const body = `{"loggingToken":"${this.#loggingToken}","typeName":"${this.#typeName}","payload":${payload}}`;
      await connection.send({ method: 'POST', path: '/public/create_event', body });
      const { status, headers, body: answer } = await connection.response();
      this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + 1);
      const { eventId, code }: { eventId?: string; code?: string } = JSON.parse(answer);
      if (status === 201 && eventId !== undefined) {
        this.#acknowledged += 1;
        this.#told.set(key, { state: 'acknowledged', eventId });
      } else if (code !== 'OUTCOME_UNKNOWN') {
        this.#told.set(key, { state: 'refused' });
      }
      return headers.connection !== 'close';
    } catch {
      if (this.#stopping) this.#unanswered += 1;
      return false;
    } finally {
      this.#inFlight -= 1;
    }
  }

  async compare(sql: Sql): Promise<Comparison> {
    // Types and events may be on different servers of a cluster.
    const types = await sql<{ id: number }[]>`SELECT id FROM event_types WHERE name = ${this.#typeName}`;
    const rows = await sql<{ id: string; key: string }[]>`
      SELECT id::text, payload ->> 'key' AS key FROM events WHERE type_id = ANY(${types.map(({ id }) => id)})`;
    const [table] = await sql<{ stored: number }[]>`SELECT count(*)::int AS stored FROM events`;
    const counted = await countedEvents(sql);
    const idsByKey = new Map<string, Set<string>>();
    for (const { key, id } of rows) idsByKey.set(key, (idsByKey.get(key) ?? new Set()).add(id));
    const keys = [...this.#told];
    return {
      acknowledgedAndMissing: keys.filter(
        ([key, told]) => told.state === 'acknowledged' && idsByKey.get(key)?.has(told.eventId) !== true,
      ).length,
      storedTwice: rows.length - idsByKey.size,
      storedAndRefused: keys.filter(([key, told]) => told.state === 'refused' && idsByKey.has(key)).length,
      storedAndNeverSent: [...idsByKey.keys()].filter((key) => !this.#told.has(key)).length,
      miscounted: Math.abs(counted - (table?.stored ?? 0)),
    };
  }
}
