/** What lookups of tokens have found of apps: their account, which is the outer holder of their turns, and their limits. */
import { LRUCache } from 'lru-cache';
import type { Path } from '../base/turns.ts';
import { atMost } from '../cache/lookup-cache.ts';
import { KnownLimits } from './app-limits.ts';

/** More than the tokens that are cached; an app that is forgotten is an account of its own until its token is looked up again. */
const MAX_APPS = 100_000;

/**
 * Owners of apps as the last lookup of a token has found them, so that turns cost no lookup. They may be out of date by as much as
 * a cached token: that changes whose turn it is, never what is allowed.
 */
export class AppAccounts {
  readonly limits = new KnownLimits();
  readonly #paths = new LRUCache<number, Path>(atMost(MAX_APPS));

  /** @param accountId internal id of the app's owner; null if it has none: then it is an account of its own */
  note(appId: number, accountId: number | null): void {
    const path = holderOf(appId, accountId);
    if (this.#paths.get(appId)?.[0] !== path[0]) this.#paths.set(appId, path);
  }

  /** The holder of an app's work: its account, then the app. */
  holderOf(appId: number): Path {
    return this.#paths.get(appId) ?? holderOf(appId, null);
  }
}

function holderOf(appId: number, accountId: number | null): Path {
  return [accountId ?? `app ${appId}`, appId];
}
