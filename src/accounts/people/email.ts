/** Email addresses: which are accepted, and which are the same account. */
import { refused } from '../../errors.ts';

export interface Email {
  /** As entered, trimmed. */
  readonly text: string;
  /** Identifies the account: normalized and in lower case. */
  readonly key: string;
}

/** RFC 5321, 4.5.3.1.3: a path has at most 256 octets, angle brackets included. */
const LONGEST = 254;

/** Exactly one address: characters that could begin a second one, a name or a header line are refused. */
const ADDRESS = /^[^\s@<>()[\]\\,;:"\p{C}]+@[^\s@<>()[\]\\,;:"\p{C}]+$/u;

/** @returns null if the text is not an address */
export function parseEmail(given: string): Email | null {
  const text = given.trim();
  if (text.length > LONGEST || !ADDRESS.test(text)) return null;
  return { text, key: text.normalize('NFC').toLowerCase() };
}

/**
 * The mailbox of an address, as far as the address shows: the text after a plus is a tag (RFC 5233), and some providers
 * ignore dots. If a provider does neither, two mailboxes of its domain may share a limit.
 */
export function mailboxOf({ key }: Email): string {
  const at = key.lastIndexOf('@');
  const [name = ''] = key.slice(0, at).split('+', 1);
  return name.replaceAll('.', '') + key.slice(at);
}

/** @throws Refused invalidBody */
export function requireEmail(given: string): Email {
  const email = parseEmail(given);
  if (email === null) throw refused('invalidBody', 'the email address is not valid');
  return email;
}
