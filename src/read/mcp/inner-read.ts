/** Reads of an app within another request: what a reader would have sent, as a value. */

import type { ResourceToken } from '../../apps/resource-token-lookup.ts';
import { Rejection } from '../../errors.ts';
import type { Exchange } from '../../http/exchange.ts';
import { AnswerStream, type StreamAnswer } from '../../http/stream.ts';
import type { AppRead } from '../app-read.ts';
import type { ResourceTokenRoutesOptions } from '../resource-token-routes.ts';

/** Whose request it is. */
export interface Caller {
  readonly exchange: Exchange;
  readonly token: ResourceToken;
}

export interface InnerRead {
  readonly read: AppRead;
  readonly appId: string;
  /** Percent-encoded. */
  readonly query?: string;
  /** The segments of the path after the app. */
  readonly parameters?: readonly string[];
  /** The body of a read that has one. */
  readonly text?: string;
}

/** A read was cut: its client is gone, or others needed its place. */
const CUT = new Rejection('unavailable', 'The answer was cut before its end; try again shortly.');

/**
 * The data of a read, in the turns of the token's holder. The request has been counted before.
 * @returns the data of its answer; of a read in lines the last line
 */
export async function readWithin(
  { access, slots }: Pick<ResourceTokenRoutesOptions, 'access' | 'slots'>,
  { exchange, token }: Caller,
  { read, appId, query = '', parameters = [], text = '' }: InnerRead,
): Promise<unknown> {
  const id = await access.app(token, appId);
  if (id instanceof Rejection) return id;
  const holder = { kind: 'token', tokenId: token.tokenId } as const;
  const call = { exchange, app: { id, appId }, holder, turns: token.holder, parameters, text };
  const answer = await read.read(call, query, slots);
  if (answer instanceof Rejection) return answer;
  if ('data' in answer) return await answer.data();
  if (!('open' in answer)) throw new Error(`${read.declaration.path} has no data.`);
  const line = await lastLine(answer, exchange);
  return line === null ? CUT : JSON.parse(line);
}

/** The last line of an answer in lines; null where it was cut. */
async function lastLine(answer: StreamAnswer, waiter: Exchange): Promise<string | null> {
  return await new Promise((resolve) => {
    let parts: Buffer[] = [];
    let isWhole = false;
    const wire = {
      unsentBytes: 0,
      write: (bytes: Buffer) => {
        // A line begins with a chunk of its own.
        if (parts.at(-1)?.at(-1) === 0x0a) parts = [];
        parts.push(bytes);
      },
      end: () => {
        isWhole = true;
      },
      destroy: () => undefined,
      whenTaken: (listener: () => void) => listener(),
    };
    const stream = new AnswerStream(wire, {
      hasRoom: () => true,
      isFinite: true,
      onClosed: () => {
        takeBack();
        resolve(isWhole ? Buffer.concat(parts).toString() : null);
      },
    });
    const takeBack = waiter.whenSettled(() => stream.closed());
    if (waiter.settled) stream.closed();
    answer.open(stream);
  });
}
