/** The API's description in OpenAPI 3.1, composed from what the routes declare. */
import { ERRORS_PAGE, REFUSALS, type Reason } from '../errors.ts';
import { BASIC_CHALLENGE } from './bearer.ts';
import type { AnswerShape, Described, Operation, TokenKind } from './operation.ts';
import { objectOf } from './operation.ts';
import type { Schema } from './query.ts';
import type { Declaration } from './route.ts';

type Json = Readonly<Record<string, unknown>>;

export interface DescriptionOptions {
  readonly version: string;
  /** Where the service is reached; absent: where the description comes from. */
  readonly url?: string;
}

/** What any route may refuse: a broken Transfer-Encoding, a fault, an overload or an outage. */
const OF_EVERY_ROUTE: readonly Reason[] = ['invalidParameters', 'internalError', 'unavailable'];

const TOKENS: Readonly<Record<TokenKind, Json>> = {
  loggingToken: {
    type: 'http',
    scheme: 'bearer',
    description: 'The logging token of an app: `tdl_` and 38 characters.',
  },
  writeKey: {
    type: 'http',
    scheme: 'basic',
    description: 'The logging token of an app as user name or password.',
  },
  resourceToken: {
    type: 'http',
    scheme: 'bearer',
    description: 'A resource token, which may read one or more apps: `tdr_` and 38 characters.',
  },
  managementToken: {
    type: 'http',
    scheme: 'bearer',
    description: 'A management token, for the configuration of the installation: `tdm_` and 38 characters.',
  },
  metricsToken: { type: 'http', scheme: 'bearer', description: 'The value of `METRICS_TOKEN`.' },
};

const REFUSED_TOKENS: Readonly<Record<TokenKind, Reason>> = {
  loggingToken: 'invalidLoggingToken',
  writeKey: 'invalidLoggingToken',
  resourceToken: 'invalidResourceToken',
  managementToken: 'invalidManagementToken',
  metricsToken: 'accessDenied',
};

const JSON_TYPE = 'application/json';

const WHOLE_NUMBER = { type: 'string', pattern: '^[0-9]+$' };

const HEADERS: Readonly<Record<string, Described>> = {
  'X-Request-Id': { description: 'Identifies the request in the log.', schema: { type: 'string' } },
  'RateLimit-Limit': { description: 'Requests in any 60 seconds.', schema: WHOLE_NUMBER },
  'RateLimit-Remaining': { description: 'What is left of them.', schema: WHOLE_NUMBER },
  'RateLimit-Reset': {
    description: 'Seconds until the oldest counted request leaves the window.',
    schema: WHOLE_NUMBER,
  },
  'Retry-After': {
    description: 'Whole seconds after which a retry makes sense.',
    schema: { type: 'string', pattern: '^[1-9][0-9]*$' },
  },
  'WWW-Authenticate': { description: 'How to authenticate.', schema: { enum: ['Bearer', BASIC_CHALLENGE] } },
};
const RATE_LIMIT = ['RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset'];

const TAGS = [
  { name: 'Write', description: 'Store events, with the logging token of an app.' },
  { name: 'Read', description: 'Read events, types and counts, with a resource token.' },
  { name: 'Service', description: 'For supervisors and monitoring.' },
];

const SUMMARY = `Event logging and retrieval. Errors have the body \`Error\`, except on the routes of OpenTelemetry and
Elasticsearch, which word errors as their clients expect; an overloaded server sends \`Error\` there, too. The first check that
fails is the response. Writes check in this order: token, rate limit, parameters, size and encoding, document, events; but
\`POST /public/create_event\`, whose token is in the body, checks size, JSON and fields before the token. Reads check in this
order: token, rate limit, app, permission, parameters; but \`GET /public/get_events\` checks parameters before the app. \`/public\`
and the routes of other protocols ignore parameters that they do not have; the other routes refuse them.`;

/** Composes the description. Routes without an operation are left out. */
export function describeApi(declarations: readonly Declaration[], options: DescriptionOptions): Json {
  const named = new Map<string, Schema>();
  const paths: Record<string, Record<string, unknown>> = {};
  for (const declaration of declarations) {
    const { method, path, operation } = declaration;
    if (operation === undefined) continue;
    const template = path.replaceAll(/:(\w+)/g, '{$1}');
    paths[template] = { ...paths[template], [method.toLowerCase()]: describe(operation) };
  }
  const described = hoist(paths, named) as Json;
  return {
    openapi: '3.1.0',
    info: {
      title: 'Tidemark',
      version: options.version,
      summary: 'Event logging and retrieval service.',
      description: SUMMARY.replaceAll('\n', ' '),
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    externalDocs: { description: 'The codes of errors.', url: `${options.url ?? ''}${ERRORS_PAGE}` },
    servers: [{ url: options.url ?? '/' }],
    security: [],
    tags: TAGS,
    paths: described,
    components: {
      schemas: Object.fromEntries([...named].sort(([a], [b]) => (a < b ? -1 : 1))),
      headers: HEADERS,
      securitySchemes: TOKENS,
    },
  };
}

function describe(operation: Operation): Json {
  const { id, tag, summary, description, token, isTokenOptional = false, body } = operation;
  const parameters = parametersOf(operation);
  return {
    operationId: id,
    tags: [tag],
    summary,
    ...(description !== undefined && { description }),
    security: token === null ? [] : [{ [token]: [] }, ...(isTokenOptional ? [{}] : [])],
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && {
      requestBody: { required: true, description: body.description, content: body.content },
    }),
    // What a route declares of a status says more than its refusals do.
    responses: { ...refusalsOf(operation), ...answersOf(operation) },
  };
}

