/**
 * Rates how easy a password is to guess, with zxcvbn-ts and its list of leaked passwords.
 *
 * The list and the matchers take some 6 MB and 0.1 s to load, so they are loaded on first use: by the service at start, by
 * a command only if it creates an account. The English dictionaries are left out: they would triple the memory, and
 * throttled attackers only try the most common passwords.
 */
import type { ZxcvbnFactory } from '@zxcvbn-ts/core';

/** Why a password is refused; null if it is accepted. */
export type Weakness = 'common' | 'guessable' | null;

/**
 * Longer passwords are only looked up in the list: length is enough (ASVS 6.2.5 allows no composition rules), and the
 * matchers take up to 0.6 s for 1,000 characters.
 */
const LONGEST_RATED = 14;

/** zxcvbn's threshold between "very guessable" and safe against throttled online guessing. */
const FEWEST_GUESSES = 1e6;

/** A shorter hint would match by chance; a longer one does not fit into a rated password. */
const SHORTEST_HINT = 3;

interface Estimator {
  readonly common: ReadonlySet<string>;
  readonly zxcvbn: ZxcvbnFactory;
}

let estimator: Promise<Estimator> | null = null;

/** Loads the list once. */
export function loadPasswordList(): Promise<unknown> {
  estimator ??= load();
  return estimator;
}

/**
 * @param hints words that an attacker would try first, such as the parts of the account's email address
 */
export async function weaknessOf(password: string, hints: readonly string[]): Promise<Weakness> {
  estimator ??= load();
  const { common, zxcvbn } = await estimator;
  if (common.has(password.toLowerCase())) return 'common';
  if ([...password].length > LONGEST_RATED) return null;
  const words = hints.filter(({ length }) => length >= SHORTEST_HINT && length <= LONGEST_RATED);
  return zxcvbn.check(password, words).guesses < FEWEST_GUESSES ? 'guessable' : null;
}

async function load(): Promise<Estimator> {
  const [{ ZxcvbnFactory }, { adjacencyGraphs, dictionary }] = await Promise.all([
    import('@zxcvbn-ts/core'),
    import('@zxcvbn-ts/language-common'),
  ]);
  return {
    common: new Set(dictionary['passwords-common']),
    zxcvbn: new ZxcvbnFactory({ dictionary, graphs: adjacencyGraphs }),
  };
}
