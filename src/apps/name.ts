/** The rules for names of apps, event types and tokens. */
import { refused } from '../errors.ts';

const LONGEST = 200;
const CONTROL = /\p{Cc}/u;
/** Half of a surrogate pair, which UTF-8 cannot encode. */
const LONE_SURROGATE = /\p{Cs}/u;

/** The problem of a name's length or encoding, worded to follow the field's name; null if there is none. */
export function lengthProblem(name: string): string | null {
  if (name === '') return 'must not be empty';
  // A code point has one or two units: most texts are accepted or refused without counting code points.
  if (name.length > LONGEST && (name.length > 2 * LONGEST || [...name].length > LONGEST))
    return `must have at most ${LONGEST} characters`;
  if (LONE_SURROGATE.test(name)) return 'must not contain a lone surrogate';
  return null;
}

/**
 * For the names of apps and resource tokens: 1 to 200 code points without control characters.
 * @throws Refused invalidBody
 */
export function checkName(name: string): void {
  const problem = lengthProblem(name) ?? (CONTROL.test(name) ? 'must not contain control characters' : null);
  if (problem !== null) throw refused('invalidBody', `the name ${problem}`);
}
