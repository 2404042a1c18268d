/** Batches of events, sent and read back. */
import { expect } from 'vitest';
import type { HttpResponse } from './http-client.ts';
import type { TestService } from './service.ts';

export const EVENTS = '/v1/events';

export interface BatchResult {
  readonly eventId?: string;
  readonly typeId?: string;
  readonly timestamp?: string;
  readonly repeated?: true;
  readonly error?: string;
  readonly details?: string;
  readonly code?: string;
}

export interface BatchAnswer {
  readonly success: boolean;
  readonly stored: number;
  readonly refused: number;
  readonly results: readonly BatchResult[];
}

/** POST /v1/events with the service's own app's token, unless the headers say otherwise. */
export function postBatch(
  service: TestService,
  body: string | Buffer | readonly unknown[],
  headers: Readonly<Record<string, string | null>> = {},
): Promise<HttpResponse> {
  const isEvents = typeof body !== 'string' && !Buffer.isBuffer(body);
  return service.request({
    method: 'POST',
    path: EVENTS,
    // Hundreds of partitions are made for some of them, on a machine that does other things too.
    timeoutMs: 90_000,
    body: isEvents ? JSON.stringify({ events: body }) : body,
    headers: { Authorization: `Bearer ${service.app.loggingToken}`, ...headers },
  });
}

/** Asserts what every answer to a batch is; gives it. */
export function answered(response: HttpResponse): BatchAnswer {
  const answer: BatchAnswer = JSON.parse(response.body);
  const stored = answer.results.filter((result) => result.eventId !== undefined).length;
  const refused = answer.results.length - stored;
  expect({
    status: response.status,
    success: answer.success,
    stored: answer.stored,
    refused: answer.refused,
  }).toEqual({ status: refused === 0 ? 200 : 207, success: refused === 0, stored, refused });
  return answer;
}

/** The ids of all that is stored of the service's app, in the order of the table. */
export async function storedIds({ sql, app }: Pick<TestService, 'sql' | 'app'>): Promise<string[]> {
  const rows = await sql<{ id: string }[]>`
    SELECT events.id::text AS id FROM events JOIN apps ON apps.id = app_id
     WHERE public_id = ${app.appId} ORDER BY events.created_at, events.id`;
  return rows.map(({ id }) => id);
}
