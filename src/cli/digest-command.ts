/** The commands for weekly digests. */
import { requireEmail } from '../accounts/people/email.ts';
import { internalAppId, roleOf } from '../accounts/people/members.ts';
import { requireVerifiedUser } from '../accounts/people/users.ts';
import { type DigestOf, listDigests, removeDigest, setDigest } from '../delivery/digest/digests.ts';
import { OperatorError, refused, WrongInput } from '../errors.ts';
import { isTimezone } from '../storage/counts/timezone.ts';
import { APP_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import type { Command, Session } from './session.ts';

interface DigestOptions {
  readonly app: string;
  readonly board?: string;
  readonly email: string;
}

const BOARD_OPTION = ['--board <id>', 'that of a board of the app, brd_…'] as const;
const EMAIL_OPTION = ['--email <email>', 'the member who gets it'] as const;

/** `digest list`, `digest set`, `digest remove`. */
export function addDigestCommands(program: Command): void {
  const digest = program.command('digest').description('weekly mails with the numbers of an app or a board');
  digest
    .command('list')
    .description('list who gets the digests of an app and of its boards')
    .requiredOption(...APP_OPTION)
    .list(async ({ sql }, options: Pick<DigestOptions, 'app'>) => {
      const digests = await listDigests(sql, await internalAppId(sql, options.app));
      const rows = digests.map((one) => [
        one.email,
        one.boardId ?? 'the app',
        one.boardName,
        one.timezone,
        one.nextAt,
      ]);
      const head = ['Member', 'Of', 'Board', 'Time zone', 'Next'];
      return { json: { digests }, text: formatTable(head, rows, 'Nobody gets a digest.') };
    });
  digest
    .command('set')
    .description('mail a member the numbers of each week, on Monday at 08:00')
    .requiredOption(...APP_OPTION)
    .option(...BOARD_OPTION)
    .requiredOption(...EMAIL_OPTION)
    .requiredOption('--timezone <zone>', 'on whose clock, such as Europe/Berlin')
    .run(async (session, options: DigestOptions & { timezone: string }) => {
      const { sql, config } = session;
      const { app: appId, board: boardId = null, timezone } = options;
      if (config.SMTP_URL === '') throw new OperatorError('there is no mail server: set SMTP_URL');
      if (!isTimezone(timezone))
        throw new WrongInput('--timezone must be an IANA time zone, such as Europe/Berlin');
      const { of, email } = await ofMember(session, options);
      const { nextAt } = await setDigest(sql, { ...of, timezone, now: Date.now() });
      const fields = { App: appId, Board: boardId, Member: email, 'Time zone': timezone, Next: nextAt };
      return { json: { appId, boardId, email, timezone, nextAt }, text: formatFields(fields) };
    });
  digest
    .command('remove')
    .description('end the digest of a member')
    .requiredOption(...APP_OPTION)
    .option(...BOARD_OPTION)
    .requiredOption(...EMAIL_OPTION)
    .run(async (session, options: DigestOptions) => {
      const { app: appId, board: boardId = null } = options;
      const { of, email } = await ofMember(session, options);
      if (!(await removeDigest(session.sql, of)))
        throw refused('notFound', `${email} gets no such digest: "digest list" shows all`);
      return {
        json: { appId, boardId, email, removed: true },
        text: formatFields({ App: appId, Board: boardId, Member: email, Digest: 'none' }),
      };
    });
}

/** @throws Refused where the account is no member of the app */
async function ofMember(
  { sql }: Session,
  { app, board, email }: DigestOptions,
): Promise<{ readonly of: DigestOf; readonly email: string }> {
  const appId = await internalAppId(sql, app);
  const user = await requireVerifiedUser(sql, requireEmail(email), false);
  const isMember = await sql.begin(async (tx) => (await roleOf(tx, appId, user.id)) !== null);
  if (!isMember) throw refused('memberNotFound', `${user.email} is no member of the app`);
  return { of: { appId, boardId: board ?? null, userId: user.id }, email: user.email };
}
