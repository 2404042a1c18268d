/** Common parts of the servers that the service is compared with: how they receive the database's address and report that they listen. */

import { digestOf } from '../../src/base/token-text.ts';
import type { Sql } from '../../src/storage/database/connect.ts';

/** How to reach the embedded PostgreSQL, by its Unix socket. */
export interface SocketAddress {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly database: string;
}

/** The address that the bench has passed on. */
export function databaseAddress(): SocketAddress {
  return JSON.parse(process.env.BENCH_DATABASE ?? 'null');
}

/** The line that the bench waits for. A stop is a signal: nothing here has anything to drain once its load has ended. */
export function announcePort(port: number): void {
  process.stdout.write(`listening ${port}\n`);
  process.once('SIGTERM', () => process.exit(0));
}

/** The same checks as the service makes, by the same tables, kept in memory once they were looked up. */
export class Registry {
  readonly #sql: Sql;
  readonly #apps = new Map<string, number | null>();
  readonly #types = new Map<string, number | null>();

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** @returns the app's internal id; null where the token is not valid */
  async appOf(loggingToken: string): Promise<number | null> {
    const known = this.#apps.get(loggingToken);
    if (known !== undefined) return known;
    const [row] = await this.#sql<{ id: number }[]>`
      SELECT app_id AS id FROM logging_tokens WHERE digest = ${digestOf(loggingToken)}`;
    this.#apps.set(loggingToken, row?.id ?? null);
    return row?.id ?? null;
  }

  /** @returns the type's internal id; null where the app has no such type */
  async typeOf(appId: number, typeId: string): Promise<number | null> {
    const known = this.#types.get(typeId);
    if (known !== undefined) return known;
    const [row] = await this.#sql<{ id: number }[]>`
      SELECT id FROM event_types WHERE public_id = ${typeId} AND app_id = ${appId}`;
    this.#types.set(typeId, row?.id ?? null);
    return row?.id ?? null;
  }
}

/** An event on its way into a rival's table. */
export interface RivalEvent {
  readonly id: string;
  readonly appId: number;
  readonly typeId: number;
  readonly createdAt: Date;
  /** JSON text. */
  readonly payload: string;
  /** As the producer named the type, for the answer. */
  readonly publicTypeId: string;
}

export const REFUSED = {
  success: false,
  error: 'Refused',
  details: 'A check of the bench refused it.',
} as const;

/** Parses a body and makes the checks. @returns null where one of them fails */
export async function checkedEvent(registry: Registry, text: string, id: string): Promise<RivalEvent | null> {
  let body: { loggingToken?: unknown; typeId?: unknown; payload?: unknown };
  try {
    body = JSON.parse(text);
  } catch {
    return null;
  }
  const { loggingToken, typeId: publicTypeId, payload } = body;
  if (typeof loggingToken !== 'string' || typeof publicTypeId !== 'string') return null;
  if (typeof payload !== 'object' || payload === null || Array.isArray(payload)) return null;
  const appId = await registry.appOf(loggingToken);
  const typeId = appId === null ? null : await registry.typeOf(appId, publicTypeId);
  if (appId === null || typeId === null) return null;
  return { id, appId, typeId, createdAt: new Date(), payload: JSON.stringify(payload), publicTypeId };
}

/** The answer, as long as the service's. */
export function createdAnswer(event: Pick<RivalEvent, 'id' | 'createdAt' | 'publicTypeId'>): object {
  return {
    success: true,
    eventId: event.id,
    typeId: event.publicTypeId,
    timestamp: event.createdAt.toISOString(),
    message: 'Event created',
  };
}
