/** Mails to owners about what a command has changed. */

import { COMMAND_LINE } from '../accounts/log/audit.ts';
import type { AuthFields } from '../accounts/log/auth-log.ts';
import type { NoticeEvent } from '../accounts/mail/notices.ts';
import { commandLog } from './output.ts';
import type { Session } from './session.ts';

/** Mails an event as the service does, and waits until the mail server has taken it or has failed. Never throws. */
export async function mailNotice(
  { config, sql }: Pick<Session, 'config' | 'sql'>,
  event: NoticeEvent,
  fields: AuthFields,
): Promise<void> {
  if (config.SMTP_URL === '') return;
  const { warn: print } = commandLog(config.LOG_LEVEL);
  // Fields of a log line come before its message, which is what a command prints.
  const log = { warn: (...line: unknown[]) => print(String(line.at(-1))) };
  // Loaded when needed: the packages take longer to load than most commands run.
  const { Background } = await import('../accounts/mail/background.ts');
  const { Mailer } = await import('../accounts/mail/mail.ts');
  const { Notices } = await import('../accounts/mail/notices.ts');
  const background = new Background(log);
  const mailer = new Mailer({ url: config.SMTP_URL, from: config.MAIL_FROM, log });
  const notices = new Notices({
    sql,
    mailer,
    background,
    publicUrl: config.PUBLIC_URL,
    addresses: config.SESSION_ADDRESSES,
    log,
    wall: () => Date.now(),
    monotonic: () => performance.now(),
  });
  notices.mail(event, { ip: '', requestId: '', email: String(COMMAND_LINE) }, fields);
  await background.idle();
  await mailer.close();
}
