/** A server and its PostgreSQL, both of which end and start again while clients go on with the address that they have. */
import type { Sql } from '../../src/storage/database/connect.ts';
import { freePort } from '../support/cluster.ts';
import { request } from '../support/http-client.ts';
import { RestartablePostgres } from '../support/restartable-postgres.ts';
import { until } from '../support/service.ts';
import { Installation, type ServerProcess } from './server-process.ts';

export class FaultyInstallation {
  readonly #installation: Installation;
  readonly #postgres: RestartablePostgres;
  #server: ServerProcess;
  #serving: Promise<void> = Promise.resolve();
  #onServing: () => void = () => undefined;
  readonly port: string;
  /** Of the test; it connects again by itself. */
  readonly sql: Sql;

  private constructor(
    installation: Installation,
    postgres: RestartablePostgres,
    server: ServerProcess,
    port: string,
  ) {
    this.#installation = installation;
    this.#postgres = postgres;
    this.#server = server;
    this.port = port;
    this.sql = postgres.connect();
  }

  static async make(): Promise<FaultyInstallation> {
    const postgres = await RestartablePostgres.make();
    const installation = await Installation.make({ DATABASE_URL: postgres.url, LOG_LEVEL: 'fatal' });
    const port = String(await freePort());
    const server = await installation.start({ PORT: port });
    return new FaultyInstallation(installation, postgres, server, port);
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  makeApp(): Promise<{ appId: string; loggingToken: string }> {
    return this.#installation.makeApp();
  }

  /** Resolved while the server runs: clients that try again at once would take its CPU time. */
  get serving(): Promise<void> {
    return this.#serving;
  }

  async killServer(): Promise<void> {
    this.#serving = new Promise((resolve) => {
      this.#onServing = resolve;
    });
    await this.#server.end('SIGKILL');
  }

  async startServer(): Promise<void> {
    this.#server = await this.#installation.start({ PORT: this.port });
    this.#onServing();
  }

  /** Kills PostgreSQL, and waits until the server says so. */
  async killDatabase(): Promise<void> {
    await this.#postgres.kill();
    const isOut = async (): Promise<boolean> =>
      (await request(this.#server.port, { path: '/readyz' })).status === 503;
    await until(isOut, 'the server notices the outage', 60_000);
  }

  startDatabase(): Promise<void> {
    return this.#postgres.start();
  }

  /** Requests of a route that this run of the server has answered with 503. */
  async unavailable(route: string): Promise<number> {
    const { body } = await request(this.#server.port, { path: '/metrics' });
    const line = body
      .split('\n')
      .find((one) => one.includes(`route="${route}"`) && one.includes('status="503"'));
    return Number(line?.split(' ').at(-1) ?? 0);
  }

  async remove(): Promise<void> {
    await this.sql.end();
    await this.#installation.remove();
    await this.#postgres.stop();
  }
}
