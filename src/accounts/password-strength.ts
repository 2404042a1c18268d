/**
 * How easy a password is to guess, by zxcvbn-ts and its list of 49,000 leaked passwords.
 *
 * The list and the matchers take some 6 MB and 0.1 s, so they are loaded when first needed: the service loads them at its
 * start, a command only where it makes an account. The English dictionaries are left out: they would triple the memory, and
 * guesses are throttled, so what matters is the top of the attackers' lists.
 */
import type { ZxcvbnFactory } from '@zxcvbn-ts/core';

/** Why a password is refused; null for a good one. */
export type Weakness = 'common' | 'guessable' | null;

/**
 * Passwords that are longer are only looked up in the list: length is enough (ASVS 6.2.5 allows no rule on composition), and
 * the matchers' time grows faster than the length (up to 0.6 s for 1,000 characters).
 */
const LONGEST_RATED = 14;

/** zxcvbn's border between "very guessable" and what withstands throttled guessing over a network. */
const FEWEST_GUESSES = 1e6;

/** A shorter hint matches by chance; for a longer one a rated password has no room. */
const SHORTEST_HINT = 3;

interface Estimator {
  readonly common: ReadonlySet<string>;
  readonly zxcvbn: ZxcvbnFactory;
}

let estimator: Promise<Estimator> | null = null;

/** Loads the list. Later calls return the first one's promise. */
export function loadPasswordList(): Promise<unknown> {
  estimator ??= load();
  return estimator;
}

/**
 * @param hints words that an attacker would try first for this account, such as the parts of its e-mail address
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
