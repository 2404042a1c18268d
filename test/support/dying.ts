/** Processes that end between two statements. */
import type { Sql } from '../../src/storage/database/connect.ts';

class Killed extends Error {}

/** A connection of a process that dies at its n-th statement or transaction: before it, or once it is committed. */
export function dying(
  sql: Sql,
  calls: number,
  when: 'before' | 'after',
): { readonly sql: Sql; readonly isDead: () => boolean } {
  let left = calls;
  let isDead = false;
  const live = (): void => {
    if (isDead) throw new Killed();
    left -= 1;
    if (left > 0 || when === 'after') return;
    isDead = true;
    throw new Killed();
  };
  const watched = <T>(outcome: T): T => {
    // Parts of statements are no promises of their own.
    if (left > 0 || when === 'before' || !(outcome instanceof Promise)) return outcome;
    isDead = true;
    const died = outcome.then(() => {
      throw new Killed();
    });
    // Another statement may fail before anybody waits for this one.
    died.catch(() => undefined);
    return died as T;
  };
  const proxy = new Proxy(sql, {
    apply: (target, self, args) => {
      // Names and lists are no statements.
      if (!Array.isArray(args[0]) || !Object.hasOwn(args[0], 'raw')) return Reflect.apply(target, self, args);
      live();
      return watched(Reflect.apply(target, self, args));
    },
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name);
      if (name !== 'begin' || typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        live();
        return watched(Reflect.apply(value, target, args));
      };
    },
  });
  return { sql: proxy, isDead: () => isDead };
}
