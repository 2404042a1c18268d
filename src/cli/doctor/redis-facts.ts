/** What Redis tells: whether it is there, and whether it keeps what it was given. */
import { Redis } from 'ioredis';
import type { Config } from '../../config.ts';

export interface RedisFacts {
  /** Why it cannot be asked, empty where it answers; never with the password of its URL. */
  readonly failure: string;
  /** How it makes room when its memory is full; empty where it does not say. */
  readonly evictionPolicy: string;
}

const TIMEOUT_MS = 2_000;

/** Asks the one of REDIS_URL, or the first node of a Cluster; null where there is none. */
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
  // Its reason comes as an event; what the call rejects with only says that the connection is closed.
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
