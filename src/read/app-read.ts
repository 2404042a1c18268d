/** The reads of an app, for members in the dashboard and for resource tokens. */
import type { Path } from '../base/turns.ts';
import { Rejection } from '../errors.ts';
import { ACCEPT_ENCODING, compressedAnswer } from '../http/compressed-answer.ts';
import { type DataOf, done } from '../http/data.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import type { Operation } from '../http/operation.ts';
import type { Parameters, Query, Values } from '../http/query.ts';
import type { ReadPlace, ReadSlots, ReadTurn, ReadWaiter } from '../http/read-slots.ts';
import type { FeedHolder } from './live/live-feeds.ts';

/** A read of an app by a caller with access to it. */
export interface ReadCall {
  readonly exchange: ReadWaiter & Pick<Exchange, 'query' | 'header'>;
  readonly app: { readonly id: number; readonly appId: string };
  /** Whose access it is. */
  readonly holder: FeedHolder;
  /** Whose turns it takes: the account of the holder first. */
  readonly turns: Path;
  /** The values of the path's `:name` segments after the app. */
  readonly parameters: readonly string[];
  /** The body of a read that has one; otherwise empty. */
  readonly text: string;
}

/** A read without what it does. */
export interface ReadDeclaration<P extends Parameters = Parameters> {
  /** What follows the app in the path. */
  readonly path: string;
  /** Request headers that it reads. */
  readonly headers?: readonly string[];
  /** The largest body, of a read whose question is a body, and whose method therefore is POST. */
  readonly maxBodyBytes?: number;
  readonly query: Query<P>;
  readonly operation: Omit<Operation, 'query' | 'tag' | 'token' | 'isLimited'>;
}

/** What a read answers: its data, and the response that is made of them. */
export interface ReadAnswer {
  /** Payloads in it are the texts that were sent. */
  readonly data: () => object | Promise<object>;
  readonly present: () => Outcome | Promise<Outcome>;
}

/** Data of a shape that clients know: see {@link done}. */
export function answered<T extends object = never>(data: NoInfer<DataOf<T>>): ReadAnswer {
  return { data: () => data, present: () => done<T>(data) };
}

/** A stream is a response from the beginning. */
type Answer = ReadAnswer | Outcome;

/** One read, behind `/api/apps/:appId…` for sessions and `/v1/apps/:appId…` for resource tokens alike. */
export interface AppRead {
  readonly declaration: ReadDeclaration;
  /** Answers a query, whatever that of the call's request is. */
  readonly read: (call: ReadCall, query: string, slots: ReadSlots) => Promise<Answer>;
}

/** Responds to the request of a call. */
export async function respond({ read }: AppRead, call: ReadCall, slots: ReadSlots): Promise<Outcome> {
  const answer = await read(call, call.exchange.query, slots);
  // After the turn: it must not hold a connection for this.
  return await compressedAnswer(call.exchange, 'present' in answer ? await answer.present() : answer);
}

/** A read that begins with its turn. @param handle gets the query when it has been found valid */
export function appRead<P extends Parameters>(
  declaration: ReadDeclaration<P>,
  handle: (call: ReadCall & ReadPlace, query: Values<P>) => Answer | Promise<Answer>,
): AppRead {
  return appReadByParts(declaration, (call, query, slots) =>
    slots.run(turnOf(call), async (place) => await handle({ ...call, ...place }, query)),
  );
}

/** The turn of a read that its request waits for. */
export function turnOf({ exchange, holder, turns }: ReadCall): ReadTurn {
  return { kind: holder.kind === 'token' ? 'token' : 'dashboard', turns, waiter: exchange };
}

/** A read that takes its turns itself, if it needs any. @param handle gets the query when it has been found valid */
export function appReadByParts<P extends Parameters>(
  declaration: ReadDeclaration<P>,
  handle: (call: ReadCall, query: Values<P>, slots: ReadSlots) => Answer | Promise<Answer>,
): AppRead {
  return {
    // Only its own handler, which is here, sees the values.
    declaration: declaration as unknown as ReadDeclaration,
    read: async (call, text, slots) => {
      // The dashboard's own addresses may have more than a read of theirs takes.
      const unknown = call.holder.kind === 'token' ? declaration.query.unknown(text) : null;
      if (unknown !== null) return unknown;
      const values = declaration.query.parse(text);
      return values instanceof Rejection ? values : await handle(call, values, slots);
    },
  };
}

/** The request headers that a read needs beside those of its caller. */
export function headersOfRead({ headers = [] }: Pick<ReadDeclaration, 'headers'>): readonly string[] {
  return [ACCEPT_ENCODING, ...headers];
}
