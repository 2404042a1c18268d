/** Routes of apps: the list, one app, new types, the end of a membership, its lists of words and its audit log. */

import { listInvitedTo } from '../../accounts/people/invitations.ts';
import { listMemberships } from '../../accounts/people/members.ts';
import type { Api } from '../../accounts/routes/api.ts';
import { auditPage } from '../../accounts/routes/audit-page.ts';
import { bodyOf, NO_FIELDS } from '../../accounts/routes/body.ts';
import { Backoff, throttled } from '../../accounts/sign-in/backoff.ts';
import type {
  App,
  AppList,
  ChangedType,
  CreatedApp,
  EventType,
  MemberRemoval,
  RemovedAppList,
  TypeActivity,
  WordSearch,
} from '../../api-types/answers.ts';
import { may, permissionsOf } from '../../base/roles.ts';
import { Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Route } from '../../http/route.ts';
import { isTimezone } from '../../storage/counts/timezone.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { createApp, renameApp } from '../apps.ts';
import { createEventType, displayEventType, renameEventType, type TypeDisplay } from '../event-types.ts';
import { removeMember } from '../member-removal.ts';
import { wasRefusedLately } from '../refused-requests.ts';
import { eraseRemovedApp, listRemovedApps, removeApp, restoreApp } from '../removed-apps.ts';
import type { Secret } from '../secret.ts';
import { readWordSearch, setWordSearch } from '../word-search.ts';

export interface AppRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly secret: Secret;
  readonly maxTypesPerApp: number;
  /** Apps that one account may own; 0 for no limit. */
  readonly maxAppsPerAccount: number;
  readonly now: () => number;
  readonly monotonic: () => number;
}

/** The name's own rules are checked later; this bound refuses long texts early. */
const NAME = bodyOf({ name: { type: 'string', maxLength: 1_000 } }, ['name']);
const CHANGED_TYPE = bodyOf({
  name: { type: 'string', maxLength: 1_000 },
  hidden: { type: 'boolean' },
  annotation: { type: 'boolean' },
});
const NO_CHANGE = new Rejection('invalidBody', 'The field "name", "hidden" or "annotation" is missing.');
/** What is missing is told after the app was found: an unknown app is 404. */
const LATE_CONFIRMATION = bodyOf({ confirm: { type: 'string', maxLength: 1_000 } }, []);
const CONFIRMATION = bodyOf({ confirm: { type: 'string', maxLength: 1_000 } }, ['confirm']);

const IDS = { type: 'array', maxItems: 1_000 } as const;
const REMOVAL = bodyOf({ keepTokens: IDS, keepWebhooks: IDS, keepAlerts: IDS });
const WORD_SEARCH = bodyOf({ isOn: { type: 'boolean' } }, ['isOn']);

const NO_ZONE = new Rejection(
  'invalidParameters',
  'timezone must be an IANA time zone, such as Europe/Berlin.',
);
const NO_TYPE = new Rejection('eventTypeNotFound', 'The app has no such event type.');

export function appRoutes(options: AppRoutesOptions): readonly Route[] {
  const { api, sql, secret, maxAppsPerAccount: maxApps, now } = options;
  // Rate limits are per app: deleting and creating apps in a loop must not bypass them.
  const ofOwner = new Backoff({ free: 2 * maxApps, longestMs: 60_000, now: options.monotonic });
  return [
    api.readInTurn('/api/apps', 'signed-in', async ({ user, exchange, sql, events }) => {
      const timezone = new URLSearchParams(exchange.query).get('timezone') || 'UTC';
      if (!isTimezone(timezone)) return NO_ZONE;
      const memberships = [...(await listMemberships(sql, user)), ...(await listInvitedTo(sql, user, now()))];
      const stats = await events.appStats(
        memberships
          .filter(({ suspendedAt, role }) => suspendedAt === null && may(role, 'read'))
          .map(({ id }) => id),
        { timezone, now: now() },
      );
      const apps = memberships.map(({ id, ...app }) => ({ ...app, ...stats.get(id) }));
      return done<AppList>({ apps });
    }),
    api.change('POST', '/api/apps', 'signed-in', NAME, async ({ user, by, note }, { name }) => {
      const wait = maxApps === 0 ? 0 : ofOwner.wait(user.userId);
      if (wait > 0) return throttled(wait);
      const made = await createApp(sql, secret, { name, ownerId: user.id, maxApps, by });
      ofOwner.begin(user.userId);
      note('app.create', { appId: made.appId });
      return done<CreatedApp>(made, { status: 201 });
    }),
    api.readInTurn('/api/apps/:appId', 'read', async ({ app: { id, suspendedAt: _, ...app }, events, sql }) =>
      done<App>({
        ...app,
        may: permissionsOf(app.role),
        ...(await events.appSpan(id)),
        refusedLately: await wasRefusedLately(sql, id, now()),
      }),
    ),
    api.change('PATCH', '/api/apps/:appId', 'own', NAME, async ({ app, by }, { name }) => {
      await renameApp(sql, { appId: app.id, name, by });
      return done<Pick<App, 'appId' | 'name'>>({ appId: app.appId, name });
    }),
    api.change('DELETE', '/api/apps/:appId', 'own', CONFIRMATION, async ({ app, by, note }, { confirm }) => {
      await removeApp(sql, { appId: app.id, confirm, by });
      note('app.delete', { appId: app.appId });
      return done<Nothing>({});
    }),
    ...binRoutes(options),
    ...typeRoutes(options),
    memberRemovalRoute(options),
    api.read('/api/apps/:appId/search', 'read', async ({ app: { appId } }) =>
      done<WordSearch>(await readWordSearch(sql, appId)),
    ),
    api.change(
      'PUT',
      '/api/apps/:appId/search',
      'own',
      WORD_SEARCH,
      async ({ app: { appId }, by }, { isOn }) =>
        done<WordSearch>(await setWordSearch(sql, { appId, isOn, by })),
    ),
    api.readInTurn('/api/apps/:appId/audit', 'read', ({ app, exchange, sql }) =>
      auditPage(sql, { appId: app.id }, exchange),
    ),
  ];
}

