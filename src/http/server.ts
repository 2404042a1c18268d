/** The HTTP server: accepts requests, runs their routes, keeps deadlines, and stops without losing an answer. */
import { randomBytes } from 'node:crypto';
import type { Logger } from 'pino';
import { errorCode, isUnavailable } from '../database/connect.ts';
import { Exchange, type ExchangeLimits, type Wire } from './exchange.ts';
import { createNodeTransport } from './node.ts';
import { Rejection } from './rejection.ts';
import { type Match, type Route, Router } from './route.ts';
import type { Transport, TransportOptions } from './transport.ts';
import { createUwsTransport, loadUws } from './uws.ts';

export interface ServerOptions {
  readonly routes: readonly Route[];
  readonly transport: 'auto' | 'uws' | 'node';
  readonly maxBodyBytes: number;
  readonly maxBodiesBytes: number;
  readonly requestTimeoutMs: number;
  readonly log: Logger;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

export interface HttpServer {
  readonly transport: 'uws' | 'node';
  listen(host: string, port: number): Promise<number>;
  /** Stops listening, answers what is in flight, closes every connection. */
  stop(): Promise<void>;
}

/** Ceiling of answers that wait for slow readers: beyond it reads are refused until some are taken. */
const MAX_UNSENT_BYTES = 64 * 1_048_576;

const DEADLINE_SWEEP_MS = 500;

class Server implements HttpServer {
  readonly transport: 'uws' | 'node';
  readonly #options: ServerOptions;
  readonly #router: Router;
  readonly #transport: Transport;
  readonly #limits: ExchangeLimits;
  /** In order of arrival, so that the first is the first to be late. */
  readonly #pending = new Set<Exchange>();
  readonly #idPrefix = randomBytes(6).toString('base64url');
  readonly #sweep: NodeJS.Timeout;
  #requests = 0;
  #unsentBytes = 0;
  #stopping = false;
  #onDrained: (() => void) | null = null;
  readonly #settled = (exchange: Exchange): void => {
    this.#pending.delete(exchange);
    if (this.#pending.size === 0) this.#onDrained?.();
  };

  constructor(
    options: ServerOptions,
    kind: 'uws' | 'node',
    create: (options: TransportOptions) => Transport,
  ) {
    this.#options = options;
    this.transport = kind;
    this.#router = new Router(options.routes);
    this.#limits = {
      maxBodyBytes: options.maxBodyBytes,
      maxBodiesBytes: options.maxBodiesBytes,
      bodiesBytes: 0,
    };
    this.#transport = create({
      routes: options.routes,
      router: this.#router,
      accept: (wire, match) => this.#accept(wire, match),
      onUnsentBytes: (change) => {
        this.#unsentBytes += change;
      },
    });
    this.#sweep = setInterval(() => this.#expireLate(), DEADLINE_SWEEP_MS);
    this.#sweep.unref();
  }

  listen(host: string, port: number): Promise<number> {
    return this.#transport.listen(host, port);
  }

  #accept(wire: Wire, known: Match | null): Exchange {
    const match = known ?? this.#router.match(wire.method, wire.path);
    const parameters = match instanceof Rejection ? [] : match.parameters;
    const id = `${this.#idPrefix}-${(++this.#requests).toString(36)}`;
    const exchange = new Exchange(wire, id, this.#options.now(), parameters, this.#limits, this.#settled);
    if (this.#stopping) exchange.closeAfterAnswer();
    this.#pending.add(exchange);
    if (match instanceof Rejection) exchange.answer(match);
    else if (this.#unsentBytes > MAX_UNSENT_BYTES && match.route.method === 'GET')
      exchange.answer(TOO_MANY_UNSENT);
    else void this.#run(match.route, exchange);
    return exchange;
  }

  async #run(route: Route, exchange: Exchange): Promise<void> {
    try {
      const outcome = await route.handle(exchange);
      if (outcome instanceof Rejection && outcome.status >= 500) this.#logRefusal(route, exchange, outcome);
      exchange.answer(outcome);
    } catch (error) {
      exchange.answer(this.#fault(route, exchange, error));
    }
  }

  #fault(route: Route, exchange: Exchange, error: unknown): Rejection {
    const context = { requestId: exchange.id, route: route.path, code: errorCode(error) };
    if (isUnavailable(error)) {
      this.#options.log.warn(context, 'The database can not be reached');
      return new Rejection('unavailable', 'The database can not be reached; try again shortly.');
    }
    this.#options.log.error({ ...context, err: error }, 'Request failed');
    return new Rejection('internalError', `Request ${exchange.id} failed; the log has the cause.`);
  }

  #logRefusal(route: Route, exchange: Exchange, refusal: Rejection): void {
    const context = { requestId: exchange.id, route: route.path, code: refusal.code };
    this.#options.log.debug(context, refusal.details);
  }

  #expireLate(): void {
    const latest = this.#options.now() - this.#options.requestTimeoutMs;
    for (const exchange of this.#pending) {
      if (exchange.startedAt > latest) break;
      exchange.expire();
    }
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    this.#transport.stopListening();
    for (const exchange of this.#pending) exchange.closeAfterAnswer();
    if (this.#pending.size > 0) {
      await new Promise<void>((resolve) => {
        this.#onDrained = resolve;
      });
      // The last answers are still being written in this turn of the event loop.
      await new Promise(setImmediate);
    }
    clearInterval(this.#sweep);
    await this.#transport.close();
  }
}

const TOO_MANY_UNSENT = new Rejection(
  'unavailable',
  'Too many large answers wait for slow readers; try again shortly.',
);

/**
 * Makes the server on the transport that the setting names.
 * @throws where `uws` is forced and has no binary for this Node
 */
export async function createServer(options: ServerOptions): Promise<HttpServer> {
  if (options.transport === 'node') return new Server(options, 'node', createNodeTransport);
  try {
    const uws = await loadUws();
    return new Server(options, 'uws', (transport) => createUwsTransport(uws, transport));
  } catch (error) {
    if (options.transport === 'uws') throw error;
    options.log.warn(
      `uWebSockets.js has no binary for Node ${process.version} here; serving on node:http. For full speed: ` +
        'npm install uWebSockets.js@github:uNetworking/uWebSockets.js#v20.69.0',
    );
    return new Server(options, 'node', createNodeTransport);
  }
}
