/** What happens in an app, as it happens. */
import { Query, text } from '../../http/query.ts';
import { type AppRead, appReadByParts } from '../app-read.ts';
import type { LiveFeeds } from './live-feeds.ts';
import { LIVE_MESSAGE } from './messages.ts';

const LAST_EVENT_ID = 'last-event-id';

export const LIVE = {
  path: '/live',
  headers: [LAST_EVENT_ID],
  query: new Query({
    after: text('The id of the last message received, for clients that cannot send `Last-Event-ID`.', {
      convert: (id) => id,
    }),
  }),
  operation: {
    id: 'followEvents',
    summary: 'Follow new events as they are stored.',
    description:
      'Server-sent events, described as an array of messages. The id of a message is a cursor: with it the feed continues on ' +
      'any process, and nothing is missed. A message without data only sets a newer id; comments are heartbeats.',
    headers: {
      'Last-Event-ID': {
        description: 'The id of the last message received. Absent: from now on.',
        schema: { type: 'string' },
      },
    },
    answers: {
      200: {
        description: 'Messages, until the client leaves, its access ends or the service stops.',
        // OpenAPI has `itemSchema` for this from 3.2 on, where `schema` is that of the whole as an array: so this one stays true.
        content: { 'text/event-stream': { schema: { type: 'array', items: LIVE_MESSAGE } } },
      },
    },
    refusals: ['tooManyLiveFeeds'],
  },
} as const;

export function liveRead(feeds: LiveFeeds): AppRead {
  // A browser sends the header when it comes again by itself; a page that does so can only say it in the query.
  return appReadByParts(LIVE, ({ app, holder, exchange, turns }, { after }) =>
    feeds.open(
      { holder, account: turns[0] ?? '', appId: app.id },
      exchange.header(LAST_EVENT_ID) || (after ?? ''),
    ),
  );
}