function parametersOf({ path = {}, query, headers = {} }: Operation): Json[] {
  const fixed = (place: 'path' | 'header', given: Readonly<Record<string, Described>>): Json[] =>
    Object.entries(given).map(([name, described]) => ({
      name,
      in: place,
      required: place === 'path',
      ...described,
    }));
  const ofQuery = Object.entries(query?.parameters ?? {}).map(
    ([name, { description, schema, required = false }]) => ({
      name,
      in: 'query',
      required,
      description,
      schema,
    }),
  );
  return [...fixed('path', path), ...ofQuery, ...fixed('header', headers)];
}

function answersOf(operation: Operation): Record<string, Json> {
  const { answers, isLimited } = operation;
  const described = ([status, answer]: [string, AnswerShape]): [string, Json] => {
    const { headers, ...rest } = answer;
    return [status, { ...rest, headers: { ...headersOf(isLimited ? RATE_LIMIT : []), ...headers } }];
  };
  return Object.fromEntries(Object.entries(answers).map(described));
}

/** One response for each status that the route refuses with. */
function refusalsOf(operation: Operation): Record<string, Json> {
  const { token, body, isLimited, refusals } = operation;
  const reasons = new Set<Reason>([...OF_EVERY_ROUTE, ...refusals]);
  if (token !== null) reasons.add(REFUSED_TOKENS[token]);
  if (isLimited) reasons.add('rateLimitExceeded');
  if (body !== undefined)
    for (const reason of ['invalidBody', 'payloadTooLarge', 'unsupportedEncoding'] as const)
      reasons.add(reason);
  const byStatus = new Map<number, Reason[]>();
  for (const reason of reasons) {
    const { status } = REFUSALS[reason];
    byStatus.set(status, [...(byStatus.get(status) ?? []), reason]);
  }
  return Object.fromEntries([...byStatus].map(([status, of]) => [status, refusal(status, of, operation)]));
}

function refusal(
  status: number,
  reasons: readonly Reason[],
  { token, isLimited, errors: others = {}, refusalProperties = {} }: Operation,
): Json {
  const rows = reasons.map((reason) => REFUSALS[reason]);
  const unique = (values: readonly string[]): string[] => [...new Set(values)];
  const errors = unique(rows.map(({ error }) => error));
  const headers = [
    ...(status === 401 && token !== null ? ['WWW-Authenticate'] : []),
    ...(status === 429 || status === 500 || status === 503 ? ['Retry-After'] : []),
    // A request without a valid token is not counted, and the size of a body may be known before the token.
    ...(isLimited && status === 429 ? RATE_LIMIT : []),
  ];
  const codes = unique(rows.map(({ code }) => code));
  const known = {
    properties: { error: { enum: errors }, code: { enum: codes } },
  };
  return {
    description: `${errors.join(', or: ')}.`,
    headers: headersOf(headers),
    content: contentOf({ allOf: [errorWith(refusalProperties[status]), known] }, others),
  };
}

/** The API's own error body, which an overloaded server sends on every route, beside another protocol's. */
function contentOf(schema: Schema, { [JSON_TYPE]: other, ...others }: AnswerShape['content']): Json {
  return {
    [JSON_TYPE]: { schema: other === undefined ? schema : { anyOf: [other.schema, schema] } },
    ...others,
  };
}

const ERROR_PROPERTIES: Readonly<Record<string, Schema>> = {
  success: { const: false },
  error: { type: 'string', description: 'A short message.' },
  details: {
    type: 'string',
    minLength: 1,
    description: 'What is wrong, and with which field or parameter.',
  },
  code: { type: 'string', description: 'The machine-readable reason.' },
  param: {
    type: 'string',
    description: 'The parameter or the field of the body that is at fault, where it is one.',
  },
  docs: {
    type: 'string',
    description: 'Where this service explains the code: a path, relative to the address of the service.',
    examples: [`${ERRORS_PAGE}#INVALID_REQUEST`],
  },
};
const OPTIONAL_PROPERTIES = ['param', 'docs'];

/** The body of every error. */
export const ERROR = objectOf(ERROR_PROPERTIES, { title: 'Error', optional: OPTIONAL_PROPERTIES });

/** @param further properties, which only some refusals have */
function errorWith(further: Readonly<Record<string, Schema>> | undefined): Schema {
  if (further === undefined) return ERROR;
  return objectOf(
    { ...ERROR_PROPERTIES, ...further },
    { optional: [...OPTIONAL_PROPERTIES, ...Object.keys(further)] },
  );
}

function headersOf(names: readonly string[]): Record<string, Json> {
  return Object.fromEntries(
    ['X-Request-Id', ...names].map((name) => [name, { $ref: `#/components/headers/${name}` }]),
  );
}

/** Puts each schema with a title among the named ones, and a reference in its place. */
function hoist(value: unknown, named: Map<string, Schema>): unknown {
  if (Array.isArray(value)) return value.map((item) => hoist(item, named));
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, item]) => [key, hoist(item, named)]);
  const copy: Record<string, unknown> = Object.fromEntries(entries);
  const { title } = copy;
  if (typeof title !== 'string') return copy;
  named.set(title, copy);
  return { $ref: `#/components/schemas/${title}` };
}
