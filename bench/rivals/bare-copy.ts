/** COPY of ready-made rows into `events` on one connection: what a script without checks and answers would do. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import pg from 'pg';
import { from as copyFrom } from 'pg-copy-streams';

const STATEMENT = 'COPY events (id, app_id, type_id, created_at, payload) FROM STDIN';

export interface Row {
  readonly id: string;
  readonly appId: number;
  readonly typeId: number;
  /** Milliseconds since the Unix epoch. */
  readonly createdAt: number;
  /** JSON without backslashes: nothing in it needs escaping. */
  readonly payload: string;
}

/** Rows in COPY's text format. */
export function copyText(rows: readonly Row[]): string {
  return rows
    .map(
      ({ id, appId, typeId, createdAt, payload }) =>
        `${id}\t${appId}\t${typeId}\t${new Date(createdAt).toISOString()}\t${payload}\n`,
    )
    .join('');
}

export class BareCopy {
  readonly #client: pg.Client;

  private constructor(client: pg.Client) {
    this.#client = client;
  }

  static async open(address: pg.ClientConfig): Promise<BareCopy> {
    const client = new pg.Client(address);
    await client.connect();
    return new BareCopy(client);
  }

  /** One COPY, which has committed when the promise resolves. @param text as of copyText */
  async copy(text: string): Promise<void> {
    await pipeline(Readable.from([Buffer.from(text)]), this.#client.query(copyFrom(STATEMENT)));
  }

  async stop(): Promise<void> {
    await this.#client.end();
  }
}
