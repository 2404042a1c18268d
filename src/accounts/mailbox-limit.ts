/** How many mails that anybody can ask for may go to one mailbox in an hour. In memory and per process. */
import { LRUCache } from 'lru-cache';
import type { Email } from './email.ts';

const HOUR_MS = 3_600_000;
const MAX_MAILBOXES = 10_000;

export class MailboxLimit {
  readonly #limit: number;
  readonly #now: () => number;
  /** When mails were sent, oldest first. */
  readonly #mails = new LRUCache<string, number[]>({ max: MAX_MAILBOXES });

  /**
   * @param limit mails in any hour; 0 for any number
   * @param now   milliseconds of a monotonic clock
   */
  constructor(limit: number, now: () => number) {
    this.#limit = limit;
    this.#now = now;
  }

  /** Counts a mail. @returns 0, or where there were too many the milliseconds until the next one may be sent */
  take(email: Email): number {
    if (this.#limit === 0) return 0;
    const now = this.#now();
    const key = mailboxOf(email);
    const recent = (this.#mails.get(key) ?? []).filter((at) => at > now - HOUR_MS);
    const [oldest = now] = recent;
    if (recent.length >= this.#limit) return oldest + HOUR_MS - now;
    this.#mails.set(key, [...recent, now]);
    return 0;
  }

  /** The mail that was counted last was not sent. */
  giveBack(email: Email): void {
    this.#mails.get(mailboxOf(email))?.pop();
  }
}

/**
 * The mailbox that an address leads to, as far as addresses tell: what follows a plus is a tag (RFC 5233), and some providers
 * ignore dots. Where that is wrong, two mailboxes of one domain share a limit.
 */
function mailboxOf({ key }: Email): string {
  const at = key.lastIndexOf('@');
  const [name = ''] = key.slice(0, at).split('+', 1);
  return name.replaceAll('.', '') + key.slice(at);
}
