/** Examples of the API's description: for each operation what is sent, and what comes back. A test holds them to the schemas. */

type ByType = Readonly<Record<string, unknown>>;

interface Examples {
  /** By media type. */
  readonly body?: ByType;
  /** By status and media type. */
  readonly answers: Readonly<Record<number, ByType>>;
}

const JSON_TYPE = 'application/json';
const LINES = 'application/x-ndjson';

const APP_ID = 'app_z7C93Li7rjI6ZIAFTcLG';
const TYPE_ID = 'typ_NfRPS5y2jb8JLaOe4E7Y';
const EVENT_ID = '019c132c-5bbb-777b-84d1-f2b892d3c667';
const AT = '2026-01-31T08:30:00.123Z';
const PAYLOAD = { orderId: 1001, country: 'DE', total: 129.95 };
const TOKEN = 'tdl_000000000000000000000000000000002ThHVi';

const NEW_EVENT = { typeName: 'order placed', payload: PAYLOAD, createdAt: AT };
const STORED = { eventId: EVENT_ID, typeId: TYPE_ID, timestamp: AT };
const REFUSED = {
  error: 'Invalid request body',
  details: 'The field "payload" must be a JSON object.',
  code: 'INVALID_REQUEST',
  param: 'payload',
};
const ALL_STORED = { success: true, stored: 1, refused: 0, results: [STORED] };
const SOME_STORED = { success: false, stored: 1, refused: 1, results: [STORED, REFUSED] };
const COUNTS = { success: true, stored: 1, refused: 0, errors: [] };
const EVENT = { id: EVENT_ID, typeId: TYPE_ID, payload: PAYLOAD, createdAt: AT };
const EXPORTED = { id: EVENT_ID, typeId: TYPE_ID, type: 'order placed', createdAt: AT, payload: PAYLOAD };

const POSITION = 'WyI4ODEyIl0';

const CLOUD_EVENT = { specversion: '1.0', id: 'a1', source: '/shop', type: 'order.placed', data: PAYLOAD };

const BROWSER_KEY = 'tdb_000000000000000000000000000000002zHjVn';
const COLLECT = {
  key: BROWSER_KEY,
  events: [{ type: 'page viewed', key: 'visit-1', createdAt: AT, payload: { page: 'cart' } }],
};
const COLLECTED = { success: true, stored: 1, refused: 0, errors: [], serverTime: AT };
const NOT_OF_KEY = {
  error: 'Access denied',
  details: 'The key does not write events of this type.',
  code: 'ACCESS_DENIED',
};
const UMAMI = {
  type: 'event',
  payload: { website: BROWSER_KEY, hostname: 'shop.example', url: '/cart', referrer: '' },
};
const PLAUSIBLE = { n: 'pageview', u: 'https://shop.example/cart', d: 'shop.example', r: null };

const TRACKED = {
  messageId: 'm1',
  userId: 'u1',
  event: 'Order Completed',
  properties: { total: 129.95 },
  timestamp: AT,
};

function segment(message: object): Examples {
  return { body: { [JSON_TYPE]: message }, answers: { 200: { [JSON_TYPE]: COUNTS } } };
}

const ACTIONS = `{"create":{"_index":"logs"}}\n{"message":"started","@timestamp":"${AT}"}\n`;
const BULK: Examples = {
  body: { [LINES]: ACTIONS, [JSON_TYPE]: ACTIONS },
  answers: {
    200: {
      [JSON_TYPE]: {
        took: 7,
        errors: false,
        items: [
          {
            create: {
              ...{ _index: 'logs', _id: EVENT_ID, _version: 1, result: 'created', status: 201 },
              _shards: { total: 1, successful: 1, failed: 0 },
            },
          },
        ],
      },
    },
  },
};

function data(value: unknown): Examples {
  return { answers: { 200: { [JSON_TYPE]: { success: true, data: value } } } };
}

function form(fields: Readonly<Record<string, string>>): ByType {
  return { 'application/x-www-form-urlencoded': fields };
}

/** An answer of the API of Prometheus. */
function prometheus(data: unknown): Examples {
  return { answers: { 200: { [JSON_TYPE]: { status: 'success', data } } } };
}

