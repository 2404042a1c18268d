/** The facts that the checks of the doctor work on. */
import type { Config } from '../../config.ts';
import type { DatabaseFacts } from '../../storage/database-facts.ts';
import type { ArchiveFacts } from './archive-facts.ts';
import type { DeliveryFacts } from './delivery-facts.ts';
import type { LeftErasure } from './erasure-facts.ts';
import type { MachineFacts } from './machine-facts.ts';
import type { OidcFacts } from './oidc-facts.ts';
import type { RedisFacts } from './redis-facts.ts';
import type { OneAddress, ServiceFacts } from './service-facts.ts';

export interface Facts {
  readonly config: Config;
  readonly machine: MachineFacts;
  readonly service: ServiceFacts;
  /** Null if REDIS_URL is not set. */
  readonly redis: RedisFacts | null;
  readonly oidc: OidcFacts | null;
  /** Fingerprint of the secret of these settings; null if none can be read. */
  readonly secretFingerprint: string | null;
  /** Facts of the database; null before the first start, or why it cannot be reached. */
  readonly database: DatabaseFacts | null | { readonly unreachable: string };
  /** Null where the database is not there; absent where it was not looked at. */
  readonly deliveries?: DeliveryFacts | null;
  /** Null where the database is not there; absent where it was not looked at. */
  readonly erasures?: readonly LeftErasure[] | null;
  /** Null: the clients of the last hour have several; absent where it was not looked at. */
  readonly oneAddress?: OneAddress | null;
  /** Null without ARCHIVE_URL; absent where it was not looked at. */
  readonly archive?: ArchiveFacts | null;
  readonly now: number;
}
