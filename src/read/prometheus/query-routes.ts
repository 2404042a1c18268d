/**
 * Queries in PromQL, by the HTTP API of Prometheus (https://prometheus.io/docs/prometheus/latest/querying/api/): the past of every
 * counter of GET /v1/apps/metrics, computed from the counts, for Grafana and for rules.
 */
import type { ResourceToken } from '../../apps/resource-token-lookup.ts';
import { inSlices, TimeSlice } from '../../base/time-slice.ts';
import { Rejection } from '../../errors.ts';
import { basicCredentials, bearerToken } from '../../http/bearer.ts';
import { ACCEPT_ENCODING, compressedAnswer } from '../../http/compressed-answer.ts';
import type { Exchange, Outcome } from '../../http/exchange.ts';
import { json, type Operation, objectOf, READS } from '../../http/operation.ts';
import {
  Invalid,
  invalidParameters,
  type Parameter,
  type Parameters,
  Query,
  type Schema,
  text,
  texts,
  type Values,
  wholeNumber,
} from '../../http/query.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import type { Declaration, Method, Route } from '../../http/route.ts';
import { parseBound } from '../iso-date.ts';
import type { ResourceTokenRoutesOptions } from '../resource-token-routes.ts';
import { evaluate, type Labels, type Series, selectorsOf } from './evaluate.ts';
import { durationOf, isScalar, type Matcher, parseExpression, parseSelectors, Unsupported } from './parse.ts';
import { appsOf, findSeries, METRIC_NAMES, METRICS, type MetricName, readSamples } from './read-series.ts';

/** Steps of a range, as Prometheus has it. */
const MOST_POINTS = 11_000;
/** Values of an answer: some five megabytes. */
const MOST_ANSWERED = 200_000;
const MOST_SELECTORS = 50;
const MAX_BODY_BYTES = 65_536;
/** Whose API this is. Tools choose by it what they may ask. */
const VERSION = '2.42.0';

const FORM = 'application/x-www-form-urlencoded';

const time = (description: string): Parameter<number | null> =>
  text(`${description} Seconds since 1970, or RFC 3339.`, {
    schema: { examples: ['1769848200', '2026-01-31T08:30:00Z'] },
    convert: (sent) => {
      if (/^-?\d{1,15}(?:\.\d+)?(?:e\+?\d)?$/i.test(sent)) return Math.round(Number(sent) * 1_000);
      const bound = parseBound(sent, 'start');
      return typeof bound === 'string' ? new Invalid('must be seconds since 1970, or RFC 3339') : bound;
    },
  });
const EXPRESSION: Parameter<string> = {
  description: 'An expression of PromQL.',
  schema: { type: 'string', examples: ['sum by (type) (increase(tidemark_events_total[1h]))'] },
  rule: 'must be a text',
  required: true,
  // Required: the query refuses one without it.
  convert: (sent) => sent as string,
};
const MATCH = texts('Only series of this selector. May be given several times.', {
  most: MOST_SELECTORS,
  items: { examples: ['tidemark_events_total{app="app_z7C93Li7rjI6ZIAFTcLG"}'] },
});
const LIMIT = wholeNumber('Most entries of the answer; 0: all of them.', { minimum: 0, absent: 0 });

