/** The weekly digest of an app or a board: members ask for it and give it up by themselves, and the link of a mail ends it without a session. */
import type { Api, MemberCall } from '../../accounts/routes/api.ts';
import { bodyOf, NO_FIELDS } from '../../accounts/routes/body.ts';
import type { DigestState } from '../../api-types/answers.ts';
import { invalidField, Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Answer } from '../../http/exchange.ts';
import type { Parameter, Route } from '../../http/route.ts';
import { isTimezone } from '../../storage/counts/timezone.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { type DigestOf, findDigest, removeDigest, setDigest, stopDigest } from './digests.ts';

export interface DigestRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  /** Whether there is a mail server. */
  readonly sendsMail: boolean;
  /** Milliseconds since 1970, by which digests are due. */
  readonly now: () => number;
}

/** They are the member's own, whatever they may do in the app: of the app, and of its boards. */
const PATHS = ['/api/account/digests/:appId', '/api/account/digests/:appId/boards/:boardId'];
const ASKED = bodyOf({ timezone: { type: 'string', maxLength: 100 }, now: { type: 'boolean' } }, [
  'timezone',
]);

const TOKEN: Parameter = {
  form: /^[\w-]{32}$/,
  refusal: new Rejection('notFound', 'The link is not complete: its token has 32 characters.'),
};

export function digestRoutes({ api, sql, sendsMail, now }: DigestRoutesOptions): readonly Route[] {
  return [
    ...PATHS.flatMap((path) => [
      api.read(path, 'read', async (call) => {
        const digest = await findDigest(sql, ofCall(call));
        return done<DigestState>({ sendsMail, digest });
      }),
      api.change('PUT', path, 'read', ASKED, async (call, { timezone, now: atOnce = false }) => {
        if (!sendsMail) return invalidField('timezone', 'cannot be used: there is no mail server (SMTP_URL)');
        if (!isTimezone(timezone))
          return invalidField('timezone', 'must be an IANA time zone, such as Europe/Berlin');
        const digest = await setDigest(sql, { ...ofCall(call), timezone, atOnce, now: now() });
        return done<DigestState>({ sendsMail, digest });
      }),
      api.change('DELETE', path, 'read', NO_FIELDS, async (call) => {
        await removeDigest(sql, ofCall(call));
        return done<Nothing>({});
      }),
    ]),
    {
      ...{ method: 'GET', path: '/api/digests/:token/stop', parameters: { token: TOKEN }, headers: [] },
      // Programs follow the links of a mail to look at them: that ends nothing.
      handle: async () => page('<form method="post"><button>Stop the weekly mail</button></form>'),
    },
    {
      ...{ method: 'POST', path: '/api/digests/:token/stop', parameters: { token: TOKEN }, headers: [] },
      handle: async (exchange) => {
        await stopDigest(sql, exchange.parameters[0] ?? '');
        return page('<p>The weekly mail is stopped.</p>');
      },
    },
  ];
}

function ofCall({ app, user, parameters }: MemberCall): DigestOf {
  return { appId: app.id, boardId: parameters[1] ?? null, userId: user.id };
}

/** A page that has nothing but its text, and loads nothing. */
function page(content: string): Answer {
  return {
    status: 200,
    body: `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width"><title>Tidemark</title><main>${content}</main></html>`,
    contentType: 'text/html; charset=utf-8',
    headers: {
      'Content-Security-Policy':
        "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
      'Referrer-Policy': 'no-referrer',
      'X-Robots-Tag': 'noindex',
    },
  };
}
