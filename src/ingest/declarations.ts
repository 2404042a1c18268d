/** The routes of producers, as the API's description shows them. */
import { type AnswerShape, json, objectOf, WRITES } from '../http/operation.ts';
import type { Schema } from '../http/query.ts';
import type { Declaration } from '../http/route.ts';
import { LINES_TYPE } from './batch-answer.ts';
import { BATCH_QUERY } from './formats/events.ts';
import { IDEMPOTENCY_KEY } from './idempotency-key.ts';
import { EVENT_SCHEMA } from './parse/batch-event.ts';
import { BODY_SCHEMA } from './parse/event-body.ts';

const UUID: Schema = {
  type: 'string',
  pattern: '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$',
};
export const TIMESTAMP: Schema = {
  type: 'string',
  format: 'date-time',
  pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z$',
};
export const COUNT: Schema = { type: 'integer', minimum: 0 };

const TYPE_NAME: Schema = {
  type: ['string', 'null'],
  maxLength: 200,
  description:
    'The event type of this name, which is created if it is new. Ignored if `typeId` is given. Null and empty count as absent.',
};

/** What the parsers check beside the schemas, for the description. */
const EVENT_KEY = {
  type: ['string', 'null'],
  maxLength: 200,
  description:
    'An event with the same `key`, `createdAt`, type and app is stored once, however often it is sent. Requires `createdAt`. Null and empty count as absent.',
};

/** Further fields of the refusal EVENT_IN_FUTURE. */
const IN_FUTURE = {
  serverTime: { ...TIMESTAMP, description: 'With `EVENT_IN_FUTURE`: what the clock of the service showed.' },
  aheadMs: {
    type: 'integer',
    minimum: 1,
    description: 'With `EVENT_IN_FUTURE`: how far the event is ahead of that, in milliseconds.',
  },
} as const;
const IN_FUTURE_NAMES = ['serverTime', 'aheadMs'] as const;

const REPEATED: Schema = {
  const: true,
  description: 'An event with this `key` and `createdAt` was stored before, and has this id.',
};

const IDEMPOTENCY = {
  'Idempotency-Key': {
    description: 'Makes retries safe: a repeat within 24 hours gets the first response.',
    schema: { type: 'string', pattern: '^[!-~]{1,200}$' },
  },
} as const;

const REPLAYED = {
  'Idempotent-Replayed': {
    description: '`true` if this is the response of an earlier request with the same key.',
    schema: { const: 'true' },
  },
} as const;

/** Both schemas leave out what is only checked where something else is given. */
function described<S extends { readonly properties: object }>(
  schema: S,
  title: string,
  properties: Readonly<Record<string, Schema>> = {},
): Schema {
  const all = { ...schema.properties, typeName: TYPE_NAME, key: EVENT_KEY, ...properties };
  return { title, ...schema, properties: all };
}

const KEYED_TIME: Schema = {
  description: 'With a `key`: the time of the event, ISO 8601. Ignored without one.',
};

export const CREATE_EVENT: Declaration = {
  method: 'POST',
  path: '/public/create_event',
  headers: [IDEMPOTENCY_KEY],
  operation: {
    id: 'createEvent',
    tag: 'Write',
    summary: 'Store one event.',
    description: 'The logging token is a field of the body. 201 is sent after the event has been committed.',
    token: null,
    isLimited: true,
    headers: IDEMPOTENCY,
    body: {
      description: 'One of `typeId` and `typeName` is required. Unknown fields are ignored.',
      content: {
        'application/json': { schema: described(BODY_SCHEMA, 'NewEvent', { createdAt: KEYED_TIME }) },
      },
    },
    answers: {
      201: {
        ...json(
          'The event is stored.',
          objectOf(
            {
              success: { const: true },
              eventId: UUID,
              typeId: { type: 'string' },
              timestamp: { ...TIMESTAMP, description: 'The `createdAt` of the event.' },
              repeated: REPEATED,
              message: { type: 'string' },
            },
            { title: 'CreatedEvent', optional: ['repeated'] },
          ),
        ),
        headers: REPLAYED,
      },
    },
    refusalProperties: { 400: IN_FUTURE },
    refusals: [
      ...([
        'schemaViolation',
        'eventInFuture',
        'invalidLoggingToken',
        'eventTypeNotFound',
        'tooManyEventTypes',
        'idempotencyKeyReused',
      ] as const),
      'outcomeUnknown',
    ],
  },
};

