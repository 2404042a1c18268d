/** The routes of producers that send other formats, as the API's description shows them. */
import { Rejection } from '../../errors.ts';
import { type AnswerShape, json, objectOf, WRITES } from '../../http/operation.ts';
import type { Schema } from '../../http/query.ts';
import type { Declaration } from '../../http/route.ts';
import { BATCH_ANSWER, COUNTS_ANSWER } from '../declarations.ts';
import { ATTRIBUTE_PREFIX, BATCH_TYPE, STRUCTURED_TYPE } from './cloud-events.ts';
import { LOGS_QUERY, PROTOBUF_TYPE } from './otlp/logs.ts';
import { RECORDS_QUERY } from './records.ts';
import { CALLS } from './segment-tracking.ts';

const HEADERS = ['authorization', 'content-type'] as const;
const COUNT: Schema = { type: 'integer', minimum: 0 };
const OBJECT: Schema = { type: 'object', additionalProperties: true };
const BYTES: Schema = { type: 'string', format: 'binary' };

export const CREATE_RECORDS: Declaration = {
  method: 'POST',
  path: '/v1/records',
  headers: HEADERS,
  operation: {
    id: 'createRecords',
    ...WRITES,
    summary: 'Store JSON objects as they are.',
    description:
      'For log shippers. Each object is a payload. An object that is not valid is refused by itself, and the status is 200.',
    query: RECORDS_QUERY,
    body: {
      description: 'An array of objects, or objects that follow each other, one a line or not.',
      content: {
        'application/json': { schema: { anyOf: [{ type: 'array', items: OBJECT }, OBJECT] } },
        'application/x-ndjson': { schema: { type: 'string', description: 'An object a line.' } },
      },
    },
    answers: { 200: json('What can be stored is stored.', COUNTS_ANSWER) },
    refusals: ['outcomeUnknown'],
  },
};

const CLOUD_EVENT: Schema = {
  title: 'CloudEvent',
  description: 'A CloudEvent in the JSON format.',
  ...objectOf({
    specversion: { const: '1.0' },
    id: { type: 'string', minLength: 1 },
    source: { type: 'string', minLength: 1 },
    type: { type: 'string', minLength: 1, maxLength: 200 },
  }),
  additionalProperties: true,
};

export const CREATE_CLOUD_EVENTS: Declaration = {
  method: 'POST',
  path: '/v1/cloudevents',
  headers: HEADERS,
  headerPrefix: ATTRIBUTE_PREFIX,
  operation: {
    id: 'createCloudEvents',
    ...WRITES,
    summary: 'Store CloudEvents 1.0.',
    description:
      'The HTTP binding of CloudEvents in binary, structured and batched mode. In binary mode the headers `ce-…` have the attributes.',
    body: {
      description: 'A CloudEvent, a batch of them, or the data of one in binary mode.',
      content: {
        [STRUCTURED_TYPE]: { schema: CLOUD_EVENT },
        [BATCH_TYPE]: { schema: { type: 'array', items: CLOUD_EVENT } },
        '*/*': { schema: BYTES },
      },
    },
    answers: {
      200: json('Every event is stored.', BATCH_ANSWER),
      207: json('Some or all events of the batch are refused.', BATCH_ANSWER),
    },
    refusals: ['unsupportedMediaType', 'tooManyEventTypes', 'outcomeUnknown'],
  },
};

export const CLOUD_EVENTS_HANDSHAKE: Declaration = {
  method: 'OPTIONS',
  path: '/v1/cloudevents',
  headers: [],
  operation: {
    id: 'allowCloudEvents',
    tag: 'Write',
    summary: 'Allow a sender to deliver CloudEvents.',
    description: 'The validation handshake of "HTTP 1.1 Web Hooks for Event Delivery". It needs no token.',
    token: null,
    isLimited: false,
    answers: {
      200: {
        ...json('Any origin may deliver, with a token.', objectOf({ success: { const: true } })),
        headers: {
          'WebHook-Allowed-Origin': { description: 'Any.', schema: { const: '*' } },
          'WebHook-Allowed-Rate': {
            description: 'Requests per minute that the limit of the app lets through, or `*`.',
            schema: { type: 'string' },
          },
          Allow: { description: 'The methods.', schema: { type: 'string' } },
        },
      },
    },
    refusals: [],
  },
};

/** google.rpc.Status in JSON. */
const STATUS = objectOf(
  { code: { type: 'integer' }, message: { type: 'string' } },
  { title: 'Status', description: 'google.rpc.Status.' },
);

const OTLP_ERRORS: AnswerShape['content'] = {
  [PROTOBUF_TYPE]: { schema: BYTES },
  'application/json': { schema: STATUS },
};

export const CREATE_LOGS: Declaration = {
  method: 'POST',
  path: '/v1/otlp/v1/logs',
  headers: HEADERS,
  operation: {
    id: 'createLogs',
    ...WRITES,
    summary: 'Store log records of OpenTelemetry.',
    description: 'OTLP/HTTP: `https://…/v1/otlp` is the endpoint that an exporter is given.',
    query: LOGS_QUERY,
    body: {
      description: 'An ExportLogsServiceRequest.',
      content: { [PROTOBUF_TYPE]: { schema: BYTES }, 'application/json': { schema: OBJECT } },
    },
    answers: {
      200: {
        description: 'What can be stored is stored; `partialSuccess` names the rest.',
        content: {
          [PROTOBUF_TYPE]: { schema: BYTES },
          'application/json': {
            schema: objectOf(
              {
                partialSuccess: objectOf({
                  rejectedLogRecords: { type: 'string' },
                  errorMessage: { type: 'string' },
                }),
              },
              { title: 'ExportLogsServiceResponse', optional: ['partialSuccess'] },
            ),
          },
        },
      },
    },
    refusals: ['unsupportedMediaType', 'outcomeUnknown'],
    errors: OTLP_ERRORS,
  },
};

