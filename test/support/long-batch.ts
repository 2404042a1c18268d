/** A client that sends the lines of a long batch piece by piece, and reads while it sends. */
import { type ClientRequest, type IncomingHttpHeaders, request } from 'node:http';
import { checkAnswer } from './described.ts';
import type { TestApp } from './service.ts';

/** Limits that little data is beyond. */
export const LONG_BATCH_LIMITS = {
  CREATE_LIMIT_PER_MINUTE: 1_000_000,
  MAX_BATCH_BYTES: 100_000,
  MAX_BODIES_BYTES: 4_000_000,
  MAX_BODY_BYTES: 20_000,
  MAX_STREAM_BYTES: 3_000_000,
} as const;

export interface LongAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  /** Whether the response has its end; else its connection was closed before. */
  readonly isWhole: boolean;
}

export class LongBatch {
  readonly #request: ClientRequest;
  readonly answer: Promise<LongAnswer>;
  /** What of the response has arrived. */
  received = '';

  /** @param headers beside the usual ones; without a Content-Length the body is chunked */
  constructor(port: number, app: TestApp, headers: Readonly<Record<string, string | number>> = {}) {
    this.#request = request({
      port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/v1/events',
      agent: false,
      headers: {
        Authorization: `Bearer ${app.loggingToken}`,
        'Content-Type': 'application/x-ndjson',
        ...headers,
      },
    });
    this.answer = new Promise((resolve, reject) => {
      let hasAnswer = false;
      this.#request.on('error', (error) => {
        if (!hasAnswer) reject(error);
      });
      this.#request.on('response', (response) => {
        hasAnswer = true;
        response.setEncoding('utf8');
        response.on('data', (text: string) => {
          this.received += text;
        });
        response.on('error', () => undefined); // 'close' follows.
        response.on('close', () => {
          const answer = {
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: this.received,
            isWhole: response.complete,
          };
          resolve(answer);
        });
      });
    });
    // A test that does not wait for it must not fail by it.
    this.answer.catch(() => undefined);
  }

  /** Sends a piece; resolves when there is room for more. */
  async send(piece: string | Buffer): Promise<void> {
    if (this.#request.write(piece) || this.#request.destroyed) return;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        for (const event of ['drain', 'close']) this.#request.off(event, done);
        resolve();
      };
      for (const event of ['drain', 'close']) this.#request.on(event, done);
    });
  }

  /** Ends the body. The response is held to the API's description. */
  async end(): Promise<LongAnswer> {
    this.#request.end();
    return await this.described();
  }

  /** The response, without an end of the body. */
  async described(): Promise<LongAnswer> {
    const answer = await this.answer;
    const headers = Object.fromEntries(
      Object.entries(answer.headers).map(([name, value]) => [name, String(value)]),
    );
    checkAnswer({ method: 'POST', path: '/v1/events' }, { ...answer, headers });
    return answer;
  }

  /** Closes the connection. */
  cut(): void {
    this.#request.destroy();
  }
}

export interface LongCounts {
  readonly success: boolean;
  readonly stored: number;
  readonly refused: number;
  readonly errors: readonly { readonly index: number; readonly details: string; readonly code: string }[];
  /** Of a refusal. */
  readonly resumeAt?: number;
  readonly code?: string;
  readonly details?: string;
}
