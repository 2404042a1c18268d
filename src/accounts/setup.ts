/** The first account: made straight from this machine, or through the one-time link that the start prints. */

import { isFromThisMachine, isLoopbackName } from '../http/client-address.ts';
import type { Exchange } from '../http/exchange.ts';
import type { Sql } from '../storage/connect.ts';
import { createLink, findLink } from './account-links.ts';
import { hasUsers } from './users.ts';

export interface SetupOptions {
  readonly sql: Sql;
  /** HOST */
  readonly host: string;
  /** PUBLIC_URL, empty where it is not set. */
  readonly publicUrl: string;
  readonly now: () => number;
}

export class Setup {
  readonly #options: SetupOptions;
  /** Whether there can be nobody but people at this machine. */
  readonly #isLocal: boolean;
  /** Once there is an account there always is one: the question is asked no more. */
  #over = false;

  constructor(options: SetupOptions) {
    this.#options = options;
    const { host, publicUrl } = options;
    this.#isLocal = isLoopbackName(host) && (publicUrl === '' || isLoopbackName(new URL(publicUrl).hostname));
  }

  /** Whether the first account is still to be made. */
  async isPending(): Promise<boolean> {
    this.#over ||= await hasUsers(this.#options.sql);
    return !this.#over;
  }

  /** Whether this request may make the first account without the link. */
  isOpenTo(exchange: Exchange): boolean {
    return this.#isLocal && isFromThisMachine(exchange);
  }

  /** Whether this token is of a set-up link that is good now. */
  async isLink(token: string): Promise<boolean> {
    return (await findLink(this.#options.sql, token, ['setup'], this.#options.now())) !== null;
  }

  /** A new link's path; null where there is an account already. */
  async createPath(): Promise<string | null> {
    if (!(await this.isPending())) return null;
    return `/setup/${await createLink(this.#options.sql, { purpose: 'setup' }, this.#options.now())}`;
  }
}