const INSTANT_QUERY = new Query({ query: EXPRESSION, time: time('When. Absent: now.'), limit: LIMIT });
const RANGE_QUERY = new Query(
  {
    query: EXPRESSION,
    start: time('The first step.'),
    end: time('No step is after it.'),
    step: text('Between steps: a duration, such as `5m`, or seconds.', {
      schema: { examples: ['5m', '300'] },
      convert: (sent) =>
        durationOf(sent) || new Invalid('must be a duration of more than 0, such as 5m, or seconds'),
    }),
    limit: LIMIT,
  },
  ({ start, end, step }) => {
    if (start === null) return 'start is missing.';
    if (end === null) return 'end is missing.';
    if (step === null) return 'step is missing.';
    if (end < start) return 'end must not be before start.';
    if ((end - start) / step >= MOST_POINTS)
      return `step must be longer: a range has at most ${MOST_POINTS.toLocaleString('en-US')} points.`;
    return null;
  },
);
const MATCH_QUERY = new Query({ 'match[]': MATCH, limit: LIMIT });
const SERIES_QUERY = new Query({ 'match[]': MATCH, limit: LIMIT }, (values) =>
  values['match[]'].length === 0 ? 'match[] is missing: give a selector.' : null,
);
const METADATA_QUERY = new Query({
  metric: text('Only this metric.', { convert: (sent) => sent }),
  limit: LIMIT,
});
const NO_PARAMETERS = new Query({});

const LABELS: Schema = { type: 'object', additionalProperties: { type: 'string' } };
const NAMES: Schema = { type: 'array', items: { type: 'string' } };
const POINT: Schema = {
  type: 'array',
  prefixItems: [{ type: 'number' }, { type: 'string' }],
  minItems: 2,
  maxItems: 2,
};
const RESULT = objectOf(
  {
    resultType: { enum: ['vector', 'matrix', 'scalar'] },
    result: {
      anyOf: [
        POINT,
        {
          type: 'array',
          items: objectOf(
            { metric: LABELS, value: POINT, values: { type: 'array', items: POINT } },
            { optional: ['value', 'values'] },
          ),
        },
      ],
    },
  },
  { title: 'PrometheusResult' },
);
const ERROR = objectOf(
  { status: { const: 'error' }, errorType: { type: 'string' }, error: { type: 'string' } },
  { title: 'PrometheusError' },
);

const ANY_LABEL = { form: /^[^\0]*$/, refusal: new Rejection('notFound', 'There is nothing at this path.') };

interface Described<Q = Query> extends Pick<Operation, 'id' | 'summary'> {
  readonly query: Q;
  readonly data: Schema;
}

/** A path of the API, which has one declaration for each method. */
function declare<P extends Parameters>(
  methods: readonly Method[],
  path: string,
  described: Described<Query<P>>,
) {
  const { query } = described;
  return { query, declarations: methods.map((method) => declarationOf(method, path, described)) };
}

function declarationOf(method: Method, path: string, { id, summary, query, data }: Described): Declaration {
  const isPost = method === 'POST';
  const answer = objectOf(
    { status: { const: 'success' }, data, warnings: NAMES },
    { optional: ['warnings'] },
  );
  return {
    method,
    path: `/api/v1/${path}`,
    parameters: { label: ANY_LABEL },
    headers: ['authorization', ACCEPT_ENCODING],
    operation: {
      id: isPost ? `${id}ByForm` : id,
      ...READS,
      summary,
      description:
        'By the HTTP API of Prometheus. The token may also be the password of `Authorization: Basic`.',
      ...(path.includes(':label') && {
        path: {
          label: { description: 'The name of a label.', schema: { type: 'string', examples: ['type'] } },
        },
      }),
      query,
      ...(isPost && {
        body: {
          description: 'The parameters as a form.',
          content: { [FORM]: { schema: { type: 'object' } } },
        },
      }),
      answers: { 200: json('The result.', answer) },
      refusals: [],
      errors: { 'application/json': { schema: ERROR } },
    },
  };
}

/** What a request is answered from. */
interface Asked {
  readonly exchange: Exchange;
  readonly token: ResourceToken;
}

interface Answered {
  /** As JSON. */
  readonly data: string;
  readonly warnings?: readonly string[];
}

type Answering<V> = (query: V, asked: Asked) => Promise<Answered | Rejection>;

export type PrometheusApiOptions = ResourceTokenRoutesOptions & {
  readonly now: () => number;
};

