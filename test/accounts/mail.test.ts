/** Room for mails and for background work: what clients ask for leaves some to what owners are told of their accounts. */
import { expect, test } from 'vitest';
import { Background } from '../../src/accounts/background.ts';
import { Mailer } from '../../src/accounts/mail.ts';
import { captured } from '../support/service.ts';

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
