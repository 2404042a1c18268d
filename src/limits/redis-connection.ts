/** The connection to Redis or Redis Cluster that runs the scripts of limits. */
import { createHash } from 'node:crypto';
import { Cluster, Redis, type RedisOptions } from 'ioredis';

/** A script, which Redis keeps by its digest. */
export interface RedisScript {
  readonly text: string;
  readonly sha: string;
}

export function redisScript(text: string): RedisScript {
  return { text, sha: createHash('sha1').update(text).digest('hex') };
}

const CONNECT_TIMEOUT_MS = 2_000;
const RECONNECT_MS = { first: 50, most: 1_000 };

export interface RedisConnectionOptions {
  /** REDIS_URL: one address, or several of a Redis Cluster, separated by commas. */
  readonly url: string;
  /** Called when the connection is ready. */
  readonly onReady: () => void;
  /** Called when the connection is lost or failed; it reconnects automatically. */
  readonly onLost: (reason: string) => void;
}

/** One connection that reconnects until it is closed. It has no offline queue: a command that cannot be sent now fails. */
export class RedisConnection {
  readonly #options: RedisConnectionOptions;
  #client: Redis | Cluster;

  constructor(options: RedisConnectionOptions) {
    this.#options = options;
    const urls = options.url.split(',');
    this.#client = urls.length > 1 ? this.#cluster(urls) : this.#single(options.url);
  }

  get isReady(): boolean {
    return this.#client.status === 'ready';
  }

  /**
   * Runs a script.
   * @param keys all of one hash tag
   * @throws if Redis does not answer
   */
  async run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    try {
      return await this.#client.evalsha(script.sha, keys.length, ...keys, ...args);
    } catch (error) {
      const message = describeRedisError(error);
      if (message.startsWith('MOVED') && this.#client instanceof Redis) this.#becomeCluster();
      // Redis was restarted or replaced: send the script once. The failed call has changed nothing.
      if (!message.startsWith('NOSCRIPT')) throw error;
      return await this.#client.eval(script.text, keys.length, ...keys, ...args);
    }
  }

  /** Replaces a connection that no longer responds. */
  renew(): void {
    if (this.#client instanceof Redis) this.#client.disconnect(true);
  }

  close(): void {
    this.#client.disconnect();
  }

  #single(url: string): Redis {
    return this.#watched(new Redis(url, CONNECTION));
  }

  #cluster(urls: readonly string[]): Cluster {
    const nodes = urls.map((url) => new URL(url));
    const [{ username = '', password = '', protocol = '' } = {}] = nodes;
    const cluster = new Cluster(
      nodes.map(({ hostname, port }) => ({
        host: hostname.replace(/^\[|\]$/g, ''),
        port: Number(port || 6379),
      })),
      {
        enableOfflineQueue: false,
        clusterRetryStrategy: retryDelay,
        redisOptions: {
          ...CONNECTION,
          ...(username !== '' && { username: decodeURIComponent(username) }),
          ...(password !== '' && { password: decodeURIComponent(password) }),
          ...(protocol === 'rediss:' && { tls: {} }),
        },
        // Certificates name hosts, but the cluster reports addresses: do not resolve names.
        ...(protocol === 'rediss:' && { dnsLookup: (name, done) => done(null, name) }),
      },
    );
    return this.#watched(cluster);
  }

  /** The single address belongs to a cluster node, as with managed services: switch to a cluster client. */
  #becomeCluster(): void {
    this.#client.removeAllListeners();
    this.#client.on('error', () => undefined);
    this.#client.disconnect();
    this.#client = this.#cluster([this.#options.url]);
  }

  #watched<C extends Redis | Cluster>(client: C): C {
    let reason = 'the connection was closed';
    client.on('ready', () => {
      reason = 'the connection was closed';
      this.#options.onReady();
    });
    client.on('error', (error: unknown) => {
      reason = describeRedisError(error);
    });
    client.on('close', () => this.#options.onLost(reason));
    return client;
  }
}

function retryDelay(times: number): number {
  return Math.min(RECONNECT_MS.first * 2 ** times, RECONNECT_MS.most);
}

const CONNECTION = {
  connectionName: 'tidemark',
  disableClientInfo: true,
  protocol: 2,
  connectTimeout: CONNECT_TIMEOUT_MS,
  // A command that cannot be sent falls back to the process's own limits. An unanswered one is not resent: it may have counted.
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  retryStrategy: retryDelay,
  // After a failover the address may lead to a replica: a new connection finds the new primary.
  reconnectOnError: (error: Error) => error.message.startsWith('READONLY'),
} as const satisfies RedisOptions;

/** One line without the command's arguments: AUTH carries the password. */
export function describeRedisError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // A cluster's own error says only that no node answered.
  if ('lastNodeError' in error && error.lastNodeError instanceof Error)
    return describeRedisError(error.lastNodeError);
  if (error.message !== '') return error.message;
  // An AggregateError: none of the addresses of a name accepted a connection.
  return 'code' in error ? String(error.code) : error.name;
}
