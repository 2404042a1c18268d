/** Sends one message to a webhook: Standard Webhooks 1.0.0 (https://www.standardwebhooks.com). */
import { createHmac, createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import {
  type ClientRequest,
  Agent as HttpAgent,
  type IncomingHttpHeaders,
  request as requestHttp,
} from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import { isIP } from 'node:net';
import { MOST_WORD_CHARACTERS, shownWords } from '../base/shown-words.ts';
import { deadline } from '../base/timeout.ts';
import { errorCode } from '../storage/database/connect.ts';
import { ForbiddenAddress, hostOf, isPublicAddress, Names } from './addresses.ts';

export interface Message {
  /** Id of the message, which every try repeats. */
  readonly id: string;
  readonly type: string;
  /** JSON. */
  readonly body: string;
}

export interface Answer {
  /** Null where there was no answer. */
  readonly status: number | null;
  /** What went wrong; null: nothing. */
  readonly problem: string | null;
  /** The beginning of the answer's body; empty where it has none, or nothing was wrong and nobody asked for it. */
  readonly text: string;
  /** Delay in `Retry-After`; null where the answer has none. */
  readonly retryAfterMs: number | null;
  readonly ms: number;
}

/** From the start of the connection to the end of the answer's head. */
const TIMEOUT_MS = 15_000;
/** What is read of an answer's body, so that its connection can be used again. */
const MOST_ANSWER_BYTES = 65_536;
/** How long that is waited for which is shown of a body, after the head. */
const TEXT_TIMEOUT_MS = 2_000;
/** Messages to a receiver at once, where their order does not matter: so many connections to it are kept. */
export const IN_FLIGHT = 8;
const SECRET_PREFIX = 'whsec_';
const SECRET_BYTES = 32;
/** Between two tries, whatever a receiver asks for. */
export const LONGEST_WAIT_MS = 86_400_000;

export function newWebhookSecret(): string {
  return SECRET_PREFIX + randomBytes(SECRET_BYTES).toString('base64');
}

/** What a secret signs with. */
export function signingKey(secret: string): KeyObject {
  return createSecretKey(Buffer.from(secret.slice(SECRET_PREFIX.length), 'base64'));
}

/** The header `webhook-signature`: one signature for each key. @param seconds since 1970 */
function signatureOf({ id, body }: Message, keys: readonly KeyObject[], seconds: number): string {
  const signed = `${id}.${seconds}.${body}`;
  return keys.map((key) => `v1,${createHmac('sha256', key).update(signed).digest('base64')}`).join(' ');
}

/** A connection that was used before, and ended before it was answered on. */
class ClosedMeanwhile extends Error {}

const CLOSED: ReadonlySet<string> = new Set(['ECONNRESET', 'EPIPE']);

/** Connections to receivers. They are kept open for a while. */
export class Poster {
  readonly #allowPrivate: boolean;
  readonly #now: () => number;
  readonly #http: HttpAgent;
  readonly #https: HttpsAgent;
  readonly #names: Names;

  /** @param options.nameServers by default those of the system */
  constructor(options: {
    readonly allowPrivate: boolean;
    readonly now: () => number;
    readonly nameServers?: readonly string[];
  }) {
    this.#allowPrivate = options.allowPrivate;
    this.#now = options.now;
    // Callers bound what is in flight. A limit by host would let a silent path of a host delay the others.
    const agent = { keepAlive: true, maxFreeSockets: IN_FLIGHT, timeout: 60_000 };
    this.#http = new HttpAgent(agent);
    this.#https = new HttpsAgent(agent);
    this.#names = new Names(options.allowPrivate, options.nameServers);
  }

  close(): void {
    this.#names.close();
    this.#http.destroy();
    this.#https.destroy();
  }

  /** Sends a message once. Never rejects. @param options.isTest whether its answer is shown though nothing is wrong */
  async send(
    url: string,
    message: Message,
    keys: readonly KeyObject[],
    { isTest = false } = {},
  ): Promise<Answer> {
    const seconds = Math.floor(this.#now() / 1_000);
    const headers = {
      'webhook-id': message.id,
      'webhook-timestamp': String(seconds),
      'webhook-signature': signatureOf(message, keys, seconds),
    };
    return await this.post(url, message.body, headers, isTest);
  }

  /** Posts JSON. Only a status of 200 to 299 is a success: a redirect is not followed. */
  async post(
    url: string,
    body: string,
    headers: Readonly<Record<string, string>>,
    isTest = false,
  ): Promise<Answer> {
    const startedAt = performance.now();
    const exchange = () => this.#exchange(new URL(url), body, headers, isTest);
    const failed = (error: unknown): Omit<Answer, 'ms'> => {
      return { status: null, problem: problemOf(error), text: '', retryAfterMs: null };
    };
    const answer = await exchange().catch((error: unknown) =>
      // The receiver has closed a connection that it had kept open: that is no failure of its own.
      error instanceof ClosedMeanwhile ? exchange().catch(failed) : failed(error),
    );
    return { ...answer, ms: Math.round(performance.now() - startedAt) };
  }

  async #exchange(
    url: URL,
    body: string,
    headers: Readonly<Record<string, string>>,
    isTest: boolean,
  ): Promise<Omit<Answer, 'ms'>> {
    const host = hostOf(url);
    // An address is not looked up.
    if (!this.#allowPrivate && isIP(host) !== 0 && !isPublicAddress(host)) throw new ForbiddenAddress(host);
    return await new Promise((resolve, reject) => {
      const isTls = url.protocol === 'https:';
      const options = {
        method: 'POST',
        agent: isTls ? this.#https : this.#http,
        headers: {
          ...headers,
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          'user-agent': 'Tidemark-Webhooks',
          'accept-encoding': 'identity',
        },
        lookup: this.#names.lookup,
      };
      const request: ClientRequest = (isTls ? requestHttps : requestHttp)(url, options);
      let hasTimedOut = false;
      const end = deadline(TIMEOUT_MS, () => {
        hasTimedOut = true;
        request.destroy(new Error(`no answer within ${TIMEOUT_MS / 1_000} s`));
      });
      request.on('error', (error) => {
        end();
        const isOfEarlier = request.reusedSocket && CLOSED.has(errorCode(error));
        reject(isOfEarlier && !hasTimedOut ? new ClosedMeanwhile(error.message, { cause: error }) : error);
      });
      request.on('response', (response) => {
        end();
        response.on('error', () => undefined);
        const status = response.statusCode ?? 0;
        const retryAfterMs = retryAfterOf(response.headers['retry-after'], this.#now());
        let bytes = 0;
        let head = NOTHING;
        let isFinished = false;
        const finish = (): void => {
          if (isFinished) return;
          isFinished = true;
          isRead?.();
          const text = head.length === 0 ? '' : shownWords(textOf(head, response.headers));
          resolve({ status, problem: problemOfStatus(status, text), text, retryAfterMs });
        };
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length;
          // A character has at most four bytes.
          const isShort = head.length < 4 * MOST_WORD_CHARACTERS;
          if (isFinished) head = NOTHING;
          else if (isShort) head = Buffer.concat([head, chunk.subarray(0, 4 * MOST_WORD_CHARACTERS)]);
          else finish();
          if (bytes > MOST_ANSWER_BYTES) response.destroy();
        });
        const isDone = deadline(TIMEOUT_MS, () => response.destroy());
        const isTold = isTest || problemOfStatus(status, '') !== null;
        const isRead = isTold ? deadline(TEXT_TIMEOUT_MS, finish) : null;
        response.on('close', () => {
          isDone();
          finish();
        });
        if (!isTold) finish();
      });
      request.end(body);
    });
  }
}

const NOTHING: Buffer = Buffer.alloc(0);

/** The text of an answer's beginning; empty where it is compressed, for which nobody has asked. */
function textOf(head: Buffer, headers: IncomingHttpHeaders): string {
  if ((headers['content-encoding'] ?? 'identity') !== 'identity') return '';
  const charset = /charset="?([\w-]{1,40})/i.exec(headers['content-type'] ?? '')?.[1] ?? 'utf-8';
  try {
    return new TextDecoder(charset).decode(head);
  } catch {
    return head.toString('utf8'); // This Node does not know the charset.
  }
}

function problemOfStatus(status: number, text: string): string | null {
  if (status >= 200 && status < 300) return null;
  if (status >= 300 && status < 400) return `answered ${status}: redirects are not followed`;
  return text === '' ? `answered ${status}` : `answered ${status}: ${text}`;
}

function problemOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const code = errorCode(error);
  return code === '' || message.includes(code) ? message : `${message} (${code})`;
}

