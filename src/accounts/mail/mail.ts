/** Mail, sent in the background so that response times do not reveal whether a mail was sent. */

import { createTransport, type Transporter } from 'nodemailer';
import type { Logger } from 'pino';
import { type GivenRole, INVITED_TO } from '../../base/roles.ts';
import { withTimeout } from '../../base/timeout.ts';
import { errorCode } from '../../storage/database/connect.ts';
import { Background, type BackgroundLimits } from './background.ts';

export interface Mail {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
  readonly html?: string | undefined;
  /** Pictures of the HTML, by the Content-ID that it names. */
  readonly images?: readonly { readonly cid: string; readonly png: Buffer }[] | undefined;
  /** The address that a mail program posts to, where its reader wants no more such mails (RFC 8058). */
  readonly unsubscribe?: string | undefined;
}

export interface MailerOptions {
  /** SMTP_URL */
  readonly url: string;
  /** MAIL_FROM */
  readonly from: string;
  readonly log: Pick<Logger, 'warn'>;
}

/** Mails in delivery. */
const LIMITS: BackgroundLimits = { maxPending: 200, maxPendingOthers: 150 };
const TIMEOUT_MS = 15_000;

export class Mailer {
  readonly #options: MailerOptions;
  readonly #transport: Transporter;
  readonly #background: Background;

  constructor(options: MailerOptions) {
    this.#options = options;
    this.#background = new Background(options.log, LIMITS);
    const transport = {
      url: options.url,
      // The package's own are minutes: a server that is silent must not keep sockets, or a command, for so long.
      ...{
        connectionTimeout: TIMEOUT_MS,
        greetingTimeout: TIMEOUT_MS,
        socketTimeout: TIMEOUT_MS,
        dnsTimeout: TIMEOUT_MS,
      },
    };
    this.#transport = createTransport(transport, { from: options.from });
    // A failed mail is reported to its caller; these are errors of idle connections.
    this.#transport.on('error', (error) =>
      options.log.warn({ reason: mailProblem(error) }, 'mail: connection to the server failed'),
    );
  }

  /** Starts to send a mail. A failure is logged without the mail and its address. @param options.isSecurity whether it tells an owner what happened to the account */
  send(mail: Mail, { isSecurity = false } = {}): void {
    this.#background.run('mail', () => this.#deliver(mail), { isSecurity });
  }

  /** Resolves when no mail is in delivery. */
  async close(): Promise<void> {
    await this.#background.idle();
    this.#transport.close();
  }

  /** Sends a mail that its caller tries again where that fails. @returns what went wrong; null: the server took it */
  async deliver(mail: Mail): Promise<string | null> {
    try {
      await this.#hand(mail);
      return null;
    } catch (error) {
      return `the mail server did not take it (${mailProblem(error)})`;
    }
  }

  async #deliver(mail: Mail): Promise<void> {
    try {
      await this.#hand(mail);
    } catch (error) {
      this.#options.log.warn({ code: errorCode(error), reason: mailProblem(error) }, 'mail: delivery failed');
    }
  }

  async #hand({ to, subject, text, html, images = [], unsubscribe }: Mail): Promise<void> {
    // An object, not a string: its address is not parsed as a list.
    const mail = {
      to: { name: '', address: to },
      subject: headerText(subject),
      text,
      ...(html !== undefined && { html }),
      attachments: images.map(({ cid, png: content }) => ({
        ...{ cid, content, contentType: 'image/png', contentDisposition: 'inline' as const },
        filename: `${cid.split('@')[0]}.png`,
      })),
      ...(unsubscribe !== undefined && {
        headers: {
          'List-Unsubscribe': `<${unsubscribe}>`,
          'List-Unsubscribe-Post': 'List-Unsubscribe=One-Click',
        },
      }),
    };
    const sent = await withTimeout(this.#transport.sendMail(mail), TIMEOUT_MS, null);
    if (sent === null) throw new Error(`the mail server did not answer within ${TIMEOUT_MS / 1_000} s`);
  }
}

const MOST_PROBLEM_CHARACTERS = 300;
/** What a TLS library says where the other side speaks none, and the client where a server says nothing first: it may wait for TLS. */
const OTHER_TLS = /wrong version number|packet length too long|Greeting never received/i;

/** What failed, in the words of the server or of the connection, without the addresses of people, which a server may repeat. */
export function mailProblem(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const code = errorCode(error);
  const line = message.replace(/[\p{C}\s]+/gu, ' ').trim();
  // Without a blank no word is an address that has one, so each can be looked at alone.
  const words = line.split(' ').map((word) => (word.includes('@') ? '…' : word));
  const text = words.join(' ').slice(0, MOST_PROBLEM_CHARACTERS);
  const advice = OTHER_TLS.test(message) ? ': smtps:// is for TLS from the start, smtp:// for STARTTLS' : '';
  return `${code === '' || text.includes(code) ? text : `${text}, ${code}`}${advice}`;
}

/** Bytes of a text in an encoded word, which has at most 75 characters (RFC 2047, 2). */
const WORD_BYTES = 42;

/**
 * A text as it may stand in a header. The package encodes what is not ASCII; an ASCII text that looks like an encoded word, which
 * somebody may give an app as its name, would be decoded by the reader's program, so it is encoded itself.
 */
export function headerText(text: string): string {
  if (!text.includes('=?')) return text;
  const words: string[] = [];
  let word = '';
  for (const character of text) {
    if (Buffer.byteLength(word + character) > WORD_BYTES) {
      words.push(word);
      word = '';
    }
    word += character;
  }
  return [...words, word].map((one) => `=?UTF-8?B?${Buffer.from(one).toString('base64')}?=`).join(' ');
}

/** Texts of the mails, with their links. */
export const MAILS = {
  invitation: (to: string, appName: string, role: GivenRole, by: string, link: string): Mail => ({
    to,
    subject: `Invitation to ${appName}`,
    text: `${by} invites you to ${INVITED_TO[role]} "${appName}" in Tidemark.\n\nAccept within 7 days:\n${link}\n\nIf you have an account with this address, the app is in its list already.\n`,
  }),
  signUp: (to: string, link: string): Mail => ({
    to,
    subject: 'Finish your sign-up',
    text: `You, or another person, signed up for Tidemark with this email address.\n\nFinish within 24 hours, with the password that you chose:\n${link}\n\nIf it was not you, ignore this mail.\n`,
  }),
  alreadySignedUp: (to: string, link: string): Mail => ({
    to,
    subject: 'You already have an account',
    text: `You, or another person, signed up for Tidemark with this email address, which already has an account.\n\nSign in, or set a new password:\n${link}\n\nIf it was not you, ignore this mail.\n`,
  }),
  verifyEmail: (to: string, link: string): Mail => ({
    to,
    subject: 'Verify your email address',
    text: `Sign in to Tidemark and verify within 24 hours that this email address is yours:\n${link}\n`,
  }),
  resetPassword: (to: string, link: string): Mail => ({
    to,
    subject: 'Set a new password',
    text: `You, or another person, requested a new password for Tidemark.\n\nSet it within an hour:\n${link}\n\nIf it was not you, ignore this mail: your password does not change.\n`,
  }),
} as const;
