/** GET /api/apps/:appId/live: the live feed of an app. */
import type { Api } from '../../accounts/routes/api.ts';
import type { Route } from '../../http/route.ts';
import type { LiveFeeds } from './live-feeds.ts';

export function liveRoute({ api, feeds }: { api: Api; feeds: LiveFeeds }): Route {
  return api.read(
    '/api/apps/:appId/live',
    'member',
    ({ app, user, session, exchange }) => {
      // A browser that reconnects an EventSource sends the header; a page that opens a new one can only use the query.
      const after =
        exchange.header('last-event-id') || new URLSearchParams(exchange.query).get('after') || '';
      return feeds.open({ session: session.digest, userId: user.id, appId: app.id }, after);
    },
    ['last-event-id'],
  );
}
