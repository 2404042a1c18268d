/** The reads of an app, for members in the dashboard and for resource tokens. */
import type { Path } from '../base/turns.ts';
import { Rejection } from '../errors.ts';
import { ACCEPT_ENCODING, compressedAnswer } from '../http/compressed-answer.ts';
import type { Exchange, Outcome } from '../http/exchange.ts';
import type { Operation } from '../http/operation.ts';
import type { Parameters, Query, Values } from '../http/query.ts';
import type { ReadPlace, ReadSlots, ReadTurn, ReadWaiter } from '../http/read-slots.ts';
import type { FeedHolder } from './live/live-feeds.ts';

/** What a read takes of its request: an exchange, or a part of one that is a read by itself ({@link partOf}). */
export type ReadRequest = ReadWaiter & Pick<Exchange, 'query' | 'header'>;

/** A read of an app by a caller with access to it. */
export interface ReadCall {
  readonly exchange: ReadRequest;
  readonly app: { /** Internal id. */ readonly id: number; readonly appId: string };
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
  /** Of the path, what follows the app. */
  readonly path: string;
  /** Request headers that it reads. */
  readonly headers?: readonly string[];
  /** Of a read whose question is a body, and whose method therefore is POST: the largest body. */
  readonly maxBodyBytes?: number;
  readonly query: Query<P>;
  readonly operation: Omit<Operation, 'query' | 'tag' | 'token' | 'isLimited'>;
}

/** One read, behind `/api/apps/:appId…` for sessions and `/v1/apps/:appId…` for resource tokens alike. */
export interface AppRead {
  readonly declaration: ReadDeclaration;
  readonly run: (call: ReadCall, slots: ReadSlots) => Promise<Outcome>;
}

/** A read that begins with its turn. @param handle gets the query when it has been found valid */
export function appRead<P extends Parameters>(
  declaration: ReadDeclaration<P>,
  handle: (call: ReadCall & ReadPlace, query: Values<P>) => Outcome | Promise<Outcome>,
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
  handle: (call: ReadCall, query: Values<P>, slots: ReadSlots) => Outcome | Promise<Outcome>,
): AppRead {
  return {
    // Only its own handler, which is here, sees the values.
    declaration: declaration as unknown as ReadDeclaration,
    run: async (call, slots) => {
      const { exchange, holder } = call;
      // The dashboard's own addresses may have more than a read of theirs takes.
      const unknown = holder.kind === 'token' ? declaration.query.unknown(exchange.query) : null;
      if (unknown !== null) return unknown;
      const values = declaration.query.parse(exchange.query);
      if (values instanceof Rejection) return values;
      // After the turn: it must not hold a connection for this.
      return await compressedAnswer(exchange, await handle(call, values, slots));
    },
  };
}

/** A read that is one of several in a request: with a query of its own, and an answer that nobody decompresses. */
export function partOf(exchange: Exchange, query: string): ReadRequest {
  return {
    query,
    header: (name) => (name === ACCEPT_ENCODING ? '' : exchange.header(name)),
    get settled() {
      return exchange.settled;
    },
    whenSettled: (listener) => exchange.whenSettled(listener),
    get hasRoomForLargeAnswer() {
      return exchange.hasRoomForLargeAnswer;
    },
    get late() {
      return exchange.late;
    },
    set late(late) {
      exchange.late = late;
    },
  };
}

/** The request headers that a read needs beside those of its caller. */
export function headersOfRead({ headers = [] }: Pick<ReadDeclaration, 'headers'>): readonly string[] {
  return [ACCEPT_ENCODING, ...headers];
}