function typeRoutes({ api, sql, maxTypesPerApp, now }: AppRoutesOptions): readonly Route[] {
  return [
    api.change('POST', '/api/apps/:appId/types', 'change', NAME, async ({ app, by }, { name }) =>
      done<Pick<EventType, 'typeId' | 'name'>>(
        await createEventType(sql, { appId: app.appId, name, maxTypes: maxTypesPerApp, by }),
        {
          status: 201,
        },
      ),
    ),
    api.change(
      'PATCH',
      '/api/apps/:appId/types/:typeId',
      'change',
      CHANGED_TYPE,
      async ({ app, by, parameters }, { name, hidden, annotation }) => {
        const type = { appId: app.id, typeId: parameters[1] ?? '', by };
        if (name === undefined && hidden === undefined && annotation === undefined) return NO_CHANGE;
        const displays = Object.entries({ hidden, annotation } as const) as [
          TypeDisplay,
          boolean | undefined,
        ][];
        let isThere = name === undefined || (await renameEventType(sql, { ...type, name }));
        for (const [display, isOn] of displays)
          if (isOn !== undefined) isThere &&= await displayEventType(sql, { ...type, display, isOn });
        return isThere ? done<ChangedType>({ typeId: type.typeId, name, hidden, annotation }) : NO_TYPE;
      },
    ),
    api.readInTurn('/api/apps/:appId/type-activity', 'read', async ({ app, events }) =>
      done<TypeActivity>({ activity: Object.fromEntries(await events.typeActivity(app.id, now())) }),
    ),
  ];
}

/** An owner removes a member, or a member leaves. */
function memberRemovalRoute({ api, sql }: AppRoutesOptions): Route {
  return api.change('DELETE', '/api/apps/:appId/members/:userId', 'read', REMOVAL, async (call, body) => {
    const { app, user, note } = call;
    const { keepTokens = [], keepWebhooks = [], keepAlerts = [] } = body;
    const keep = { tokens: keepTokens, senders: [...keepWebhooks, ...keepAlerts] };
    const userId = call.parameters[1] ?? '';
    const removal = await removeMember(sql, { appId: app.id, userId, keep, user });
    if (removal instanceof Rejection) return removal;
    const { email, ...made } = removal;
    const { appId } = app;
    if (userId === user.userId) note('member.leave', { appId });
    else note('member.remove', { appId, targetUserId: userId, targetEmail: email });
    for (const { tokenId } of made.revokedTokens) note('resource-token.revoke', { appId, tokenId });
    for (const { tokenId } of made.keptTokens) note('resource-token.keep', { appId, tokenId });
    return done<MemberRemoval>(made);
  });
}

/** The apps that an account owned and that wait in the bin: they have no members, so these routes are outside of them. */
function binRoutes({ api, sql }: AppRoutesOptions): readonly Route[] {
  return [
    api.read('/api/removed-apps', 'signed-in', async ({ user }) =>
      done<RemovedAppList>({ apps: await listRemovedApps(sql, user) }),
    ),
    api.change(
      'POST',
      '/api/removed-apps/:appId/restore',
      'signed-in',
      NO_FIELDS,
      async ({ user, by, parameters, note }) => {
        const appId = parameters[0] ?? '';
        const restored = await restoreApp(sql, { appId, ownerId: user.id, by });
        note('app.restore', { appId });
        return done<Pick<App, 'appId' | 'name'>>(restored);
      },
    ),
    api.change(
      'DELETE',
      '/api/removed-apps/:appId',
      'signed-in',
      LATE_CONFIRMATION,
      async ({ user, by, parameters, note }, { confirm = '' }) => {
        const appId = parameters[0] ?? '';
        await eraseRemovedApp(sql, { appId, ownerId: user.id, confirm, by });
        note('app.erase', { appId });
        return done<Nothing>({});
      },
    ),
  ];
}