/** Why an event is refused. */
const REFUSED = {
  error: { type: 'string' },
  details: { type: 'string' },
  code: { type: 'string' },
  param: { type: 'string', description: 'The field that is at fault, where it is one.' },
  ...IN_FUTURE,
} as const;
const OPTIONAL_OF_REFUSED = ['param', ...IN_FUTURE_NAMES];

/** An event that is not stored. */
export const REFUSED_EVENT: Schema = objectOf(REFUSED, { optional: OPTIONAL_OF_REFUSED });

const RESULT: Schema = {
  title: 'BatchResult',
  description: 'What became of one event.',
  anyOf: [
    objectOf(
      { eventId: UUID, typeId: { type: 'string' }, timestamp: TIMESTAMP, repeated: REPEATED },
      { optional: ['repeated'] },
    ),
    REFUSED_EVENT,
  ],
};

/** The headers that the routes of batches read. */
const BATCH_HEADERS = ['accept', 'authorization', 'content-type', IDEMPOTENCY_KEY] as const;

const FIRST_ERRORS: Schema = {
  type: 'array',
  description: 'The first refusals.',
  items: objectOf(
    { index: { ...COUNT, description: 'Of the event in the request.' }, ...REFUSED },
    { optional: OPTIONAL_OF_REFUSED },
  ),
};

export const COUNTS_ANSWER = objectOf(
  {
    success: { type: 'boolean', description: 'Whether every event is stored.' },
    stored: COUNT,
    refused: COUNT,
    errors: FIRST_ERRORS,
  },
  { title: 'CountsAnswer' },
);

export const BATCH_ANSWER = objectOf(
  {
    success: { type: 'boolean', description: 'Whether every event is stored.' },
    stored: COUNT,
    refused: COUNT,
    results: {
      type: 'array',
      items: RESULT,
      description: 'One for each event, in the order of the request.',
    },
  },
  { title: 'BatchAnswer' },
);

const EVENT_ARRAY: Schema = {
  type: 'array',
  minItems: 1,
  items: described(EVENT_SCHEMA, 'NewBatchEvent'),
};
const BATCH = objectOf({ events: EVENT_ARRAY }, { title: 'Batch' });

/** How far a request of many lines has come. */
const PROGRESS = {
  stored: COUNT,
  refused: COUNT,
  resumeAt: { ...COUNT, description: 'Index of the first event that is to be sent again.' },
  errors: FIRST_ERRORS,
} as const;

/** The last line of an answer that ends before all events are done. */
const LINES_END = objectOf(
  {
    ...REFUSED,
    ...PROGRESS,
    retryAfterSeconds: { type: 'integer', minimum: 1 },
  },
  {
    title: 'LinesEnd',
    description: 'Why the events from `resumeAt` on are not done: the last line.',
    optional: [...OPTIONAL_OF_REFUSED, 'retryAfterSeconds'],
  },
);

const RESULT_LINES = {
  [LINES_TYPE]: {
    schema: {
      type: 'array',
      items: { anyOf: [RESULT, LINES_END] },
      description: 'A `BatchResult` a line; a `LinesEnd` if the request ends early.',
    },
  },
};

function batchAnswers(description: string): AnswerShape {
  const { content } = json(description, { anyOf: [BATCH_ANSWER, COUNTS_ANSWER] });
  return { description, content: { ...content, ...RESULT_LINES }, headers: REPLAYED };
}

export const CREATE_BATCH: Declaration = {
  method: 'POST',
  path: '/v1/events',
  headers: BATCH_HEADERS,
  operation: {
    id: 'createEvents',
    ...WRITES,
    summary: 'Store many events.',
    description:
      'Up to 10,000 events are a batch. Newline-delimited events may be more: they are stored while they arrive, and the response has counts.',
    query: BATCH_QUERY,
    headers: IDEMPOTENCY,
    body: {
      description:
        'Events as one JSON document, or one a line. With `Accept: application/x-ndjson` the results are lines, too.',
      content: {
        'application/json': { schema: { anyOf: [BATCH, EVENT_ARRAY] } },
        'application/x-ndjson': { schema: { type: 'string', description: 'A `NewBatchEvent` a line.' } },
      },
    },
    answers: {
      200: batchAnswers('Every event is stored.'),
      207: batchAnswers('Some or all events are refused.'),
    },
    refusalProperties: {
      ...Object.fromEntries([413, 429, 500, 503].map((status) => [status, PROGRESS])),
      400: {
        ...PROGRESS,
        results: {
          type: 'array',
          items: RESULT,
          description: 'Of an atomic batch: one for each event, in the order of the request.',
        },
      },
    },
    refusals: ['batchRefused', 'tooManyEventTypes', 'idempotencyKeyReused', 'outcomeUnknown'],
  },
};
