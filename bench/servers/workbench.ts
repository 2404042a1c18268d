/**
 * What every scenario works on: a PostgreSQL of its own, embedded in a temporary folder as in any installation, the
 * servers that it starts there, and apps with their tokens. All of it is gone when the bench ends.
 */
import { chmod, mkdtemp, readFile, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type EmbeddedPostgres, openEmbedded } from '../../src/embedded/embedded.ts';
import type { Sql } from '../../src/storage/database/connect.ts';
import { LoadGenerator } from '../load/load-generator.ts';
import { type BenchApp, Installation } from './installation.ts';
import { cpuOfFamily } from './process-usage.ts';
import { Spawned, startContender, startTidemark } from './spawned.ts';

export type { BenchApp } from './installation.ts';

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

/** Of installations on servers that the bench does not run itself. */
const SECRET = 'the secret of the bench, 32 characters';

export interface ServiceOptions {
  /** Whether the limits of requests per minute are as they are out of the box. */
  readonly limits: 'kept' | 'lifted';
  readonly settings?: Readonly<Record<string, string>>;
  /** Where it is not the bench's own. */
  readonly installation?: Installation;
  /** The program that runs the service, where it is not this Node. */
  readonly node?: string;
}

export class Workbench {
  readonly #postgres: EmbeddedPostgres;
  readonly #running = new Set<{ stop(): Promise<unknown> }>();
  readonly #installation: Installation;
  readonly folder: string;
  readonly #postmaster: number;
  /** Of Node, for the service: a profile's, where one is wanted. */
  readonly #nodeOptions: readonly string[];

  private constructor(parts: {
    postgres: EmbeddedPostgres;
    installation: Installation;
    folder: string;
    postmaster: number;
    nodeOptions: readonly string[];
  }) {
    this.#postgres = parts.postgres;
    this.#installation = parts.installation;
    this.folder = parts.folder;
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
    const installation = await Installation.open(postgres.connection, { DATA_DIR: dataDir });
    await installation.sql.unsafe(RIVAL_TABLES);
    const postmaster = await postmasterOf(installation.sql);
    return new Workbench({ postgres, installation, folder, postmaster, nodeOptions });
  }

  get sql(): Sql {
    return this.#installation.sql;
  }

  /** Name and version of the database. */
  get engine(): string {
    return this.#installation.engine;
  }

  /** On the PostgreSQL of the bench. */
  get installation(): Installation {
    return this.#installation;
  }

  /**
   * Makes the service's schema in another database; its connections are closed when the scenario ends.
   * @param url of an empty database
   */
  async openInstallation(url: string): Promise<Installation> {
    const DATA_DIR = join(this.folder, `data-${this.#running.size}`);
    const installation = await Installation.open({ url }, { DATA_DIR, DATABASE_URL: url, SECRET });
    this.#running.add({ stop: () => installation.close() });
    return installation;
  }

  /** How to reach PostgreSQL without a password. */
  get connection(): EmbeddedPostgres['connection'] {
    return this.#postgres.connection;
  }

  /** CPU of PostgreSQL with all of its processes, milliseconds. */
  databaseCpu(): number {
    return cpuOfFamily(this.#postmaster);
  }

  async startService(options: ServiceOptions): Promise<Spawned> {
    const { limits, settings = {}, installation = this.#installation, node } = options;
    const lifted = limits === 'lifted' ? { CREATE_LIMIT_PER_MINUTE: '0', READ_LIMIT_PER_MINUTE: '0' } : {};
    const env = { ...installation.settings, ...lifted, ...settings };
    return this.keep(await startTidemark(env, this.#nodeOptions, node));
  }

  async startContender(name: string, env: Readonly<Record<string, string>> = {}): Promise<Spawned> {
    return this.keep(await startContender(name, { BENCH_DATABASE: JSON.stringify(this.connection), ...env }));
  }

  startGenerator(): LoadGenerator {
    const generator = new LoadGenerator();
    this.#running.add({ stop: () => generator.end() });
    return generator;
  }

  /** Keeps something that must be stopped when the scenario ends, however it ends. */
  keep<T extends { stop(): Promise<unknown> }>(started: T): T {
    this.#running.add(started);
    return started;
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

  makeApps(count: number, name: string): Promise<BenchApp[]> {
    return this.#installation.makeApps(count, name);
  }

  makeApp(name: string): Promise<BenchApp> {
    return this.#installation.makeApp(name);
  }

  makeResourceToken(apps: readonly Pick<BenchApp, 'appId'>[]): Promise<string> {
    return this.#installation.makeResourceToken(apps);
  }

  async close(): Promise<void> {
    try {
      await this.tidy();
    } finally {
      await this.#remove();
    }
  }

  async #remove(): Promise<void> {
    await this.#installation.close();
    const cluster = await realpath(join(this.folder, 'data', 'postgres')).catch(() => undefined);
    await this.#postgres.close();
    // As root the cluster may lie elsewhere, where its user can reach it.
    if (cluster !== undefined) await rm(cluster, { recursive: true, force: true });
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** Process id of the postmaster; NaN where its data folder is on another machine. */
export async function postmasterOf(sql: Sql): Promise<number> {
  const [row] = await sql<{ folder: string }[]>`SELECT current_setting('data_directory') AS folder`;
  const text = await readFile(join(row?.folder ?? '', 'postmaster.pid'), 'utf8').catch(() => '');
  return Number.parseInt(text, 10);
}