/** Seconds, or a date. */
function retryAfterOf(text: string | undefined, now: number): number | null {
  if (text === undefined) return null;
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - now;
  return Number.isFinite(ms) && ms > 0 ? Math.min(ms, LONGEST_WAIT_MS) : null;
}

/** Waits after the first, second, … failure; after that the last one again and again. */
const WAITS_MS = [5, 30, 120, 300, 900, 1_800, 3_600, 7_200, 14_400].map((seconds) => seconds * 1_000);
/** A wait is up to this share shorter or longer. */
const JITTER = 0.2;
/** For so long a message is tried. */
export const GIVE_UP_MS = 72 * 3_600_000;

/** Whether it is time for a try. What would wait for longer than anything does was put off by a clock that was ahead. */
export function isDue(nextTryAt: Date, now: number): boolean {
  const wait = nextTryAt.getTime() - now;
  return wait <= 0 || wait > LONGEST_WAIT_MS;
}

/**
 * How long to wait after a failure.
 * @param tries  how many have failed
 * @param random 0 to 1
 */
export function waitAfter(tries: number, retryAfterMs: number | null, random: number): number {
  const wait = WAITS_MS[Math.min(tries, WAITS_MS.length) - 1] ?? 0;
  const jittered = Math.round(wait * (1 - JITTER + 2 * JITTER * random));
  return Math.max(jittered, retryAfterMs ?? 0);
}
