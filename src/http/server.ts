/** The HTTP server: accepts requests, runs their routes, enforces deadlines, and drains on stop. */
import { randomBytes } from 'node:crypto';
import type { Logger } from 'pino';
import { Window } from '../base/window.ts';
import { LookupBusy } from '../cache/lookup-cache.ts';
import { OperatorError, Rejection } from '../errors.ts';
import { DISK_IS_FULL, errorCode, hasNul, isDiskFull, isUnavailable } from '../storage/database/connect.ts';
import { PROBLEM_TEXTS, problemOfCode } from '../storage/database/server-watch.ts';
import { BodyRoom, type BodyRoomStats } from './body-room.ts';
import { addressKey, clientAddress } from './client-address.ts';
import {
  Exchange,
  type ExchangeLimits,
  MAX_UNSENT_BYTES,
  type Outcome,
  TOO_MANY_UNSENT,
  type Wire,
} from './exchange.ts';
import { IntrusiveList } from './intrusive-list.ts';
import { createNodeTransport } from './node.ts';
import { PACE_AFTER_MS } from './request-body.ts';
import { RequestCounts } from './request-counts.ts';
import { type Match, type Route, Router } from './route.ts';
import { SlowPeers } from './slow-peers.ts';
import type { Transport, TransportOptions } from './transport.ts';
import { createUwsTransport, loadUws } from './uws.ts';

/** How requests are refused where nothing is, below an address of another protocol: in the form that its clients know. */
export interface RefusalsBelow {
  /** The start of the path. */
  readonly prefix: string;
  readonly refuse: (refusal: Rejection, exchange: Exchange) => Rejection;
}

export interface ServerOptions {
  readonly routes: readonly Route[];
  /** Called with each request that has ended, and its response; null: its client had disconnected. */
  readonly onSettled?: (exchange: Exchange, outcome: Outcome | null) => void;
  /** Answers a browser that opens an address where nothing is. */
  readonly notFoundPage?: (exchange: Exchange) => Outcome;
  readonly refusalsBelow?: readonly RefusalsBelow[];
  readonly transport: 'auto' | 'uws' | 'node';
  readonly maxBodyBytes: number;
  readonly maxBodiesBytes: number;
  readonly requestTimeoutMs: number;
  /** TRUST_PROXY */
  readonly trustedProxies: number;
  /** Whether clients use https: then every response has Strict-Transport-Security. */
  readonly strictTransport?: boolean;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

export interface HttpServer {
  readonly transport: 'uws' | 'node';
  /** Requests that have ended. */
  readonly counts: RequestCounts;
  /** Bytes of request bodies in memory now. */
  readonly bodiesBytes: number;
  /** Bodies that were cut or refused for lack of memory or for their pace. */
  readonly bodyStats: BodyStats;
  /** @param shared whether other processes of the service listen on the port too */
  listen(host: string, port: number, shared?: boolean): Promise<number>;
  /** Requests without a response, by the path of their route. */
  pendingRequests(): Readonly<Record<string, number>>;
  /** Stops listening, ends streams, waits for pending requests, and closes every connection. */
  stop(): Promise<void>;
}

export interface BodyStats extends BodyRoomStats {
  /** Bodies that were cut because they arrived too slowly. */
  readonly cutForPace: number;
}

const DEADLINE_SWEEP_MS = 500;
/** Minimum milliseconds between log lines about cut bodies: an attack must not fill the log. */
const CUT_LOG_MS = 10_000;
/** Timeout of a stop for bodies that are still arriving: a slow sender must not delay a deployment. */
const STOPPING_BODY_MS = 3_000;

/** One year. Without includeSubDomains: subdomains of the host may belong to other services. */
const STRICT_TRANSPORT = 'Strict-Transport-Security: max-age=31536000\r\n';

/** The refusal of NUL in an id, a name or a value that no check before the database has looked at. */
const NUL_IN_TEXT = new Rejection('invalidParameters', 'A text of the request has NUL (U+0000) in it.');

/** Paths for programs: their errors are JSON in a browser too. */
export const API_PATH = /^\/(?:api|mcp|public|v1)(?:\/|$)/;

class Server implements HttpServer {
  readonly transport: 'uws' | 'node';
  readonly counts: RequestCounts;
  readonly #options: ServerOptions;
  readonly #router: Router;
  readonly #transport: Transport;
  readonly #limits: ExchangeLimits;
  /** Requests without a response, in order of arrival and so of their deadlines. */
  readonly #pending = new IntrusiveList<Exchange>();
  readonly #idPrefix = randomBytes(6).toString('base64url');
  readonly #slowPeers: SlowPeers;
  readonly #sweep: NodeJS.Timeout;
  #requests = 0;
  #cutForPace = 0;
  /** The counts of cut bodies that were last logged, and when, in milliseconds of the monotonic clock. */
  #loggedCuts: BodyStats | null = null;
  readonly #cutLines: Window;
  /** When the stop began, in milliseconds of the monotonic clock. */
  #stoppingSince: number | null = null;
  #onDrained: (() => void) | null = null;
  readonly #settled = (exchange: Exchange, outcome: Outcome | null): void => {
    this.#pending.delete(exchange);
    this.counts.settled(exchange, outcome);
    this.#options.onSettled?.(exchange, outcome);
    if (this.#pending.isEmpty) this.#onDrained?.();
  };

