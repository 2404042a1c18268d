/** The first account: created from this machine, or through the one-time link that is printed at start. */

import { isFromThisMachine, isLoopbackName } from '../../http/client-address.ts';
import type { Exchange } from '../../http/exchange.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { createLink, findLink } from './account-links.ts';
import { hasUsers } from './users.ts';

export interface SetupOptions {
  readonly sql: Sql;
  /** HOST */
  readonly host: string;
  /** PUBLIC_URL; empty if not set. */
  readonly publicUrl: string;
  readonly now: () => number;
}

export class Setup {
  readonly #options: SetupOptions;
  /** Whether only this machine can reach the service. */
  readonly #isLocal: boolean;
  /** Once an account exists, one always does, so the database is not queried again. */
  #over = false;

  constructor(options: SetupOptions) {
    this.#options = options;
    const { host, publicUrl } = options;
    this.#isLocal = isLoopbackName(host) && (publicUrl === '' || isLoopbackName(new URL(publicUrl).hostname));
  }

  /** Whether the first account does not exist yet. */
  async isPending(): Promise<boolean> {
    this.#over ||= await hasUsers(this.#options.sql);
    return !this.#over;
  }

  /** Whether this request may create the first account without the link. */
  isOpenTo(exchange: Exchange): boolean {
    return this.#isLocal && isFromThisMachine(exchange);
  }

  /** Whether this token belongs to a valid setup link. */
  async isLink(token: string): Promise<boolean> {
    return (await findLink(this.#options.sql, token, ['setup'], this.#options.now())) !== null;
  }

  /** The path of a new link; null if an account exists. */
  async createPath(): Promise<string | null> {
    if (!(await this.isPending())) return null;
    return `/setup/${await createLink(this.#options.sql, { purpose: 'setup' }, this.#options.now())}`;
  }
}
