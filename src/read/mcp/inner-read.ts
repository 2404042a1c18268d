/** Reads of an app within another request: what a reader would have sent, as a value. */

import type { ResourceToken } from '../../apps/resource-token-lookup.ts';
import { Rejection } from '../../errors.ts';
import type { Exchange } from '../../http/exchange.ts';
import { AnswerStream, type StreamAnswer } from '../../http/stream.ts';
import { firstItem, isClosing, memberValue, nextItem, stringEnd, valueEnd } from '../../json/walk.ts';
import { type AppRead, partOf } from '../app-read.ts';
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
  /** Most characters of the answer's body that are parsed, and the refusal of others. */
  readonly most?: { readonly characters: number; readonly refusal: Rejection };
}

/** A read was cut: its client is gone, or others needed its place. */
const CUT = new Rejection('unavailable', 'The answer was cut before its end; try again shortly.');

/**
 * The data of a read, in the turns of the token's holder. The request has been counted before.
 * @returns the `data` of its body, with each payload as the text that was sent; of a read in lines the last line
 */
export async function readWithin(
  { access, slots }: Pick<ResourceTokenRoutesOptions, 'access' | 'slots'>,
  { exchange, token }: Caller,
  { read, appId, query = '', parameters = [], text = '', most }: InnerRead,
): Promise<unknown> {
  const id = await access.app(token, appId);
  if (id instanceof Rejection) return id;
  const holder = { kind: 'token', tokenId: token.tokenId } as const;
  const asked = { app: { id, appId }, holder, turns: token.holder, parameters, text };
  const outcome = await read.run({ exchange: partOf(exchange, query), ...asked }, slots);
  if (outcome instanceof Rejection) return outcome;
  if ('open' in outcome) {
    const line = await lastLine(outcome, exchange);
    return line === null ? CUT : JSON.parse(line);
  }
  const body = outcome.body.toString();
  if (most !== undefined && body.length > most.characters) return most.refusal;
  const { data } = JSON.parse(body.includes('"payload":') ? withTextPayloads(body) : body) as {
    data: unknown;
  };
  return data;
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

/** A body of ours, with each `payload` in it as a string that has its text: a parser would change numbers and drop names. */
export function withTextPayloads(body: string): string {
  let text = '';
  let from = 0;
  const visit = (start: number): number => {
    const open = body[start];
    if (open !== '{' && open !== '[') return valueEnd(body, start);
    let at = firstItem(body, start);
    while (!isClosing(body, at)) {
      const keyEnd = open === '{' ? stringEnd(body, at) : at;
      const value = open === '{' ? memberValue(body, keyEnd) : at;
      let end: number;
      if (body.slice(at, keyEnd) === '"payload"') {
        end = valueEnd(body, value);
        text += body.slice(from, value) + JSON.stringify(body.slice(value, end));
        from = end;
      } else {
        end = visit(value);
      }
      at = nextItem(body, end);
    }
    return at + 1;
  };
  visit(0);
  return text + body.slice(from);
}
