/** Room for mails and for background work: what clients ask for leaves some to what owners are told of their accounts. */
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, test } from 'vitest';
import { Background } from '../../../src/accounts/mail/background.ts';
import { headerText, MAILS, Mailer, mailProblem } from '../../../src/accounts/mail/mail.ts';
import { tidemark } from '../../support/command-line.ts';
import { openMailbox } from '../../support/mailbox.ts';
import { captured, until } from '../../support/service.ts';

const SECURITY = { isSecurity: true };
const MAIL = { to: 'ada@example.com', subject: 'A mail', text: 'Its text.' };

test('of 200 mails in delivery 50 are of security, however many others are asked for', async () => {
  const lines: Record<string, unknown>[] = [];
  const dropped = (): number => lines.filter(({ msg }) => String(msg).includes('dropped')).length;
  // Nothing listens there: they fail, but not in this turn of the event loop.
  const mailer = new Mailer({ url: 'smtp://127.0.0.1:1', from: 'a@example.com', log: captured(lines) });
  for (let i = 0; i < 200; i++) mailer.send(MAIL);
  expect(dropped()).toBe(50);
  for (let i = 0; i < 50; i++) mailer.send(MAIL, SECURITY);
  expect(dropped()).toBe(50);
  mailer.send(MAIL, SECURITY);
  expect(dropped()).toBe(51);
  await mailer.close();
});

test('of 500 pieces of background work 100 are of security, however many others there are', async () => {
  const lines: Record<string, unknown>[] = [];
  const background = new Background(captured(lines));
  let done = 0;
  const work = async (): Promise<void> => {
    done += 1;
  };
  for (let i = 0; i < 450; i++) background.run('other', work);
  for (let i = 0; i < 110; i++) background.run('security', work, SECURITY);
  expect([done, lines.length]).toEqual([500, 60]);
  await background.idle();
});

test.each([
  ['viewer', 'view'],
  ['maintainer', 'maintain'],
] as const)('a %s is invited to %s', (role, verb) => {
  const { text } = MAILS.invitation(
    'ada@example.com',
    'Shop',
    role,
    'owner@example.com',
    'http://localhost/x',
  );
  expect(text).toContain(`owner@example.com invites you to ${verb} "Shop"`);
});

test('a name that looks like an encoded word reaches the reader as it is', async () => {
  const mailbox = await openMailbox();
  const mailer = new Mailer({ url: mailbox.url, from: 'a@example.com', log: captured([]) });
  try {
    const subject = `Invitation to =?utf-8?B?${Buffer.from('Your bank').toString('base64')}?= ${'ä'.repeat(60)} =?utf-8?Q?x?=`;
    mailer.send({ ...MAIL, subject });
    await until(() => mailbox.mails.length === 1, 'the mail has come');
    const [, header = ''] = /^Subject:((?:.|\r\n )*)/m.exec(mailbox.mails[0]?.text ?? '') ?? [];
    // As a reader's program decodes it (RFC 2047): white space between two words goes.
    const words = header.split(/\s+/).filter((word) => word !== '');
    const decoded = words.map((word) => {
      const [, base64] = /^=\?UTF-8\?B\?([^?]*)\?=$/.exec(word) ?? [];
      expect(base64, word).toBeDefined();
      expect(word.length).toBeLessThanOrEqual(75);
      return Buffer.from(String(base64), 'base64').toString();
    });
    expect(decoded.join('')).toBe(subject);
    expect(headerText('Invitation to Shop')).toBe('Invitation to Shop');
  } finally {
    await mailer.close();
    await mailbox.close();
  }
});

test('what a mail server says is told without addresses, in the log, to the caller and by the command', async () => {
  const refusing = createServer((socket) => {
    socket.on('error', () => undefined);
    socket.write('220 mail.example.com ESMTP\r\n');
    socket.on('data', (chunk) => {
      const isRecipient = chunk.toString().startsWith('RCPT');
      socket.write(
        isRecipient ? '550 5.1.1 <ada@example.com>: unknown user, see\tabuse@example.com\r\n' : '250 ok\r\n',
      );
    });
  });
  refusing.listen(0, '127.0.0.1');
  await once(refusing, 'listening');
  const { port } = refusing.address() as AddressInfo;
  const url = `smtp://127.0.0.1:${port}`;
  const lines: Record<string, unknown>[] = [];
  const mailer = new Mailer({ url, from: 'a@example.com', log: captured(lines) });
  const words = /550 5\.1\.1 … unknown user, see …/;
  try {
    expect(await mailer.deliver(MAIL)).toMatch(words);
    mailer.send(MAIL);
    await until(() => lines.length === 1, 'the line');
    expect(lines[0]).toMatchObject({ msg: 'mail: delivery failed', reason: expect.stringMatching(words) });
    expect(JSON.stringify(lines)).not.toContain('@example');
    const settings = { SMTP_URL: url, PUBLIC_URL: 'https://events.example.com' };
    const refused = await tidemark(['mail', 'test', 'ada@example.com', '--json'], settings);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toMatch(words);
    // TLS from the start, where the server speaks first.
    const wrong = await tidemark(['mail', 'test', 'ada@example.com'], {
      ...settings,
      SMTP_URL: `smtps://127.0.0.1:${port}`,
    });
    expect(wrong.stderr).toContain('smtp:// for STARTTLS');
    expect(mailProblem(new Error('Greeting never received'))).toContain('smtps:// is for TLS from the start');
  } finally {
    await mailer.close();
    refusing.close();
  }
  const none = await tidemark(['mail', 'test', 'ada@example.com'], {
    SMTP_URL: url,
    PUBLIC_URL: 'https://events.example.com',
  });
  expect(none.stderr).toContain('ECONNREFUSED');
  const mailbox = await openMailbox();
  const sent = await tidemark(['mail', 'test', 'ada@example.com', '--json'], {
    SMTP_URL: mailbox.url,
    PUBLIC_URL: 'https://events.example.com',
  });
  expect(JSON.parse(sent.stdout)).toMatchObject({ address: 'ada@example.com', accepted: true });
  expect(mailbox.mails.map(({ to }) => to)).toEqual(['ada@example.com']);
  await mailbox.close();
});
