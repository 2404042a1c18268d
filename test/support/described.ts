/** Holds every answer that a test receives to the API's description. */
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import { describeApi } from '../../src/http/openapi.ts';
import { API } from '../../src/service/api-description.ts';
import type { HttpResponse } from './http-client.ts';

interface DescribedAnswer {
  readonly content?: Readonly<Record<string, object>>;
  readonly headers?: Readonly<Record<string, object>>;
}

interface DescribedOperation {
  readonly responses: Readonly<Record<string, DescribedAnswer>>;
}

interface DescribedMessage {
  readonly properties: { readonly event: { readonly const: string } };
}

interface Description {
  readonly components: {
    readonly schemas: Readonly<Record<string, { readonly oneOf?: readonly DescribedMessage[] }>>;
  };
  readonly paths: Readonly<Record<string, Readonly<Record<string, DescribedOperation>>>>;
}

/** The description that the tests hold answers to. */
export const DESCRIPTION = describeApi(API, { version: 'of the tests' }) as unknown as Description;

const ajv = new Ajv2020({ strict: false, validateFormats: false });
ajv.addSchema(closed(DESCRIPTION) as object, 'api');

/** Clients must expect further fields, but the tests must not: each of them is described. */
function closed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(closed);
  if (typeof value !== 'object' || value === null) return value;
  const copy = Object.fromEntries(Object.entries(value).map(([key, item]) => [key, closed(item)]));
  const isObject = 'properties' in copy && 'required' in copy && !('additionalProperties' in copy);
  return isObject ? { ...copy, additionalProperties: false } : copy;
}

const PATTERNS = Object.keys(DESCRIPTION.paths).map((template) => ({
  template,
  segments: template.split('/'),
}));

/** The path of the description that a request's path is one of; null where there is none. */
function templateOf(path: string): string | null {
  const segments = (path.split('?')[0] ?? '').split('/');
  const found = PATTERNS.filter(
    ({ segments: expected }) =>
      expected.length === segments.length &&
      expected.every((one, i) => one === segments[i] || (one.startsWith('{') && segments[i] !== '')),
  );
  return found[0]?.template ?? null;
}

/** Headers that an answer cannot do without. */
const REQUIRED = ['x-request-id', 'retry-after', 'www-authenticate'];

/** @throws where the answer is none that the description has for the request */
export function checkAnswer(
  request: { readonly method?: string | undefined; readonly path?: string | undefined },
  response: HttpResponse,
): void {
  const { status, headers } = response;
  // What the transport itself refuses has no id, and no route.
  if (headers['x-request-id'] === undefined) return;
  const { method = 'GET', path = '/' } = request;
  const template = templateOf(path);
  const known = method === 'HEAD' ? 'get' : method.toLowerCase();
  const operation = template === null ? undefined : DESCRIPTION.paths[template]?.[known];
  if (template === null || operation === undefined) {
    if (status >= 400 && method !== 'HEAD') checkError(response, path);
    return;
  }
  const problem = problemOf({ template, known, operation, method }, response);
  if (problem !== null)
    throw new Error(
      `The description does not have this answer to ${method} ${path}: ${problem}. ${status} ${response.body.slice(0, 600)}`,
    );
}

function problemOf(
  asked: { template: string; known: string; operation: DescribedOperation; method: string },
  { status, headers, body }: HttpResponse,
): string | null {
  const { template, known, operation, method } = asked;
  const answer = operation.responses[String(status)];
  if (answer === undefined) return `no status ${status}`;
  for (const name of Object.keys(answer.headers ?? {})) {
    const value = headers[name.toLowerCase()];
    if (value === undefined && REQUIRED.includes(name.toLowerCase())) return `no header ${name}`;
  }
  if (method === 'HEAD') return null;
  if (Object.keys(answer.content ?? {}).length === 0 && body === '') return null;
  const type = headers['content-type'] ?? '';
  const mediaType = Object.keys(answer.content ?? {}).find(
    (one) => one === type || one === type.split(';')[0],
  );
  if (mediaType === undefined) return `no content of type ${type}`;
  const read = READERS[mediaType];
  if (read === undefined) return null;
  const place = ['paths', template, known, 'responses', String(status), 'content', mediaType, 'schema'];
  const validate = validatorAt(place);
  return validate(read(body)) ? null : ajv.errorsText(validate.errors);
}

/** What a schema of a media type describes. */
const READERS: Readonly<Record<string, (body: string) => unknown>> = {
  'application/json': (body) => JSON.parse(body),
  'application/x-ndjson': (body) => {
    const lines = body.split('\n');
    if (lines.pop() !== '') throw new Error('The last line has no end.');
    return lines.map((line) => JSON.parse(line));
  },
};

/** Server-sent event as a client has it; without an id of its own where none came with it. */
export interface ReceivedMessage {
  readonly event: string;
  readonly data: string;
  readonly id?: string;
}

const MESSAGES = ['components', 'schemas', 'LiveMessage'];

/** @throws where the live feed's description has no such message, or its data is not what it says of it */
export function checkMessage(message: ReceivedMessage): void {
  const variants = DESCRIPTION.components.schemas.LiveMessage?.oneOf ?? [];
  const index = variants.findIndex(({ properties }) => properties.event.const === message.event);
  const fail = (problem: string): never => {
    throw new Error(`The description does not have this message: ${problem}. ${JSON.stringify(message)}`);
  };
  const isMessage = validatorAt(MESSAGES);
  if (!isMessage(message)) fail(ajv.errorsText(isMessage.errors));
  const isData = validatorAt([...MESSAGES, 'oneOf', String(index), 'properties', 'data', 'contentSchema']);
  if (!isData(JSON.parse(message.data))) fail(ajv.errorsText(isData.errors));
}

const validators = new Map<string, ValidateFunction>();

function validatorAt(place: readonly string[]): ValidateFunction {
  const pointer = place.map((part) => part.replaceAll('~', '~0').replaceAll('/', '~1')).join('/');
  const reference = `api#/${encodeURI(pointer)}`;
  const known = validators.get(reference) ?? ajv.compile({ $ref: reference });
  validators.set(reference, known);
  return known;
}

/** What every error is, also where nothing is described. */
const isError = ajv.compile({
  type: 'object',
  required: ['success', 'error', 'details', 'code'],
  properties: {
    success: { const: false },
    error: { type: 'string', minLength: 1 },
    details: { type: 'string', minLength: 1 },
    code: { type: 'string', pattern: '^[A-Z_]+$' },
  },
});

/** The same below the addresses that clients of other protocols are given. */
const OTHER_FORMS = [
  ['/v1/elasticsearch', ['error', 'status']],
  ['/v1/otlp', ['code', 'message']],
] as const;

function checkError({ headers, status, body }: HttpResponse, path: string): void {
  if (headers['content-type'] !== 'application/json') return;
  const error = JSON.parse(body);
  const form = OTHER_FORMS.find(([prefix]) => path.startsWith(prefix));
  if (!(form?.[1].every((name) => name in error) ?? isError(error)))
    throw new Error(`An error without the error body: ${status} ${body.slice(0, 600)}`);
}
