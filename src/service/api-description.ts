/** The public API: which routes it has, and its description at /openapi.json. */

import { CONFIG_SCHEMA_ROUTE, GET_CONFIG, PUT_CONFIG } from '../configuration/routes.ts';
import { CONSUMER_ROUTES } from '../delivery/consumer-routes.ts';
import { LIVEZ, READYZ } from '../http/health.ts';
import { METRICS } from '../http/metrics-route.ts';
import { type DescriptionOptions, describeApi } from '../http/openapi.ts';
import { type AnswerShape, json } from '../http/operation.ts';
import type { Declaration, Route } from '../http/route.ts';
import { BROWSER_ROUTES } from '../ingest/browser/routes.ts';
import { CREATE_ANNOTATION } from '../ingest/create-annotation.ts';
import { CREATE_BATCH, CREATE_EVENT } from '../ingest/declarations.ts';
import { FORMAT_ROUTES } from '../ingest/formats/declarations.ts';
import { ANNOTATIONS } from '../read/annotations/annotations-read.ts';
import { SERIES } from '../read/charts/series-rows.ts';
import { EVENTS, SINGLE } from '../read/events/events-read.ts';
import { GET_EVENTS } from '../read/events/get-events.ts';
import { EXPORT } from '../read/export/export-read.ts';
import { FIELDS } from '../read/fields/fields-read.ts';
import { VALUES } from '../read/fields/values-read.ts';
import { LIVE } from '../read/live/live-read.ts';
import { MCP } from '../read/mcp/mcp-route.ts';
import { APP_METRICS } from '../read/prometheus/metrics-route.ts';
import { PROMETHEUS_API } from '../read/prometheus/query-routes.ts';
import { QUERY } from '../read/query/query-read.ts';
import { APPS, declareRead } from '../read/resource-token-routes.ts';
import { TYPES } from '../read/types-read.ts';
import { EXAMPLES } from './api-examples.ts';

const DESCRIPTION: Declaration = {
  method: 'GET',
  path: '/openapi.json',
  headers: [],
  operation: {
    id: 'getDescription',
    tag: 'Service',
    summary: 'Read this description.',
    token: null,
    isLimited: false,
    answers: { 200: json('OpenAPI 3.1.', { type: 'object' }) },
    refusals: [],
  },
};

/** Every route of the public API. */
export const API: readonly Declaration[] = [
  ...[
    CREATE_EVENT,
    CREATE_BATCH,
    ...FORMAT_ROUTES,
    ...BROWSER_ROUTES,
    CREATE_ANNOTATION,
    GET_EVENTS,
    APPS,
    APP_METRICS,
    ...PROMETHEUS_API,
    MCP,
  ],
  ...[TYPES, ANNOTATIONS, FIELDS, VALUES, EVENTS, SINGLE, SERIES, QUERY, LIVE, EXPORT].map(declareRead),
  ...CONSUMER_ROUTES,
  ...[LIVEZ, READYZ, METRICS, DESCRIPTION, CONFIG_SCHEMA_ROUTE, GET_CONFIG, PUT_CONFIG],
].map(withExamples);

type Content = AnswerShape['content'];

/** A declaration with the examples of its operation. */
function withExamples(declaration: Declaration): Declaration {
  const { operation } = declaration;
  const examples = EXAMPLES[operation?.id ?? ''];
  if (operation === undefined || examples === undefined) return declaration;
  const shown = (content: Content, of: Readonly<Record<string, unknown>> = {}): Content =>
    Object.fromEntries(
      Object.entries(content).map(([type, one]) => [type, type in of ? { ...one, example: of[type] } : one]),
    );
  const answers = Object.entries(operation.answers).map(([status, answer]) => [
    status,
    { ...answer, content: shown(answer.content, examples.answers[Number(status)]) },
  ]);
  const { body } = operation;
  return {
    ...declaration,
    operation: {
      ...operation,
      ...(body !== undefined && { body: { ...body, content: shown(body.content, examples.body) } }),
      answers: Object.fromEntries(answers),
    },
  };
}

/** GET /openapi.json. Composed when it is first asked for: it takes a fifth of the service's own time to start. */
export function descriptionRoute(options: DescriptionOptions): Route {
  let body: string | null = null;
  return {
    ...DESCRIPTION,
    handle: async () => {
      body ??= JSON.stringify(describeApi(API, options));
      return { status: 200, body };
    },
  };
}
