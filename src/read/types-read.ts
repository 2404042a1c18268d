/** An app's event types, with how many events each has. */
import type { EventTypeList } from '../api-types/answers.ts';
import { listHiddenTypes, listTypesOf } from '../apps/event-types.ts';
import { done } from '../http/data.ts';
import { dataOf, json, objectOf } from '../http/operation.ts';
import { Query } from '../http/query.ts';
import { EVENT_TYPE } from './answer-shapes.ts';
import { type AppRead, appRead } from './app-read.ts';

export const TYPES = {
  path: '/types',
  query: new Query({}),
  operation: {
    id: 'listEventTypes',
    summary: 'Read the event types of an app.',
    answers: {
      200: json(
        'All event types, in order of creation.',
        dataOf(objectOf({ types: { type: 'array', items: EVENT_TYPE } })),
      ),
    },
    refusals: [],
  },
} as const;

export function typesRead(): AppRead {
  return appRead(TYPES, async ({ app, sql, events }) => {
    const [types, hidden, stats] = await Promise.all([
      listTypesOf(sql, app.id),
      listHiddenTypes(sql, app.id),
      events.typeStats(app.id),
    ]);
    const hiddenIds = new Set(hidden.map(({ typeId }) => typeId));
    const rows = types.map((type) => {
      const { count = 0, lastEventAt = null } = stats.get(type.typeId) ?? {};
      return { ...type, count, lastEventAt, hidden: hiddenIds.has(type.typeId) };
    });
    return done<EventTypeList>({ types: rows });
  });
}
