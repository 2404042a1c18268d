/** Everything that the doctor knows of an installation before it says anything. */
import type { Config } from '../../config.ts';
import type { DatabaseFacts } from '../../storage/storage.ts';
import type { MachineFacts } from './machine-facts.ts';
import type { RedisFacts } from './redis-facts.ts';
import type { ServiceFacts } from './service-facts.ts';

export interface Facts {
  readonly config: Config;
  readonly machine: MachineFacts;
  readonly service: ServiceFacts;
  /** Null where REDIS_URL is not set. */
  readonly redis: RedisFacts | null;
  /** Fingerprint of the secret of these settings; null where there is none that could be read. */
  readonly secretFingerprint: string | null;
  /** What the database tells; null before the first start, or why it cannot be asked. */
  readonly database: DatabaseFacts | null | { readonly unreachable: string };
  /** Milliseconds since the Unix epoch. */
  readonly now: number;
}