/** Exporters that send other signals get this refusal, and drop them. */
export const OTHER_SIGNALS: readonly Declaration[] = ['traces', 'metrics'].map((signal) => ({
  method: 'POST',
  path: `/v1/otlp/v1/${signal}`,
  headers: ['content-type'],
}));

const MESSAGE: Schema = {
  type: 'object',
  description: 'A message of Segment: `messageId`, `timestamp`, `event` and whatever else it has.',
  additionalProperties: true,
};

/** By the call; `batch` takes several messages. */
export const SEGMENT_ROUTES = [...CALLS, 'batch' as const].map((call) => ({ call, ...segmentRoute(call) }));

/** Routes of Segment as libraries of phones and pages shorten them. */
export const SHORT_SEGMENT_ROUTES = SEGMENT_ROUTES.map(({ call, method, headers }) => ({
  ...{ call, method, headers },
  path: `/v1/${call.charAt(0)}`,
}));

function segmentRoute(call: (typeof CALLS)[number] | 'batch'): Declaration {
  const isBatch = call === 'batch';
  const batch = objectOf({ batch: { type: 'array', items: MESSAGE } }, { title: 'SegmentBatch' });
  return {
    method: 'POST',
    path: `/v1/${call}`,
    headers: HEADERS,
    operation: {
      id: `segment${call.charAt(0).toUpperCase()}${call.slice(1)}`,
      tag: 'Write',
      summary: isBatch ? 'Store messages of Segment.' : `Store a message of Segment's call ${call}.`,
      token: 'writeKey',
      isLimited: true,
      body: {
        description: isBatch ? 'Messages, each with its call as `type`.' : 'A message.',
        content: { 'application/json': { schema: isBatch ? batch : MESSAGE } },
      },
      answers: { 200: json('What can be stored is stored.', COUNTS_ANSWER) },
      refusals: ['tooManyEventTypes', 'outcomeUnknown'],
    },
  };
}

const BULK_ANSWER = objectOf(
  {
    took: { ...COUNT, description: 'Milliseconds.' },
    errors: { type: 'boolean', description: 'Whether an item is refused.' },
    items: { type: 'array', items: OBJECT, description: 'One for each action, in the order of the request.' },
  },
  { title: 'BulkAnswer' },
);

const ELASTIC_ERROR = objectOf(
  {
    error: objectOf({ type: { type: 'string' }, reason: { type: 'string' } }),
    status: { type: 'integer' },
  },
  { title: 'ElasticsearchError' },
);

const IN_PATH = {
  form: /^[^/]{1,512}$/,
  refusal: new Rejection('notFound', 'There is nothing at this path.'),
};
/** Clients encode a slash in it. */
const ID_IN_PATH = { ...IN_PATH, form: /^.{1,512}$/s };

function bulkRoute(method: 'POST' | 'PUT', path: string, id: string): Declaration {
  const isNamed = path.includes(':index');
  return {
    method,
    path,
    headers: HEADERS,
    ...(isNamed && { parameters: { index: IN_PATH } }),
    operation: {
      id,
      tag: 'Write',
      summary: 'Store documents as clients of Elasticsearch send them.',
      description:
        'Documents are created, with the index as event type. Other requests of a handshake are answered, too.',
      token: 'writeKey',
      isLimited: true,
      ...(isNamed && {
        path: { index: { description: 'The index of actions that name none.', schema: { type: 'string' } } },
      }),
      body: {
        description: 'Actions and documents, a line each.',
        content: {
          'application/x-ndjson': { schema: { type: 'string' } },
          'application/json': { schema: { type: 'string' } },
        },
      },
      answers: { 200: json('A result for each action.', BULK_ANSWER) },
      refusals: ['outcomeUnknown', ...(isNamed ? (['notFound'] as const) : [])],
      // Plain text where the request may be repeated.
      errors: { 'application/json': { schema: ELASTIC_ERROR }, 'text/plain': { schema: { type: 'string' } } },
    },
  };
}

/** Some clients put. */
export const BULK_ROUTES: readonly Declaration[] = [
  bulkRoute('POST', '/v1/elasticsearch/_bulk', 'bulk'),
  bulkRoute('PUT', '/v1/elasticsearch/_bulk', 'putBulk'),
  bulkRoute('POST', '/v1/elasticsearch/:index/_bulk', 'bulkOfIndex'),
  bulkRoute('PUT', '/v1/elasticsearch/:index/_bulk', 'putBulkOfIndex'),
];

/** Bulk routes with the type that indexes once had, and routes of one document a request. */
export const TYPED_BULK_ROUTES = elasticRoutes(':index/:type/_bulk');
export const DOCUMENT_ROUTES = [
  ...elasticRoutes(':index/_doc').slice(0, 1),
  ...[':index/_doc/:id', ':index/_create/:id'].flatMap(elasticRoutes),
];

function elasticRoutes(path: string): readonly Declaration[] {
  const names = path
    .split('/')
    .flatMap((part) =>
      part.startsWith(':') ? [[part.slice(1), part === ':id' ? ID_IN_PATH : IN_PATH]] : [],
    );
  return (['POST', 'PUT'] as const).map((method) => ({
    method,
    path: `/v1/elasticsearch/${path}`,
    headers: HEADERS,
    parameters: Object.fromEntries(names),
  }));
}

/** All that are described. */
export const FORMAT_ROUTES: readonly Declaration[] = [
  ...[CREATE_RECORDS, CREATE_CLOUD_EVENTS, CLOUD_EVENTS_HANDSHAKE, CREATE_LOGS],
  ...SEGMENT_ROUTES,
  ...BULK_ROUTES,
];