const BOTH = ['GET', 'POST'] as const;
const API = {
  query: declare(BOTH, 'query', {
    ...{ id: 'queryInstant', summary: 'Compute an expression of PromQL at one time.' },
    ...{ query: INSTANT_QUERY, data: RESULT },
  }),
  range: declare(BOTH, 'query_range', {
    ...{ id: 'queryRange', summary: 'Compute an expression of PromQL at each step of a range.' },
    ...{ query: RANGE_QUERY, data: RESULT },
  }),
  series: declare(BOTH, 'series', {
    ...{ id: 'findSeries', summary: 'List the series of selectors.' },
    ...{ query: SERIES_QUERY, data: { type: 'array', items: LABELS } },
  }),
  labels: declare(BOTH, 'labels', {
    ...{ id: 'listLabels', summary: 'List the names of labels.', query: MATCH_QUERY, data: NAMES },
  }),
  values: declare(['GET'], 'label/:label/values', {
    ...{ id: 'listLabelValues', summary: 'List the values of a label.', query: MATCH_QUERY, data: NAMES },
  }),
  metadata: declare(['GET'], 'metadata', {
    ...{ id: 'getMetadata', summary: 'Describe the metrics.' },
    ...{ query: METADATA_QUERY, data: { type: 'object' } },
  }),
  rules: declare(['GET'], 'rules', {
    ...{ id: 'listRules', query: NO_PARAMETERS, data: objectOf({ groups: { type: 'array', maxItems: 0 } }) },
    summary: 'List the rules, of which there are none: whoever evaluates rules asks queries.',
  }),
  build: declare(['GET'], 'status/buildinfo', {
    ...{ id: 'getBuildInformation', summary: 'Tell which version of the API this is.' },
    ...{ query: NO_PARAMETERS, data: LABELS },
  }),
};

/** The routes of the API. */
export const PROMETHEUS_API: readonly Declaration[] = Object.values(API).flatMap(
  ({ declarations }) => declarations,
);