const PROMQL_METRIC = { __name__: 'tidemark_events_total', app: APP_ID, type: 'order placed' };
const PROMQL_RANGE = prometheus({
  resultType: 'matrix',
  result: [
    {
      metric: { type: 'order placed' },
      values: [
        [1_769_821_200, '1204'],
        [1_769_824_800, '1187'],
      ],
    },
  ],
});
const PROMQL_VALUE = prometheus({
  resultType: 'vector',
  result: [{ metric: { type: 'order placed' }, value: [1_769_821_200, '1204'] }],
});

/** By the id of the operation. */
export const EXAMPLES: Readonly<Record<string, Examples>> = {
  collectEvents: {
    body: { [JSON_TYPE]: COLLECT, 'text/plain': COLLECT },
    answers: {
      200: { [JSON_TYPE]: COLLECTED },
      207: {
        [JSON_TYPE]: {
          ...{ ...COLLECTED, success: false, stored: 0, refused: 1 },
          errors: [{ index: 0, ...NOT_OF_KEY }],
        },
      },
    },
  },
  ...Object.fromEntries(
    ['umamiEvent', 'umamiEventByKey'].map((id) => [
      id,
      {
        body: { [JSON_TYPE]: UMAMI, 'text/plain': UMAMI },
        answers: { 200: { [JSON_TYPE]: { success: true } } },
      },
    ]),
  ),
  ...Object.fromEntries(
    ['plausibleEvent', 'plausibleEventByKey'].map((id) => [
      id,
      {
        body: { [JSON_TYPE]: PLAUSIBLE, 'text/plain': PLAUSIBLE },
        answers: { 202: { 'text/plain': 'ok' } },
      },
    ]),
  ),
  ...Object.fromEntries(
    ['CollectEvents', 'UmamiEvent', 'UmamiEventByKey', 'PlausibleEvent', 'PlausibleEventByKey'].map((id) => [
      `allow${id}`,
      { answers: { 200: { [JSON_TYPE]: { success: true } } } },
    ]),
  ),
  createEvent: {
    body: { [JSON_TYPE]: { loggingToken: TOKEN, typeName: 'order placed', payload: PAYLOAD } },
    answers: { 201: { [JSON_TYPE]: { success: true, ...STORED, message: 'Event created' } } },
  },
  createEvents: {
    body: {
      [JSON_TYPE]: { events: [NEW_EVENT] },
      [LINES]: `${JSON.stringify(NEW_EVENT)}\n${JSON.stringify({ ...NEW_EVENT, createdAt: undefined })}\n`,
    },
    answers: {
      200: { [JSON_TYPE]: ALL_STORED, [LINES]: [STORED] },
      207: { [JSON_TYPE]: SOME_STORED, [LINES]: [STORED, REFUSED] },
    },
  },
  createRecords: {
    body: {
      [JSON_TYPE]: [{ level: 'info', message: 'started' }],
      [LINES]: '{"level":"info"}\n{"level":"warn"}\n',
    },
    answers: { 200: { [JSON_TYPE]: COUNTS } },
  },
  createCloudEvents: {
    body: {
      'application/cloudevents+json': CLOUD_EVENT,
      'application/cloudevents-batch+json': [CLOUD_EVENT],
    },
    answers: { 200: { [JSON_TYPE]: ALL_STORED }, 207: { [JSON_TYPE]: SOME_STORED } },
  },
  allowCloudEvents: { answers: { 200: { [JSON_TYPE]: { success: true } } } },
  createLogs: {
    body: {
      [JSON_TYPE]: {
        resourceLogs: [
          {
            scopeLogs: [
              {
                logRecords: [
                  {
                    timeUnixNano: '1769848200123000000',
                    severityText: 'INFO',
                    body: { stringValue: 'started' },
                  },
                ],
              },
            ],
          },
        ],
      },
    },
    answers: { 200: { [JSON_TYPE]: {} } },
  },
  segmentTrack: segment(TRACKED),
  segmentPage: segment({ messageId: 'm2', userId: 'u1', name: 'Home', timestamp: AT }),
  segmentScreen: segment({ messageId: 'm3', userId: 'u1', name: 'Cart', timestamp: AT }),
  segmentIdentify: segment({ messageId: 'm4', userId: 'u1', traits: { plan: 'pro' }, timestamp: AT }),
  segmentGroup: segment({ messageId: 'm5', userId: 'u1', groupId: 'g1', timestamp: AT }),
  segmentAlias: segment({ messageId: 'm6', userId: 'u1', previousId: 'visitor-7', timestamp: AT }),
  segmentBatch: segment({ batch: [{ type: 'track', ...TRACKED }] }),
  bulk: BULK,
  putBulk: BULK,
  bulkOfIndex: BULK,
  putBulkOfIndex: BULK,
  createAnnotation: {
    body: { [JSON_TYPE]: { text: 'Release 2.4.1', kind: 'deployment', at: AT } },
    answers: {
      200: { [JSON_TYPE]: { success: true, data: { annotationId: 'ann_g7t0M42nc0mTvIl7lQKa' } } },
      201: { [JSON_TYPE]: { success: true, data: { annotationId: 'ann_g7t0M42nc0mTvIl7lQKa' } } },
    },
  },
  getEvents: data({ events: [EVENT], pagination: { total: 1, limit: 100, offset: 0, hasMore: false } }),
  listApps: data({ apps: [{ appId: APP_ID, name: 'Web shop', createdAt: AT }] }),
  getAppMetrics: {
    answers: {
      200: {
        'text/plain; version=0.0.4; charset=utf-8':
          '# HELP tidemark_events_total Events ever stored, by app and type.\n' +
          '# TYPE tidemark_events_total counter\n' +
          `tidemark_events_total{app="${APP_ID}",type="order placed"} 1204\n`,
      },
    },
  },
  queryRange: PROMQL_RANGE,
  queryRangeByForm: {
    body: form({ query: 'tidemark_events_total', start: '1769821200', end: '1769824800', step: '1h' }),
    ...PROMQL_RANGE,
  },
  queryInstant: PROMQL_VALUE,
  queryInstantByForm: { body: form({ query: 'tidemark_events_total' }), ...PROMQL_VALUE },
  findSeries: prometheus([PROMQL_METRIC]),
  findSeriesByForm: { body: form({ 'match[]': 'tidemark_events_total' }), ...prometheus([PROMQL_METRIC]) },
  listLabels: prometheus(['__name__', 'app', 'name', 'type']),
  listLabelsByForm: { body: form({ limit: '10' }), ...prometheus(['__name__', 'app', 'name', 'type']) },
  listLabelValues: prometheus(['order paid', 'order placed']),
  getMetadata: prometheus({
    tidemark_events_total: [{ type: 'counter', help: 'Events ever stored, by app and type.', unit: '' }],
  }),
  listRules: prometheus({ groups: [] }),
  getBuildInformation: prometheus({ version: '2.42.0' }),
  callTools: {
    body: {
      [JSON_TYPE]: {
        ...{ jsonrpc: '2.0', id: 1, method: 'tools/call' },
        params: { name: 'breakdown', arguments: { appId: APP_ID, by: 'type', from: '2026-01-01' } },
      },
    },
    answers: {
      200: {
        [JSON_TYPE]: {
          jsonrpc: '2.0',
          id: 1,
          result: {
            content: [
              {
                type: 'text',
                text: `{"exact":true,"interval":{"from":"2026-01-01T00:00:00.000Z","to":"now"},"events":1204,"link":"https://events.example.com/apps/${APP_ID}?from=2026-01-01T00%3A00%3A00.000Z&tz=UTC","groups":[{"typeName":"order placed","count":1204,"share":1}]}`,
              },
            ],
            isError: false,
          },
        },
      },
    },
  },
  listEventTypes: data({
    types: [
      {
        typeId: TYPE_ID,
        name: 'order placed',
        createdAt: AT,
        count: 1,
        lastEventAt: AT,
        hidden: false,
        annotation: false,
      },
    ],
  }),
  listAnnotations: data({
    annotations: [
      {
        annotationId: 'ann_g7t0M42nc0mTvIl7lQKa',
        ...{ kind: 'deployment', at: AT, until: null, text: 'Release 2.4.1', createdAt: AT },
      },
    ],
    hasMore: false,
  }),
  listFields: data({
    fields: [
      {
        typeId: TYPE_ID,
        typeName: 'order placed',
        path: 'country',
        events: 1,
        share: 1,
        kinds: [{ kind: 'string', events: 1 }],
        kindChange: null,
        declaredAs: ['value'],
        ...{ unit: null, decimals: null },
        examples: ['DE'],
        lastSeenAt: AT,
      },
    ],
    truncated: false,
    sample: { events: 1, from: AT, to: AT },
  }),
  listFieldValues: data({
    values: [{ value: 'DE', events: 1 }],
    otherEvents: 0,
    exact: true,
    sample: null,
  }),
  listEvents: data({
    events: [EVENT],
    pagination: {
      limit: 1,
      nextCursor: 'YTE3Njk4NDgyMDAwMDAuMDE5YzEzMmMtNWI0MC03MTZjLTlkMWMtZjQ0YjBkM2I4ZDlh',
    },
  }),
  getEvent: data({ ...EVENT, typeName: 'order placed', appId: APP_ID }),
  getSeries: data({
    series: [
      { start: '2026-01-31T00:00:00.000Z', end: '2026-02-01T00:00:00.000Z', count: 1, partial: false },
    ],
    interval: '1d',
    timezone: 'UTC',
    from: '2026-01-31T00:00:00.000Z',
    to: '2026-02-01T00:00:00.000Z',
  }),
  queryEvents: {
    body: {
      [JSON_TYPE]: {
        ...{ filter: 'plan:pro', by: ['country'], stats: ['count', { of: 'amount', stat: 'sum' }] },
        ...{ from: '2026-01-01', to: '2026-02-01', limit: 2 },
      },
    },
    answers: {
      200: {
        [LINES]: [
          {
            ...{
              complete: true,
              counted: false,
              scannedFrom: '2026-01-01T00:00:00.000Z',
              events: 4,
              looked: 9,
            },
            ...{ from: '2026-01-01T00:00:00.000Z', to: '2026-02-01T00:00:00.000Z', timezone: 'UTC' },
            groups: [
              { by: { country: 'DE' }, count: 2, of: { amount: { count: 2, sum: 59.8 } } },
              { by: { country: 'FR' }, count: 1, of: { amount: { count: 1, sum: 20 } } },
              { other: true, count: 1, of: { amount: { count: 0, sum: 0 } } },
            ],
          },
        ],
      },
    },
  },
  followEvents: {
    answers: { 200: { 'text/event-stream': [{ id: 'mwtp67kz.ly.', event: 'ready', data: '{}' }] } },
  },
  leaseEvents: data({
    events: [
      {
        ...{ id: EVENT_ID, typeId: TYPE_ID, typeName: 'order placed' },
        ...{ payload: PAYLOAD, createdAt: AT, position: POSITION },
      },
    ],
    ...{ position: POSITION, lease: '17', leasedUntil: '2026-01-31T08:30:31.000Z' },
    ...{ deliveries: 1, hasMore: false },
  }),
  acknowledgeEvents: {
    body: { [JSON_TYPE]: { lease: '17', position: POSITION } },
    ...data({ position: POSITION }),
  },
  skipEvent: data({ eventId: EVENT_ID }),
  releaseEvents: { body: { [JSON_TYPE]: { lease: '17' } }, ...data({}) },
  exportEvents: {
    answers: {
      200: {
        [LINES]: [EXPORTED],
        'text/csv; charset=utf-8': `id,typeId,type,createdAt,payload\r\n${EVENT_ID},"${TYPE_ID}","order placed",${AT},"${JSON.stringify(PAYLOAD).replaceAll('"', '""')}"\r\n`,
      },
    },
  },
  getLiveness: {
    answers: { 200: { [JSON_TYPE]: { success: true, status: 'live', version: '0.1.0', commit: null } } },
  },
  getReadiness: {
    answers: { 200: { [JSON_TYPE]: { success: true, status: 'ready', engine: 'PostgreSQL 18.4' } } },
  },
  getMetrics: {
    answers: {
      200: {
        'text/plain; version=0.0.4; charset=utf-8':
          '# HELP process_cpu_seconds_total CPU time of the process.\n# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total 1.25\n',
      },
    },
  },
  getConfig: data({ version: 1, apps: [{ name: 'Shop', owner: 'ann@example.com' }], groups: [] }),
  putConfig: {
    body: {
      [JSON_TYPE]: { apps: [{ name: 'Shop', owner: 'ann@example.com', types: [{ name: 'order placed' }] }] },
    },
    ...data({
      dryRun: false,
      changes: [{ action: 'create', kind: 'type', app: 'Shop', name: 'order placed' }],
      kept: [],
      warnings: [],
    }),
  },
  getConfigSchema: { answers: { 200: { [JSON_TYPE]: { type: 'object', properties: {} } } } },
  getDescription: { answers: { 200: { [JSON_TYPE]: { openapi: '3.1.0', paths: {} } } } },
};
