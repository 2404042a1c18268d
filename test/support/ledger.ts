/** Producers that keep a ledger of what they were told, to be compared with the table. */
import type { Sql } from '../../src/storage/database/connect.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { HttpConnection, type HttpRequest, request } from './http-client.ts';

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

/** An event of a {@link KeyedLedger}. */
export interface KeyedEvent {
  /** Its key, and the number in its payload. */
  readonly n: number;
  readonly typeName: string;
  /** Of the past; null: of now, with an `Idempotency-Key`. */
  readonly at: number | null;
  /** Whether an event of the past has a key: without one it is sent once alone. */
  readonly hasKey: boolean;
}

/** A producer that sends each event until it is acknowledged, as queues of clients do: what it has sent is stored, once. */
export class KeyedLedger {
  /** Acknowledged, in that order. */
  readonly events: KeyedEvent[] = [];
  readonly #loggingToken: string;
  /** Where the server is now; null while it is known to be down. */
  readonly #port: () => number | null;

  constructor(options: { loggingToken: string; port: () => number | null }) {
    this.#loggingToken = options.loggingToken;
    this.#port = options.port;
  }

  get numbers(): number[] {
    return this.events.map(({ n }) => n).sort((a, b) => a - b);
  }

  async send(
    typeName: string,
    at: number | null,
    { n = this.events.length + 1, hasKey = true }: { readonly n?: number; readonly hasKey?: boolean } = {},
  ): Promise<void> {
    const event = { n, typeName, at, hasKey };
    await this.repeat(event);
    this.events.push(event);
  }

  /** The same request again, to the byte. */
  async repeat(event: KeyedEvent): Promise<void> {
    for (;;) {
      const port = this.#port();
      const response = port === null ? null : await request(port, this.#requestOf(event)).catch(() => null);
      if (response?.status === 200 || response?.status === 201) return;
      if (response !== null && response.status !== 503 && response.status !== 207)
        throw new Error(`The event ${event.n} is refused: ${response.body}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  #requestOf({ n, typeName, at, hasKey }: KeyedEvent): HttpRequest {
    const [token, payload] = [this.#loggingToken, { n }];
    if (at === null)
      return {
        ...{ method: 'POST', path: '/public/create_event', headers: { 'Idempotency-Key': `key-${n}` } },
        body: JSON.stringify({ loggingToken: token, typeName, payload }),
      };
    const event = {
      typeName,
      payload,
      createdAt: new Date(at).toISOString(),
      ...(hasKey && { key: `key-${n}` }),
    };
    return {
      ...{ method: 'POST', path: '/v1/events', headers: { Authorization: `Bearer ${token}` } },
      body: JSON.stringify({ events: [event] }),
    };
  }
}
