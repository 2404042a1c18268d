/** Limits the mails per mailbox and hour that clients can trigger. In memory and per process. */
import { LRUCache } from 'lru-cache';
import { HOUR_MS } from '../base/time-units.ts';
import { atMost } from '../cache/lookup-cache.ts';
import type { Email } from './email.ts';

const MAX_MAILBOXES = 10_000;

export class MailboxLimit {
  readonly #limit: number;
  readonly #now: () => number;
  readonly #keyOf: (email: Email) => string;
  /** Send times, oldest first. */
  readonly #mails = new LRUCache<string, number[]>(atMost(MAX_MAILBOXES));

  /**
   * @param limit mails in any hour; 0 for no limit
   * @param now   milliseconds of a monotonic clock
   * @param keyOf what is counted together
   */
  constructor(limit: number, now: () => number, keyOf = mailboxOf) {
    this.#limit = limit;
    this.#now = now;
    this.#keyOf = keyOf;
  }

  /** Counts a mail. @returns 0 if it may be sent; else the milliseconds until the next one may be sent */
  take(email: Email): number {
    if (this.#limit === 0) return 0;
    const now = this.#now();
    const key = this.#keyOf(email);
    const recent = (this.#mails.get(key) ?? []).filter((at) => at > now - HOUR_MS);
    const [oldest = now] = recent;
    if (recent.length >= this.#limit) return oldest + HOUR_MS - now;
    this.#mails.set(key, [...recent, now]);
    return 0;
  }

  /** Undoes the last count of a mailbox: the mail was not sent. */
  giveBack(email: Email): void {
    this.#mails.get(this.#keyOf(email))?.pop();
  }
}

/**
 * The mailbox of an address, as far as the address shows: the text after a plus is a tag (RFC 5233), and some providers
 * ignore dots. If a provider does neither, two mailboxes of its domain may share a limit.
 */
function mailboxOf({ key }: Email): string {
  const at = key.lastIndexOf('@');
  const [name = ''] = key.slice(0, at).split('+', 1);
  return name.replaceAll('.', '') + key.slice(at);
}
