/** A mail server that takes every mail and keeps it. It speaks as much SMTP as a client needs. */
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';

export interface Mail {
  readonly to: string;
  readonly text: string;
}

export interface Mailbox {
  /** An SMTP_URL. */
  readonly url: string;
  /** What was asked for: invitations, and links. */
  readonly mails: readonly Mail[];
  /** What owners are told of: it comes at times of its own. */
  readonly notices: readonly Mail[];
  close(): Promise<void>;
}

export async function openMailbox(): Promise<Mailbox> {
  const mails: Mail[] = [];
  const notices: Mail[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    let to = '';
    let buffered = '';
    let inData = false;
    socket.on('error', () => undefined);
    socket.write('220 test\r\n');
    socket.on('data', (chunk) => {
      buffered += chunk.toString('utf8');
      for (;;) {
        const end = buffered.indexOf(inData ? '\r\n.\r\n' : '\r\n');
        if (end < 0) return;
        const part = buffered.slice(0, end);
        buffered = buffered.slice(end + (inData ? 5 : 2));
        if (inData) {
          const mail = { to, text: decode(part) };
          (/^Time: \d{4}-/m.test(mail.text) ? notices : mails).push(mail);
          inData = false;
          socket.write('250 taken\r\n');
        } else if (/^DATA/i.test(part)) {
          inData = true;
          socket.write('354 go on\r\n');
        } else {
          to = /^RCPT TO:<(.*)>/i.exec(part)?.[1] ?? to;
          socket.write(/^QUIT/i.test(part) ? '221 bye\r\n' : '250 good\r\n');
        }
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('The mailbox has no port.');
  return {
    url: `smtp://127.0.0.1:${address.port}`,
    mails,
    notices,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
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
