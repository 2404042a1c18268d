/** Collects the facts of an installation. Read-only: it creates and starts nothing. */
import { openSecret } from '../../apps/secret.ts';
import { type Config, readConfig } from '../../config.ts';
import { hasCluster } from '../../embedded/embedded.ts';
import { OperatorError } from '../../errors.ts';
import { connect, errorCode } from '../../storage/database/connect.ts';
import { openDatabase } from '../../storage/database/open.ts';
import { hasSchema } from '../../storage/database-facts.ts';
import { openStorage } from '../../storage/storage.ts';
import { archiveFacts } from './archive-facts.ts';
import { findings } from './checks.ts';
import { deliveryFacts } from './delivery-facts.ts';
import { leftErasures } from './erasure-facts.ts';
import type { Facts } from './facts.ts';
import { type Finding, problem } from './finding.ts';
import { type MachineFacts, machineFacts } from './machine-facts.ts';
import { oidcFacts } from './oidc-facts.ts';
import { redisFacts } from './redis-facts.ts';
import { oneAddress, serviceFacts } from './service-facts.ts';

/** @throws OperatorError if a setting is invalid that the checks need: the service could not start either */
export async function examine(
  environment: Readonly<Record<string, string | undefined>>,
  log: { info(message: string): void; warn(message: string): void },
): Promise<readonly Finding[]> {
  const config = readConfig(environment);
  const machine = await machineFacts(config);
  const found = findings({
    config,
    machine,
    service: await serviceFacts(config),
    redis: await redisFacts(config),
    oidc: await oidcFacts(config),
    secretFingerprint: await fingerprint(config, machine),
    ...(await database(config, machine, log)),
    now: Date.now(),
  });
  return [...unlistenable(environment), ...found];
}

/** HOST or PORT, with which a service could not listen. */
function unlistenable(environment: Parameters<typeof readConfig>[0]): Finding[] {
  try {
    readConfig(environment, { listens: true });
    return [];
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return [problem('settings', error.message, 'The service does not start with it: set it, or remove it.')];
  }
}

/** The fingerprint of the existing secret; none is created. */
async function fingerprint(config: Config, { secretFile }: MachineFacts): Promise<string | null> {
  if (config.SECRET === '' && typeof secretFile === 'string') return null;
  try {
    return (await openSecret({ configured: config.SECRET, dataDir: config.DATA_DIR })).fingerprint;
  } catch (error) {
    if (error instanceof OperatorError) return null; // A damaged file: the check of the secret reports it.
    throw error;
  }
}

async function database(
  config: Config,
  { inImage }: MachineFacts,
  log: { info(message: string): void; warn(message: string): void },
): Promise<Pick<Facts, 'database' | 'deliveries' | 'erasures' | 'archive' | 'oneAddress'>> {
  try {
    if (config.DATABASE_URL === '' && !inImage && !(await hasCluster(config.DATA_DIR)))
      return { database: null };
    const opened = await openDatabase(config, log, { supervise: false, mayMake: false });
    const sql = connect(opened.address, { connections: 1, name: 'tidemark doctor' });
    try {
      // Opening the storage of an empty database could create an extension in it.
      if (!(await hasSchema(sql))) return { database: null };
      const storage = await openStorage(sql);
      const facts = await storage.facts(sql);
      // Earlier schemas have no such tables.
      const deliveries = facts.pendingMigrations > 0 ? null : await deliveryFacts(sql, storage.reader(sql));
      const erasures = facts.pendingMigrations > 0 ? null : await leftErasures(sql);
      const archive = facts.pendingMigrations > 0 ? null : await archiveFacts(config, sql);
      const address = facts.pendingMigrations > 0 ? null : await oneAddress(sql, Date.now());
      return { archive, database: facts, deliveries, erasures, oneAddress: address };
    } finally {
      await sql.end({ timeout: 5 });
      await opened.close();
    }
  } catch (error) {
    // An error of the database or the system, such as a full disk, leaves the other checks worth while.
    if (error instanceof OperatorError || (error instanceof Error && errorCode(error) !== ''))
      return { database: { unreachable: error.message } };
    throw error;
  }
}
