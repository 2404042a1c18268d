/** Shares of an app: every member reads which there are, maintainers and owners make and revoke them. */

import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf, NO_FIELDS } from '../../accounts/routes/body.ts';
import type { Passwords } from '../../accounts/sign-in/passwords.ts';
import type { NewShare, ShareCollection } from '../../api-types/answers.ts';
import { createShare, LISTS, listShares, MAX_ORIGINS, revokeShare } from '../../apps/shares.ts';
import { parseRange } from '../../base/ranges.ts';
import { OWN_RANGES } from '../../base/view.ts';
import { invalidField, Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import { isTimezone } from '../../storage/counts/timezone.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { MAX_FILTERS } from '../filter/filter-query.ts';
import { parseFilters } from '../filter/payload-filter.ts';
import { hasEvents } from '../scope-query.ts';

const NEW_SHARE = bodyOf(
  {
    viewId: { type: 'string', maxLength: 100 },
    boardId: { type: 'string', maxLength: 100 },
    range: { type: 'string', maxLength: 100 },
    timezone: { type: 'string', maxLength: 100 },
    filters: { type: 'array', maxItems: MAX_FILTERS },
    list: { type: 'string', enum: LISTS },
    password: { type: 'string', minLength: 8, maxLength: 1_000 },
    endsAt: { type: 'string', maxLength: 40 },
    origins: { type: 'array', maxItems: MAX_ORIGINS },
  },
  ['range', 'timezone'],
);
const NO_SHARE = new Rejection('shareNotFound', 'The app has no such share: it was revoked before.');

const PATH = '/api/apps/:appId/shares';

export interface ShareRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly passwords: Passwords;
  readonly now: () => number;
}

export function shareRoutes({ api, sql, passwords, now }: ShareRoutesOptions): readonly Route[] {
  return [
    api.read(PATH, 'read', async ({ app }) =>
      done<ShareCollection>({ shares: await listShares(sql, app.id) }),
    ),
    api.change('POST', PATH, 'change', NEW_SHARE, async ({ app, by, client, baseUrl, note }, body) => {
      const { range, timezone, filters = [], origins = [], password, viewId = null, boardId = null } = body;
      const endsAt = body.endsAt === undefined ? null : new Date(body.endsAt);
      const hasOwn = range === OWN_RANGES && boardId !== null;
      if (!hasOwn && !hasEvents(parseRange(range)))
        return invalidField(
          'range',
          'must be such as 7d, all or today, or two instants in ISO 8601 with ~ between them; of a board also views',
        );
      if (!isTimezone(timezone))
        return invalidField('timezone', 'must be an IANA time zone, such as Europe/Berlin');
      const problem = parseFilters(filters);
      if (typeof problem === 'string') return invalidField('filters', problem);
      if (endsAt !== null && !(endsAt.getTime() > now()))
        return invalidField('endsAt', 'must be an instant in ISO 8601 that is not over');
      const asker = { ...client, isKnown: true, failures: 0 };
      const passwordHash = password === undefined ? null : await passwords.hash(password, asker);
      if (passwordHash instanceof Rejection) return passwordHash;
      // The schema has checked it.
      const list = (body.list ?? 'none') as (typeof LISTS)[number];
      const terms = { range, timezone, filters, list, origins, endsAt, passwordHash };
      const { shareId, secret } = await createShare(sql, { appId: app.id, viewId, boardId, by, ...terms });
      note('share.create', { appId: app.appId, shareId });
      return done<NewShare>({ shareId, url: `${baseUrl}/shared/${secret}` }, { status: 201 });
    }),
    api.change('DELETE', `${PATH}/:shareId`, 'change', NO_FIELDS, async ({ app, by, parameters, note }) => {
      const shareId = parameters[1] ?? '';
      const isRevoked = await sql.begin((tx) => revokeShare(tx, { appId: app.id, shareId, by }));
      if (isRevoked) note('share.revoke', { appId: app.appId, shareId });
      return isRevoked ? done<Nothing>({}) : NO_SHARE;
    }),
  ];
}