export function prometheusApiRoutes(options: PrometheusApiOptions): readonly Route[] {
  const route = <P extends Parameters>(
    declaration: Declaration,
    query: Query<P>,
    answering: Answering<Values<P>>,
  ): Route => ({
    ...declaration,
    handle: async (exchange) => {
      // Before the first await: a transport drops a body that nobody reads.
      const form = declaration.method === 'POST' ? await exchange.text({ maxBytes: MAX_BODY_BYTES }) : '';
      if (form instanceof Rejection) return worded(form);
      const token = await options.access.admit(exchange, asBearer(exchange.header('authorization')));
      if (token instanceof Rejection) return worded(token);
      const sent = query.parse([exchange.query, form].filter((part) => part !== '').join('&'));
      if (sent instanceof Rejection) return worded(sent);
      const answered = await answering(sent, { exchange, token }).catch(asRejection);
      if (answered instanceof Rejection) return worded(answered);
      const { data, warnings = [] } = answered;
      const told = warnings.length === 0 ? '' : `,"warnings":${JSON.stringify(warnings)}`;
      return await compressedAnswer(exchange, {
        status: 200,
        body: `{"status":"success","data":${data}${told}}`,
      });
    },
  });
  const { slots } = options;
  const inTurn = <T>(
    { exchange, token }: Asked,
    read: (place: ReadPlace) => Promise<T>,
  ): Promise<T | Rejection> => slots.run({ kind: 'token', turns: token.holder, waiter: exchange }, read);

  const instant: Answering<Values<(typeof INSTANT_QUERY)['parameters']>> = async (query, asked) => {
    const now = options.now();
    const at = query.time ?? now;
    const computed = await compute(asked, query.query, [at], now);
    if (computed instanceof Rejection) return computed;
    const { result, warnings } = computed;
    const point = (value: number): string => `[${at / 1_000},${numberText(value)}]`;
    if (typeof result === 'number')
      return { data: `{"resultType":"scalar","result":${point(result)}}`, warnings };
    const rows = result.flatMap(({ labels, values: [value = null] }) =>
      value === null ? [] : [`{"metric":${JSON.stringify(labels)},"value":${point(value)}}`],
    );
    return { data: `{"resultType":"vector","result":[${cut(rows, query.limit).join(',')}]}`, warnings };
  };

  const range: Answering<Values<(typeof RANGE_QUERY)['parameters']>> = async (query, asked) => {
    const { start, end, step } = query;
    // The query refuses one without them.
    if (start === null || end === null || step === null)
      return invalidParameters('start, end or step is missing.');
    const times = Array.from(
      { length: Math.floor((end - start) / step) + 1 },
      (_, index) => start + index * step,
    );
    const computed = await compute(asked, query.query, times, options.now());
    if (computed instanceof Rejection) return computed;
    const { warnings, result } = computed;
    const series = typeof result === 'number' ? [{ labels: {}, values: times.map(() => result) }] : result;
    const rows = await matrixRows(cut(series, query.limit), times, new TimeSlice(asked.token.holder));
    return { data: `{"resultType":"matrix","result":[${rows.join(',')}]}`, warnings };
  };

  async function compute(
    asked: Asked,
    sent: string,
    times: readonly number[],
    now: number,
  ): Promise<
    { readonly result: readonly Series[] | number; readonly warnings: readonly string[] } | Rejection
  > {
    const expression = parseExpression(sent);
    const wanted = selectorsOf(expression);
    const { token } = asked;
    const samples =
      wanted.length === 0
        ? { series: new Map(), warnings: [] }
        : await inTurn(asked, (place) => readSamples(place, token, wanted, { times, now }));
    if (samples instanceof Rejection) return samples;
    const computing = evaluate(expression, times.length, (selector) => samples.series.get(selector) ?? []);
    const result = await inSlices(computing, new TimeSlice(token.holder));
    const isLarge = typeof result !== 'number' && result.length * times.length > MOST_ANSWERED;
    if (isLarge && !isScalar(expression))
      throw new Unsupported(
        `The answer has more than ${MOST_ANSWERED.toLocaleString('en-US')} values: choose fewer series, or a longer step.`,
      );
    return { result, warnings: samples.warnings };
  }

  /** The labels of the series of any of the selectors; of all series where there is none. */
  async function labelsOf(
    asked: Asked,
    selectors: readonly string[],
  ): Promise<readonly Labels[] | Rejection> {
    const matchers = selectors.length === 0 ? [[]] : parseSelectors(selectors);
    const wanted = matchers.map((own) => ({ selector: { matchers: own }, ofAllTypes: false }));
    const found = await inTurn(asked, (place) => findSeries(place, asked.token, wanted));
    if (found instanceof Rejection) return found;
    return [...new Map(found.flat().map(({ labels }) => [JSON.stringify(labels), labels])).values()];
  }

  const series: Answering<Values<(typeof SERIES_QUERY)['parameters']>> = async (query, asked) => {
    const found = await labelsOf(asked, query['match[]']);
    return found instanceof Rejection ? found : { data: JSON.stringify(cut(found, query.limit)) };
  };

  const labelNames: Answering<Values<(typeof MATCH_QUERY)['parameters']>> = async (query, asked) => {
    const every = ['__name__', ...METRIC_NAMES.flatMap((name) => METRICS[name].labels)];
    if (query['match[]'].length === 0) return { data: namesText(every, query.limit) };
    const found = await labelsOf(asked, query['match[]']);
    if (found instanceof Rejection) return found;
    return { data: namesText(found.flatMap(Object.keys), query.limit) };
  };

  const labelValues: Answering<Values<(typeof MATCH_QUERY)['parameters']>> = async (query, asked) => {
    const [label = ''] = asked.exchange.parameters;
    const selectors = query['match[]'];
    if (selectors.length === 0 && label === '__name__') return { data: namesText(METRIC_NAMES, query.limit) };
    // For a choice of apps, of which there may be too many to read.
    const all: readonly Matcher[] = [];
    if (selectors.length === 0 && label === 'app')
      return { data: namesText([...(await appsOf(asked.token, all)).keys()], query.limit) };
    const found = await labelsOf(asked, selectors);
    if (found instanceof Rejection) return found;
    return {
      data: namesText(
        found.flatMap((labels) => labels[label] ?? []),
        query.limit,
      ),
    };
  };

  const metadata: Answering<Values<(typeof METADATA_QUERY)['parameters']>> = async (query) => {
    const chosen = METRIC_NAMES.filter((name) => query.metric === null || query.metric === name);
    const shown = cut(chosen, query.limit);
    const described = (name: MetricName): [string, object[]] => {
      const { type, help } = METRICS[name];
      return [name, [{ type, help, unit: '' }]];
    };
    return { data: JSON.stringify(Object.fromEntries(shown.map(described))) };
  };

  const build = { version: VERSION, revision: '', branch: '', buildUser: '', buildDate: '', goVersion: '' };
  const routesOf = <P extends Parameters>(
    { declarations, query }: { readonly declarations: readonly Declaration[]; readonly query: Query<P> },
    answering: Answering<Values<P>>,
  ): Route[] => declarations.map((declaration) => route(declaration, query, answering));
  return [
    ...routesOf(API.query, instant),
    ...routesOf(API.range, range),
    ...routesOf(API.series, series),
    ...routesOf(API.labels, labelNames),
    ...routesOf(API.values, labelValues),
    ...routesOf(API.metadata, metadata),
    // Grafana lists the rules of each data source.
    ...routesOf(API.rules, async () => ({ data: '{"groups":[]}' })),
    ...routesOf(API.build, async () => ({ data: JSON.stringify(build) })),
  ];
}

