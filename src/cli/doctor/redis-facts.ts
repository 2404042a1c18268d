/** Facts of Redis: whether it is reachable, and whether it evicts keys. */
import { Redis } from 'ioredis';
import type { Config } from '../../config.ts';

export interface RedisFacts {
  /** Why it cannot be reached, empty if it can; never contains the password of its URL. */
  readonly failure: string;
  /** Its eviction policy; empty if it does not report one. */
  readonly evictionPolicy: string;
}

const TIMEOUT_MS = 2_000;

/** Facts of the server of REDIS_URL, or of the first node of a cluster; null if not set. */
export async function redisFacts({ REDIS_URL: urls }: Config): Promise<RedisFacts | null> {
  const [url = ''] = urls.split(',');
  if (url === '') return null;
  const redis = new Redis(url, {
    lazyConnect: true,
    connectTimeout: TIMEOUT_MS,
    commandTimeout: TIMEOUT_MS,
    retryStrategy: null,
    maxRetriesPerRequest: 0,
  });
  let reason = '';
  // The cause arrives as an event; the rejected call only reports a closed connection.
  redis.on('error', (error: Error) => {
    reason = error.message;
  });
  try {
    await redis.connect();
    const policy = /^maxmemory_policy:(\S+)/m.exec(await redis.info('memory'))?.[1] ?? '';
    return { failure: '', evictionPolicy: policy };
  } catch (error) {
    return {
      failure: reason || (error instanceof Error ? error.message : String(error)),
      evictionPolicy: '',
    };
  } finally {
    redis.disconnect();
  }
}
