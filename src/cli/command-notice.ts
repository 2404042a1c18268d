/** What the command line mails: to owners what a command has changed, and a test. */
import { COMMAND_LINE } from '../accounts/log/audit.ts';
import type { AuthFields } from '../accounts/log/auth-log.ts';
import type { NoticeEvent } from '../accounts/mail/notices.ts';
import { requireEmail } from '../accounts/people/email.ts';
import { readConfig } from '../config.ts';
import { OperatorError } from '../errors.ts';
import { commandLog, formatFields } from './output.ts';
import type { Command, Session } from './session.ts';

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

/** `mail test`. */
export function addMailCommands(program: Command): void {
  program
    .command('mail')
    .description('the mail server of SMTP_URL')
    .command('test')
    .description('send a test mail, and show what the mail server answers')
    .argument('<address>', 'who gets it')
    .answer(async (address: string) => {
      const { text: to } = requireEmail(address);
      const { SMTP_URL: url, MAIL_FROM: from, PUBLIC_URL: publicUrl } = readConfig(process.env);
      if (url === '')
        throw new OperatorError('there is no mail server: set SMTP_URL, as docs/deployment.md shows');
      const { Mailer } = await import('../accounts/mail/mail.ts');
      const mailer = new Mailer({ url, from, log: { warn: () => undefined } });
      const text = `This is a test of the mail server that Tidemark at ${publicUrl} sends by.\n`;
      const problem = await mailer.deliver({ to, subject: 'Test mail of Tidemark', text });
      await mailer.close();
      const { protocol, host: server } = new URL(url);
      if (problem !== null)
        throw new OperatorError(
          `${protocol}//${server} from ${from}: ${problem}: correct SMTP_URL or MAIL_FROM`,
        );
      const fields = { Mail: `${to}, taken by ${protocol}//${server}`, From: from };
      const answer = { address: to, server, from, accepted: true };
      return { json: answer, text: formatFields(fields) };
    });
}
