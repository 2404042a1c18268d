/** A database with the schema of the service, and what a scenario makes in it: apps, types, tokens. */
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { openSecret, type Secret, sealToken } from '../../src/apps/secret.ts';
import { createPublicId, createTokenText, digestOf } from '../../src/base/token-text.ts';
import { connect, type DatabaseAddress, type Sql } from '../../src/storage/database/connect.ts';
import { openStorage } from '../../src/storage/storage.ts';

/** An app that a scenario writes to. */
export interface BenchApp {
  /** Internal, for queries. */
  readonly id: number;
  readonly appId: string;
  readonly loggingToken: string;
  readonly typeId: string;
}

const CONNECTIONS = 8;

export class Installation {
  readonly address: DatabaseAddress;
  readonly sql: Sql;
  /** Name and version of the database. */
  readonly engine: string;
  /** What makes the service and the command line use this database. */
  readonly settings: Readonly<Record<string, string>>;
  readonly #secret: Secret;

  private constructor(parts: {
    address: DatabaseAddress;
    sql: Sql;
    engine: string;
    settings: Readonly<Record<string, string>>;
    secret: Secret;
  }) {
    this.address = parts.address;
    this.sql = parts.sql;
    this.engine = parts.engine;
    this.settings = parts.settings;
    this.#secret = parts.secret;
  }

  /** Connects, and makes the schema where there is none. */
  static async open(
    address: DatabaseAddress,
    settings: Readonly<Record<'DATA_DIR', string> & Partial<Record<'DATABASE_URL' | 'SECRET', string>>>,
  ): Promise<Installation> {
    const sql = connect(address, { connections: CONNECTIONS, name: 'tidemark bench' });
    const storage = await openStorage(sql);
    await storage.migrate(sql);
    const secret = await openSecret({ configured: settings.SECRET ?? '', dataDir: settings.DATA_DIR });
    return new Installation({ address, sql, engine: storage.description, settings, secret });
  }

  async makeApps(count: number, name: string): Promise<BenchApp[]> {
    // As many at once as there are connections: each is a commit or two, which others' share where the disk is slow.
    return await Promise.all(
      Array.from({ length: count }, (_, index) => this.makeApp(`${name} ${index + 1}`)),
    );
  }

  async makeApp(name: string): Promise<BenchApp> {
    const { appId, loggingToken } = await createApp(this.sql, this.#secret, { name });
    const typeId = await this.makeType(appId, 'page viewed');
    const [row] = await this.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
    return { id: row?.id ?? 0, appId, loggingToken, typeId };
  }

  /** Makes thousands of apps without types in two statements: one by one they would take longer than what is measured. */
  async seedApps(count: number, name: string): Promise<Omit<BenchApp, 'typeId'>[]> {
    const apps = Array.from({ length: count }, () => ({
      appId: createPublicId('app'),
      loggingToken: createTokenText('tdl'),
    }));
    const rows = await this.sql<{ id: number; appId: string }[]>`
      INSERT INTO apps (public_id, name)
      SELECT public_id, ${name} FROM unnest(${apps.map(({ appId }) => appId)}::text[]) AS new (public_id)
      RETURNING id, public_id AS "appId"`;
    const ids = new Map(rows.map(({ id, appId }) => [appId, id]));
    const seeded = apps.map((app) => ({ ...app, id: ids.get(app.appId) ?? 0 }));
    await this.sql`
      INSERT INTO logging_tokens (digest, app_id, sealed)
      SELECT decode(digest, 'hex'), app_id, decode(sealed, 'hex')
        FROM unnest(${seeded.map(({ loggingToken }) => digestOf(loggingToken).toString('hex'))}::text[],
                    ${seeded.map(({ id }) => id)}::integer[],
                    ${seeded.map(({ loggingToken }) => sealToken(this.#secret, loggingToken).toString('hex'))}::text[])
               AS new (digest, app_id, sealed)`;
    return seeded;
  }

  /** @returns its public id */
  async makeType(appId: string, name: string): Promise<string> {
    return (await createEventType(this.sql, { appId, name, maxTypes: 10_000 })).typeId;
  }

  async makeResourceToken(apps: readonly Pick<BenchApp, 'appId'>[]): Promise<string> {
    const { resourceToken } = await createResourceToken(this.sql, {
      name: 'bench',
      appIds: apps.map(({ appId }) => appId),
      expiresInSeconds: null,
    });
    return resourceToken;
  }

  /** Ends its connections. */
  async close(): Promise<void> {
    await this.sql.end({ timeout: 5 });
  }
}
