/** E-mail addresses: which are taken, and which of them are the same. */
import { AccountError } from './account-error.ts';

export interface Email {
  /** As it was typed, without space around it. */
  readonly text: string;
  /** What tells one account from another. */
  readonly key: string;
}

/** RFC 5321, 4.5.3.1.3: a path of 256 with its angle brackets. */
const LONGEST = 254;

/** One address and nothing else: what could begin a second one, a name or a header line is refused. */
const ADDRESS = /^[^\s@<>()[\]\\,;:"\p{C}]+@[^\s@<>()[\]\\,;:"\p{C}]+$/u;

/** @returns null where it is no address */
export function parseEmail(given: string): Email | null {
  const text = given.trim();
  if (text.length > LONGEST || !ADDRESS.test(text)) return null;
  return { text, key: text.normalize('NFC').toLowerCase() };
}

/** @throws AccountError INVALID_EMAIL */
export function requireEmail(given: string): Email {
  const email = parseEmail(given);
  if (email === null) throw new AccountError('INVALID_EMAIL', 'the e-mail address is not valid');
  return email;
}
