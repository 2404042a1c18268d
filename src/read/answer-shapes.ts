/** Schemas of what reads answer, for the API's description. A title makes a named schema of it. */
import type { EventType, ReadableApp } from '../api-types/answers.ts';
import { objectOf } from '../http/operation.ts';
import type { Schema } from '../http/query.ts';

export const APP_ID: Schema = { type: 'string', examples: ['app_8hG2kXw0RzQ4vT6bN1sY'] };
export const TYPE_ID: Schema = { type: 'string', examples: ['typ_Y3IfcFTteLRhPnUexNwr'] };
export const EVENT_ID: Schema = {
  type: 'string',
  pattern: '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$',
  examples: ['01a1f95a-a1cb-76ff-978c-f7bb01499ade'],
};
/** ISO 8601 in UTC, to the millisecond. */
export const TIMESTAMP: Schema = {
  type: 'string',
  format: 'date-time',
  pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z$',
  examples: ['2026-11-20T14:27:08.875Z'],
};
export const SEARCHED_BY_NOTE =
  '`scan`: payloads were read. `words`: lists of words said where to look. `mixed`: some each way. Answers are the same.';
export const COUNT: Schema = { type: 'integer', minimum: 0 };
export const PAYLOAD: Schema = {
  type: 'object',
  additionalProperties: true,
  description: 'The exact JSON text that was sent.',
};
export const CURSOR: Schema = { type: 'string', pattern: '^[A-Za-z0-9_-]+$' };

export const nullable = (schema: Schema): Schema => ({ anyOf: [schema, { type: 'null' }] });

export const EVENT = objectOf(
  { id: EVENT_ID, typeId: TYPE_ID, payload: PAYLOAD, createdAt: TIMESTAMP },
  { title: 'Event' },
);

export const SINGLE_EVENT = objectOf(
  {
    id: EVENT_ID,
    typeId: TYPE_ID,
    typeName: { type: 'string' },
    appId: APP_ID,
    payload: PAYLOAD,
    createdAt: TIMESTAMP,
  },
  { title: 'SingleEvent' },
);

export const EVENT_TYPE = objectOf<EventType>(
  {
    typeId: TYPE_ID,
    name: { type: 'string' },
    createdAt: TIMESTAMP,
    count: { ...COUNT, description: 'All events of the type, also those whose rows retention has removed.' },
    lastEventAt: {
      ...nullable(TIMESTAMP),
      description: 'The time of its newest event that can still be read; null if there is none.',
    },
    hidden: {
      type: 'boolean',
      description: 'Whether charts of the dashboard leave the type out until they are asked for it.',
    },
    annotation: {
      type: 'boolean',
      description: 'Whether charts of the dashboard mark each of its events, as an annotation.',
    },
  },
  { title: 'EventType' },
);

export const APP = objectOf<ReadableApp>(
  { appId: APP_ID, name: { type: 'string' }, createdAt: TIMESTAMP },
  { title: 'App' },
);
