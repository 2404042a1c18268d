/** An app's event types, with how many events each has. */
import type { EventTypeList } from '../api-types/answers.ts';
import { type EventType, listAnnotatingTypes, listHiddenTypes, listTypesOf } from '../apps/event-types.ts';
import { dataOf, json, objectOf } from '../http/operation.ts';
import { oneOf, Query, text, texts, wholeNumber } from '../http/query.ts';
import { EVENT_TYPE } from './answer-shapes.ts';
import { type AppRead, answered, appRead } from './app-read.ts';

/** More than an app has. */
const MOST_TYPES = 1_000_000;
const MOST_IDS = 100;

export const TYPES = {
  path: '/types',
  query: new Query({
    typeId: texts('Only this type. May be given several times; ids that are not of the app are left out.', {
      most: MOST_IDS,
    }),
    search: text('Only types whose name contains this text, in any case.', {
      convert: (sent) => sent,
    }),
    sort: oneOf(
      'In order of creation, or those with the most events first.',
      ['created', 'events'],
      'created',
    ),
    limit: wholeNumber('Most types.', { minimum: 1, absent: MOST_TYPES, largest: MOST_TYPES }),
  }),
  operation: {
    id: 'listEventTypes',
    summary: 'Read the event types of an app.',
    answers: {
      200: json('The event types.', dataOf(objectOf({ types: { type: 'array', items: EVENT_TYPE } }))),
    },
    refusals: [],
  },
} as const;

export function typesRead(): AppRead {
  return appRead(TYPES, async ({ app, sql, events }, query) => {
    const [types, hidden, annotating, stats] = await Promise.all([
      listTypesOf(sql, app.id),
      listHiddenTypes(sql, app.id),
      listAnnotatingTypes(sql, app.id),
      events.typeStats(app.id),
    ]);
    const hiddenIds = new Set(hidden.map(({ typeId }) => typeId));
    const rows = types.filter(isWanted(query)).map((type) => {
      const { count = 0, lastEventAt = null } = stats.get(type.typeId) ?? {};
      const { typeId } = type;
      return {
        ...type,
        count,
        lastEventAt,
        hidden: hiddenIds.has(typeId),
        annotation: annotating.has(typeId),
      };
    });
    if (query.sort === 'events') rows.sort((a, b) => b.count - a.count);
    return answered<EventTypeList>({ types: rows.slice(0, query.limit) });
  });
}

interface Wanted {
  readonly typeId: readonly string[];
  readonly search: string | null;
}

function isWanted({ typeId: ids, search }: Wanted): (type: EventType) => boolean {
  const wanted = new Set(ids);
  const part = search?.toLowerCase() ?? '';
  return ({ typeId, name }) => (wanted.size === 0 || wanted.has(typeId)) && name.toLowerCase().includes(part);
}
