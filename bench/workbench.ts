/**
 * What every scenario works on: a PostgreSQL of its own, embedded in a temporary folder as in any installation, the
 * servers that it starts there, and apps with their tokens. All of it is gone when the bench ends.
 */
import { chmod, mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createApp } from '../src/apps/apps.ts';
import { createEventType } from '../src/apps/event-types.ts';
import { createResourceToken } from '../src/apps/resource-tokens.ts';
import { openSecret, type Secret } from '../src/apps/secret.ts';
import { connect, type Sql } from '../src/storage/connect.ts';
import { type EmbeddedPostgres, openEmbedded } from '../src/storage/embedded/embedded.ts';
import { openStorage } from '../src/storage/storage.ts';
import { LoadGenerator } from './load-generator.ts';
import { cpuOfFamily } from './process-usage.ts';
import { Spawned, startContender, startTidemark } from './spawned.ts';

/** An app that a scenario writes to. */
export interface BenchApp {
  /** Internal, for queries. */
  readonly id: number;
  readonly appId: string;
  readonly loggingToken: string;
  readonly typeId: string;
}

/** The tables of those that the service is compared with, shaped as their authors would. */
const RIVAL_TABLES = `
  CREATE TABLE bench_naive_events (
    id uuid PRIMARY KEY, app_id integer NOT NULL, type_id integer NOT NULL, created_at timestamptz NOT NULL,
    payload jsonb NOT NULL
  );
  CREATE INDEX ON bench_naive_events (app_id, created_at);
  CREATE TABLE bench_rival_events (
    id uuid NOT NULL, app_id integer NOT NULL, type_id integer NOT NULL, created_at timestamptz NOT NULL,
    payload json NOT NULL, UNIQUE (app_id, created_at, id)
  );`;

export interface ServiceOptions {
  /** Whether the limits of requests per minute are as they are out of the box. */
  readonly limits: 'kept' | 'lifted';
  readonly settings?: Readonly<Record<string, string>>;
}

export class Workbench {
  readonly #postgres: EmbeddedPostgres;
  readonly #running = new Set<{ stop(): Promise<unknown> }>();
  readonly folder: string;
  readonly sql: Sql;
  /** Name and version of the database. */
  readonly engine: string;
  readonly #secret: Secret;
  readonly #postmaster: number;
  /** Of Node, for the service: a profile's, where one is wanted. */
  readonly #nodeOptions: readonly string[];

  private constructor(parts: {
    postgres: EmbeddedPostgres;
    folder: string;
    sql: Sql;
    engine: string;
    secret: Secret;
    postmaster: number;
    nodeOptions: readonly string[];
  }) {
    this.#postgres = parts.postgres;
    this.folder = parts.folder;
    this.sql = parts.sql;
    this.engine = parts.engine;
    this.#secret = parts.secret;
    this.#postmaster = parts.postmaster;
    this.#nodeOptions = parts.nodeOptions;
  }

  static async open(nodeOptions: readonly string[] = []): Promise<Workbench> {
    const folder = await realpath(await mkdtemp(join(tmpdir(), 'tidemark-bench-')));
    // The unprivileged user that runs PostgreSQL for root must get in.
    await chmod(folder, 0o755);
    const dataDir = join(folder, 'data');
    const log = { info: () => undefined, warn: (line: string) => process.stderr.write(`${line}\n`) };
    const postgres = await openEmbedded({ dataDir, log });
    const sql = connect(postgres.connection, { connections: 8, name: 'tidemark bench' });
    const storage = await openStorage(sql);
    await storage.migrate(sql);
    await sql.unsafe(RIVAL_TABLES);
    const secret = await openSecret({ configured: '', dataDir });
    const [row] = await sql<{ folder: string }[]>`SELECT current_setting('data_directory') AS folder`;
    const postmaster = Number.parseInt(await readFile(join(row?.folder ?? '', 'postmaster.pid'), 'utf8'), 10);
    return new Workbench({
      postgres,
      folder,
      sql,
      engine: storage.description,
      secret,
      postmaster,
      nodeOptions,
    });
  }

  /** How to reach PostgreSQL without a password. */
  get connection(): EmbeddedPostgres['connection'] {
    return this.#postgres.connection;
  }

  /** CPU of PostgreSQL with all of its processes, milliseconds. */
  databaseCpu(): number {
    return cpuOfFamily(this.#postmaster);
  }

  async startService({ limits, settings = {} }: ServiceOptions): Promise<Spawned> {
    const lifted = limits === 'lifted' ? { CREATE_LIMIT_PER_MINUTE: '0', READ_LIMIT_PER_MINUTE: '0' } : {};
    const env = { DATA_DIR: join(this.folder, 'data'), ...lifted, ...settings };
    return this.#keep(await startTidemark(env, this.#nodeOptions));
  }

  async startContender(name: string, env: Readonly<Record<string, string>> = {}): Promise<Spawned> {
    return this.#keep(
      await startContender(name, { BENCH_DATABASE: JSON.stringify(this.connection), ...env }),
    );
  }

  startGenerator(): LoadGenerator {
    const generator = new LoadGenerator();
    this.#running.add({ stop: () => generator.end() });
    return generator;
  }

  /** Keeps something that must be stopped when the scenario ends, however it ends. */
  #keep<T extends { stop(): Promise<unknown> }>(started: T): T {
    this.#running.add(started);
    return started;
  }

  /** Keeps a process that the scenario has started by itself. */
  keep(started: Spawned): Spawned {
    return this.#keep(started);
  }

  /** Stops what a scenario has started and leaves the database as quiet as it was. */
  async tidy(): Promise<void> {
    const running = [...this.#running].reverse();
    this.#running.clear();
    const faults: string[] = [];
    for (const one of running) {
      const code = await one.stop();
      if (code !== 0 && one instanceof Spawned)
        faults.push(`A server ended with ${code ?? 'a signal'} when it was stopped:\n${one.output}`);
    }
    if (faults.length > 0) throw new Error(faults.join('\n'));
    // What the last scenario has left to be written back would be the next one's time.
    await this.sql`CHECKPOINT`.catch(() => undefined); // Only a superuser may.
  }

  async makeApps(count: number, name: string): Promise<BenchApp[]> {
    // As many at once as there are connections: each is a commit or two, which others' share where the disk is slow.
    return await Promise.all(
      Array.from({ length: count }, (_, index) => this.makeApp(`${name} ${index + 1}`)),
    );
  }

  async makeApp(name: string): Promise<BenchApp> {
    const { appId, loggingToken } = await createApp(this.sql, this.#secret, { name });
    const { typeId } = await createEventType(this.sql, { appId, name: 'page viewed', maxTypes: 10 });
    const [row] = await this.sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
    return { id: row?.id ?? 0, appId, loggingToken, typeId };
  }

  async makeResourceToken(apps: readonly Pick<BenchApp, 'appId'>[]): Promise<string> {
    const { resourceToken } = await createResourceToken(this.sql, {
      name: 'bench',
      appIds: apps.map(({ appId }) => appId),
      expiresInSeconds: null,
    });
    return resourceToken;
  }

  async close(): Promise<void> {
    try {
      await this.tidy();
    } finally {
      await this.#remove();
    }
  }

  async #remove(): Promise<void> {
    await this.sql.end({ timeout: 5 });
    const cluster = await realpath(join(this.folder, 'data', 'postgres')).catch(() => undefined);
    await this.#postgres.close();
    // As root the cluster may lie elsewhere, where its user can reach it.
    if (cluster !== undefined) await rm(cluster, { recursive: true, force: true });
    await rm(this.folder, { recursive: true, force: true });
  }
}
