/** What the answers of the contract look like. Each of these asserts and gives back what it found. */
import { expect } from 'vitest';
import type { HttpResponse } from '../support/http-client.ts';

/** What every error body is, and nothing else. */
interface ErrorBody {
  readonly success: false;
  readonly error: string;
  readonly details: string;
  readonly code: string;
  readonly param?: string;
  /** Where the service explains the code. */
  readonly docs: string;
}

/** Asserts the contract's error body and the headers of every answer; gives the body. */
export function refused(response: HttpResponse, status: number, code: string, error: string): ErrorBody {
  const body: ErrorBody = JSON.parse(response.body);
  const { param, ...others } = body;
  expect({ status: response.status, ...others, details: typeof body.details }).toEqual({
    status,
    success: false,
    error,
    details: 'string',
    code,
    docs: `/docs/errors#${code}`,
  });
  // Of a refusal of one field its name is in the sentence, too.
  expect(body.details).toContain(param ?? '');
  expect(body.details).not.toBe('');
  expectCommonHeaders(response);
  return body;
}

export function expectCommonHeaders({ headers }: HttpResponse): void {
  expect(headers['content-type']).toBe('application/json');
  expect(headers['x-content-type-options']).toBe('nosniff');
  expect(headers['cache-control']).toBe('no-store');
  expect(headers['x-request-id']).toMatch(/^[\w-]+$/);
}

export function invalidBody(response: HttpResponse): string {
  return refused(response, 400, 'INVALID_REQUEST', 'Invalid request body').details;
}

export function created(response: HttpResponse): { eventId: string; typeId: string; timestamp: string } {
  expect(response.body).toMatch(/^\{"success":true,/);
  expect(response.status).toBe(201);
  return JSON.parse(response.body);
}
