/** Mail: handed to the mail server in the background, so that no answer tells by its time whether one was sent. */
import { createTransport, type Transporter } from 'nodemailer';
import type { Logger } from 'pino';
import { errorCode } from '../storage/connect.ts';

export interface Mail {
  readonly to: string;
  readonly subject: string;
  readonly text: string;
}

export interface MailerOptions {
  /** SMTP_URL */
  readonly url: string;
  /** MAIL_FROM */
  readonly from: string;
  readonly log: Logger;
}

/** Mails on their way; beyond it they are dropped with a line in the log, as an attack is what sends so many. */
const MAX_PENDING = 200;
const TIMEOUT_MS = 15_000;

export class Mailer {
  readonly #options: MailerOptions;
  readonly #transport: Transporter;
  readonly #pending = new Set<Promise<void>>();

  constructor(options: MailerOptions) {
    this.#options = options;
    this.#transport = createTransport(options.url, {
      from: options.from,
    });
    // What fails a mail is told to its sender; this is of connections that are kept for the next one.
    this.#transport.on('error', (error) =>
      options.log.warn({ code: errorCode(error) }, 'The connection to the mail server failed'),
    );
  }

  /** Starts to send a mail. A failure is logged, without the mail and its address. */
  send(mail: Mail): void {
    if (this.#pending.size >= MAX_PENDING) {
      this.#options.log.warn('Too many mails are waiting for the mail server; one was dropped');
      return;
    }
    const sending = this.#deliver(mail).finally(() => this.#pending.delete(sending));
    this.#pending.add(sending);
  }

  /** Resolves when nothing is on its way. */
  async close(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending);
    this.#transport.close();
  }

  async #deliver({ to, subject, text }: Mail): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error('The mail server did not answer in time.')), TIMEOUT_MS);
    });
    try {
      // An object, not a text: nothing in it is parsed as a second address.
      await Promise.race([
        this.#transport.sendMail({ to: { name: '', address: to }, subject, text }),
        timeout,
      ]);
    } catch (error) {
      this.#options.log.warn({ code: errorCode(error) }, 'A mail could not be sent');
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The texts of the mails, with their links. */
export const MAILS = {
  invitation: (to: string, appName: string, by: string, link: string): Mail => ({
    to,
    subject: `Invitation to ${appName}`,
    text: `${by} invites you to maintain "${appName}" in Tidemark.\n\nAccept within 7 days:\n${link}\n`,
  }),
  signUp: (to: string, link: string): Mail => ({
    to,
    subject: 'Finish your sign-up',
    text: `Somebody, presumably you, signed up for Tidemark with this e-mail address.\n\nFinish within 24 hours, with the password that you chose:\n${link}\n\nIf it was not you, do nothing.\n`,
  }),
  alreadySignedUp: (to: string, link: string): Mail => ({
    to,
    subject: 'You have an account already',
    text: `Somebody, presumably you, signed up for Tidemark with this e-mail address, which has an account already.\n\nSign in, or set a new password:\n${link}\n\nIf it was not you, do nothing.\n`,
  }),
  proveEmail: (to: string, link: string): Mail => ({
    to,
    subject: 'Confirm your e-mail address',
    text: `Confirm that this e-mail address is yours, signed in to Tidemark, within 24 hours:\n${link}\n`,
  }),
  resetPassword: (to: string, link: string): Mail => ({
    to,
    subject: 'Set a new password',
    text: `Somebody, presumably you, asked for a new password for Tidemark.\n\nSet it within an hour:\n${link}\n\nIf it was not you, do nothing: your password stays as it is.\n`,
  }),
} as const;