  constructor(
    options: ServerOptions,
    kind: 'uws' | 'node',
    create: (options: TransportOptions) => Transport,
  ) {
    this.#options = options;
    this.transport = kind;
    this.counts = new RequestCounts(options.now);
    this.#cutLines = new Window({ limit: 1, ms: CUT_LOG_MS, now: options.now });
    this.#router = new Router(options.routes);
    this.#limits = {
      maxBodyBytes: options.maxBodyBytes,
      bodies: new BodyRoom(options.maxBodiesBytes),
      addressOf: (exchange) => addressKey(clientAddress(exchange, options.trustedProxies)),
      everyAnswer: options.strictTransport === true ? STRICT_TRANSPORT : '',
      unsentBytes: 0,
      openStreams: new Set(),
    };
    this.#slowPeers = new SlowPeers(options.requestTimeoutMs, options.now);
    this.#transport = create({
      routes: options.routes,
      router: this.#router,
      accept: (wire, match) => this.#accept(wire, match),
      onAcceptError: (error) => options.log.warn({ code: errorCode(error) }, 'http: connection not accepted'),
      onUnsentBytes: (change) => {
        this.#limits.unsentBytes += change;
      },
      slowPeers: this.#slowPeers,
      trustsProxies: options.trustedProxies > 0,
    });
    // After what has arrived while the event loop was late: no client is at fault for that.
    this.#sweep = setInterval(() => setImmediate(() => this.#cutLate()), DEADLINE_SWEEP_MS);
    this.#sweep.unref();
  }

  get bodiesBytes(): number {
    return this.#limits.bodies.bytes;
  }

  get bodyStats(): BodyStats {
    return { ...this.#limits.bodies.stats, cutForPace: this.#cutForPace };
  }

  listen(host: string, port: number, shared = false): Promise<number> {
    return this.#transport.listen(host, port, shared);
  }

  #accept(wire: Wire, known: Match | null): Exchange {
    const match = known ?? this.#router.match(wire.method, wire.path);
    const parameters = match instanceof Rejection ? [] : match.parameters;
    const id = `${this.#idPrefix}-${(++this.#requests).toString(36)}`;
    const exchange = new Exchange(wire, id, this.#options.now(), parameters, this.#limits, this.#settled);
    if (this.#stoppingSince !== null) exchange.closeAfterAnswer();
    this.#pending.add(exchange);
    if (!(match instanceof Rejection)) {
      exchange.route = match.route.path;
      exchange.isCrossOrigin = match.route.crossOrigin === true;
    }
    if (!exchange.isFramed) exchange.refuseFraming();
    else if (match instanceof Rejection) exchange.answer(this.#noRoute(exchange, match));
    else if (
      this.#limits.unsentBytes > MAX_UNSENT_BYTES &&
      match.route.method === 'GET' &&
      !match.route.exemptFromLoadShedding
    )
      exchange.answer(TOO_MANY_UNSENT);
    else void this.#run(match.route, exchange);
    return exchange;
  }

  /** Programs are answered in JSON; only a browser that opens a page names HTML. */
  #noRoute(exchange: Exchange, refusal: Rejection): Outcome {
    const { notFoundPage, refusalsBelow = [] } = this.#options;
    const below = refusalsBelow.find(({ prefix }) => `${exchange.path}/`.startsWith(`${prefix}/`));
    if (below !== undefined) return below.refuse(refusal, exchange);
    const isPage = refusal.reason === 'notFound' && (exchange.method === 'GET' || exchange.method === 'HEAD');
    if (!isPage || notFoundPage === undefined || API_PATH.test(exchange.path)) return refusal;
    return /\btext\/html\b/i.test(exchange.header('accept')) ? notFoundPage(exchange) : refusal;
  }

  async #run(route: Route, exchange: Exchange): Promise<void> {
    try {
      const outcome = await route.handle(exchange);
      if (outcome instanceof Rejection && outcome.status >= 500) this.#logRefusal(route, exchange, outcome);
      const isFault = outcome instanceof Rejection && outcome.reason === 'internalError';
      exchange.answer(isFault ? internalError(exchange) : outcome);
    } catch (error) {
      exchange.answer(this.#fault(route, exchange, error));
    }
  }

  #fault(route: Route, exchange: Exchange, error: unknown): Rejection {
    const context = { requestId: exchange.id, route: route.path, code: errorCode(error) };
    if (error instanceof LookupBusy) {
      this.#options.log.warn(context, 'http: request refused, too many lookups wait');
      return error.rejection;
    }
    if (hasNul(error)) return NUL_IN_TEXT;
    if (isDiskFull(error)) {
      this.#options.log.error({ ...context, err: error }, 'http: request failed, the disk is full');
      return new Rejection('unavailable', DISK_IS_FULL);
    }
    if (isUnavailable(error)) {
      this.#options.log.warn(context, 'http: request failed, the database cannot be reached');
      const problem = problemOfCode(errorCode(error));
      const details =
        problem === null ? 'The database cannot be reached; try again shortly.' : PROBLEM_TEXTS[problem];
      return new Rejection('unavailable', details);
    }
    this.#options.log.error({ ...context, err: error }, 'http: request failed');
    return internalError(exchange);
  }

  #logRefusal(route: Route, exchange: Exchange, refusal: Rejection): void {
    const context = { requestId: exchange.id, route: route.path, code: refusal.code };
    // The cause is logged where it happened; this line names the requests that failed with it.
    this.#options.log[refusal.reason === 'internalError' ? 'error' : 'debug'](context, refusal.details);
  }

  #cutLate(): void {
    this.#expireLate();
    this.#limits.bodies.sweep();
    this.#logCuts();
    this.#slowPeers.sweep(this.#limits.unsentBytes > MAX_UNSENT_BYTES);
  }

  #expireLate(): void {
    const now = this.#options.now();
    for (const exchange of this.#pending) {
      // In order of arrival: if this one is too young for both checks, so are all that follow.
      if (now - exchange.startedAt < Math.min(PACE_AFTER_MS, this.#options.requestTimeoutMs)) break;
      if (exchange.isOverdue(now, this.#options.requestTimeoutMs)) exchange.expire();
      else if (exchange.checkPace(now)) this.#cutForPace += 1;
    }
    if (this.#stoppingSince === null || now - this.#stoppingSince < STOPPING_BODY_MS) return;
    for (const exchange of this.#pending) exchange.stopReceiving();
  }

  #logCuts(): void {
    const stats = this.bodyStats;
    const before = this.#loggedCuts ?? { cutForRoom: 0, refused: 0, cutForPace: 0 };
    const changes = {
      cutForRoom: stats.cutForRoom - before.cutForRoom,
      cutForPace: stats.cutForPace - before.cutForPace,
      refused: stats.refused - before.refused,
    };
    if (Object.values(changes).every((count) => count === 0) || this.#cutLines.wait('all') > 0) return;
    this.#loggedCuts = stats;
    const { heaviestAddress } = stats;
    this.#options.log.warn(
      { ...changes, heaviestAddress, heldBytes: this.bodiesBytes },
      'http: aborted slow request bodies',
    );
  }

  pendingRequests(): Readonly<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { route } of this.#pending) counts[route] = (counts[route] ?? 0) + 1;
    return counts;
  }

  async stop(): Promise<void> {
    this.#stoppingSince = this.#options.now();
    this.#transport.stopListening();
    for (const exchange of this.#pending) exchange.prepareToStop();
    this.#endStreams();
    await turnOfEventLoop();
    while (!this.#pending.isEmpty) {
      await new Promise<void>((resolve) => {
        this.#onDrained = resolve;
      });
      await turnOfEventLoop();
    }
    this.#endStreams();
    await turnOfEventLoop();
    clearInterval(this.#sweep);
    await this.#transport.close();
  }

  #endStreams(): void {
    for (const stream of this.#limits.openStreams) stream.stop();
  }
}

/** Lets the event loop read what has arrived at the sockets, and write responses. */
async function turnOfEventLoop(): Promise<void> {
  // The first immediate may run before the loop has polled the sockets.
  for (let immediate = 0; immediate < 2; immediate += 1) await new Promise(setImmediate);
}

/** The client gets the request id, to ask the operator with, and nothing of the cause. */
function internalError(exchange: Exchange): Rejection {
  return new Rejection('internalError', `Request ${exchange.id} failed; the log has the cause.`);
}

const INSTALL_UWS = 'npm install uWebSockets.js@github:uNetworking/uWebSockets.js#v20.69.0';

/**
 * Checks the configured transport before anything is started.
 * @throws OperatorError if it is `uws` and there is no binary for this Node version and platform
 */
export async function checkTransport(transport: ServerOptions['transport']): Promise<void> {
  if (transport !== 'uws') return;
  try {
    await loadUws();
  } catch (error) {
    const line = `uWebSockets.js has no binary for Node ${process.version} on this platform: set HTTP_TRANSPORT=auto, or ${INSTALL_UWS}`;
    throw new OperatorError(line, { cause: error });
  }
}

/**
 * Whether the transport is node:http whatever this machine has: also behind a proxy, unless a transport is set. uWebSockets.js
 * closes idle connections after 10 seconds, and a request that a proxy sends on one at that moment is a 502.
 */
export function usesNode(transport: ServerOptions['transport'], trustedProxies: number): boolean {
  return transport === 'node' || (transport === 'auto' && trustedProxies > 0);
}

/**
 * Creates the server on the configured transport.
 * @throws if that is `uws` and there is no binary for this Node version and platform
 */
export async function createServer(options: ServerOptions): Promise<HttpServer> {
  if (usesNode(options.transport, options.trustedProxies))
    return new Server(options, 'node', createNodeTransport);
  try {
    const uws = await loadUws();
    return new Server(options, 'uws', (transport) => createUwsTransport(uws, transport));
  } catch (error) {
    if (options.transport === 'uws') throw error;
    options.log.warn(
      `uWebSockets.js has no binary for Node ${process.version} on this platform, using node:http; for full speed: ` +
        INSTALL_UWS,
    );
    return new Server(options, 'node', createNodeTransport);
  }
}