/** The series that have a value, as JSON. */
async function matrixRows(
  series: readonly Series[],
  times: readonly number[],
  slices: TimeSlice,
): Promise<readonly string[]> {
  const rows: string[] = [];
  for (const { labels, values } of series) {
    const points: string[] = [];
    for (let index = 0; index < times.length; index += 1) {
      const value = values[index] ?? null;
      if (value !== null) points.push(`[${(times[index] ?? 0) / 1_000},${numberText(value)}]`);
      if (slices.isOverAfterStep) await slices.next();
    }
    if (points.length > 0) rows.push(`{"metric":${JSON.stringify(labels)},"values":[${points}]}`);
  }
  return rows;
}

/** A number as Prometheus writes it, in quotes. */
function numberText(value: number): string {
  if (Number.isFinite(value)) return `"${value}"`;
  return Number.isNaN(value) ? '"NaN"' : value > 0 ? '"+Inf"' : '"-Inf"';
}

function namesText(names: readonly string[], limit: number): string {
  return JSON.stringify(cut([...new Set(names)].sort(), limit));
}

function cut<T>(all: readonly T[], limit: number): readonly T[] {
  return limit === 0 ? all : all.slice(0, limit);
}

/** The token of Grafana and others is the password of `Basic`, or its user name. */
function asBearer(authorization: string): string {
  if (bearerToken(authorization) !== null) return authorization;
  const basic = basicCredentials(authorization);
  return basic === null ? authorization : `Bearer ${basic.password || basic.user}`;
}

function asRejection(error: unknown): Rejection {
  if (error instanceof Unsupported) return invalidParameters(error.message, 'query');
  throw error;
}

/** A refusal in the words of Prometheus. */
function worded(refusal: Rejection): Outcome {
  const { status, details } = refusal;
  const errorType =
    status === 503 || status === 429
      ? 'unavailable'
      : status >= 500
        ? 'internal'
        : status === 401
          ? 'unauthorized'
          : 'bad_data';
  return refusal.written(JSON.stringify({ status: 'error', errorType, error: details }));
}
