/** A mail server that takes every mail and keeps it. */
import { once } from 'node:events';
import { SMTPServer } from 'smtp-server';

export interface Mail {
  readonly to: string;
  readonly text: string;
  /** As it came, for a parser. */
  readonly raw: Buffer;
}

export interface Mailbox {
  /** An SMTP_URL. */
  readonly url: string;
  /** What was asked for: invitations, and links. */
  readonly mails: Mail[];
  /** What owners are told of: it comes at times of its own. */
  readonly notices: readonly Mail[];
  close(): Promise<void>;
}

export async function openMailbox(): Promise<Mailbox> {
  const mails: Mail[] = [];
  const notices: Mail[] = [];
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['AUTH', 'STARTTLS'],
    disableReverseLookup: true,
    closeTimeout: 0,
    onData: (stream, { envelope }, done) => {
      const parts: Buffer[] = [];
      stream.on('data', (part: Buffer) => parts.push(part));
      stream.once('end', () => {
        const raw = Buffer.concat(parts);
        const mail = { to: envelope.rcptTo.at(-1)?.address ?? '', text: decode(raw.toString()), raw };
        (/^Time: \d{4}-/m.test(mail.text) ? notices : mails).push(mail);
        done();
      });
    },
  });
  // Clients that end in the middle of a mail are none of its errors.
  server.on('error', () => undefined);
  server.listen(0, '127.0.0.1');
  await once(server.server, 'listening');
  const address = server.server.address();
  if (address === null || typeof address === 'string') throw new Error('The mailbox has no port.');
  return {
    url: `smtp://127.0.0.1:${address.port}`,
    mails,
    notices,
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}

/** Undoes quoted-printable, which long lines of the body are sent in. */
function decode(mail: string): string {
  const body = mail.indexOf('\r\n\r\n');
  return `${mail.slice(0, body)}${decodeBody(mail.slice(body))}`;
}

function decodeBody(text: string): string {
  return text
    .replace(/=\r\n/g, '')
    .replace(/=([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/** The path of the link in a mail, below the service's address. */
export function linkIn(mail: { readonly text: string } | undefined): string {
  const link = /https?:\/\/[^\s/]+(\/\S+)/.exec(mail?.text ?? '')?.[1];
  if (link === undefined) throw new Error(`There is no link in this mail: ${mail?.text}`);
  return link;
}
