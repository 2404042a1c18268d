/** GET /api/apps/:appId/live: what happens in an app, as it happens. */
import type { Api } from '../../accounts/routes/api.ts';
import type { Route } from '../../http/route.ts';
import type { LiveFeeds } from './live-feeds.ts';

export function liveRoute({ api, feeds }: { api: Api; feeds: LiveFeeds }): Route {
  return api.read(
    '/api/apps/:appId/live',
    'member',
    ({ app, user, session, exchange }) => {
      // A browser sends the header when it comes again by itself; a page that does so can only say it in the query.
      const after =
        exchange.header('last-event-id') || new URLSearchParams(exchange.query).get('after') || '';
      return feeds.open({ session: session.digest, userId: user.id, appId: app.id }, after);
    },
    ['last-event-id'],
  );
}
