/**
 * What clients of Elasticsearch ask before they send documents: which server this is, its license, and whether templates and
 * policies are there. They are answered so that the clients go on; nothing is kept of what they put.
 */
import type { LoggingTokens } from '../../apps/logging-token-lookup.ts';
import { Rejection } from '../../errors.ts';
import type { Answer, Exchange } from '../../http/exchange.ts';
import type { Declaration, Method, Route } from '../../http/route.ts';
import { authenticate } from '../admit.ts';
import { BULK, elasticError, PRODUCT } from './bulk.ts';

export const PREFIX = '/v1/elasticsearch';

/** The version whose clients are tested; later ones take an older server. */
const VERSION = '8.11.0';

const INFO = {
  name: 'tidemark',
  cluster_name: 'tidemark',
  cluster_uuid: 'tidemark',
  version: {
    number: VERSION,
    build_flavor: 'default',
    build_type: 'tar',
    build_hash: 'unknown',
    build_date: '2023-11-04T00:00:00.000Z',
    build_snapshot: false,
    lucene_version: '9.8.0',
    minimum_wire_compatibility_version: '7.17.0',
    minimum_index_compatibility_version: '7.0.0',
  },
  tagline: 'You Know, for Search',
};
const LICENSE = { uid: 'tidemark', type: 'basic', mode: 'basic', status: 'active' };
const HEALTH = { cluster_name: 'tidemark', status: 'green', timed_out: false, number_of_nodes: 1 };
const THERE = {};
const ACKNOWLEDGED = { acknowledged: true };

/** By the part of the path after the prefix; `*` is any name. */
const ANSWERS: readonly (readonly [Method, string, object])[] = [
  ['GET', '', INFO],
  ['GET', '/', INFO],
  ['GET', '/_license', { license: LICENSE }],
  ['GET', '/_xpack', { license: LICENSE, features: { ilm: { available: false, enabled: false } } }],
  ['GET', '/_cluster/health', HEALTH],
  ...['_template', '_index_template', '_component_template', '_ilm/policy', '_ingest/pipeline'].flatMap(
    (kind) =>
      [
        ['GET', `/${kind}/*`, THERE],
        ['PUT', `/${kind}/*`, ACKNOWLEDGED],
      ] as const,
  ),
  // An index, a data stream or an alias: it is there.
  ['GET', '/*', THERE],
  ['GET', '/_alias/*', THERE],
  ['GET', '/_data_stream/*', THERE],
  ['PUT', '/*', ACKNOWLEDGED],
];

/** No index and no template begins with an underscore: such a path is another request. */
const NAME = {
  form: /^[^_/][^/]{0,254}$/,
  refusal: new Rejection('notFound', 'There is nothing at this path.'),
};

/** Each needs the token, so that a wrong one is noticed before the first document. */
export function elasticHandshake(loggingTokens: LoggingTokens): readonly Route[] {
  return ANSWERS.map(([method, path, answer]) => {
    const declaration: Declaration = {
      method,
      path: `${PREFIX}${path.replace('*', ':name')}`,
      headers: ['authorization'],
      ...(path.includes('*') && { parameters: { name: NAME } }),
    };
    return { ...declaration, handle: (exchange) => known(loggingTokens, exchange, answer) };
  });
}

async function known(
  loggingTokens: LoggingTokens,
  exchange: Exchange,
  answer: object,
): Promise<Answer | Rejection> {
  const app = await authenticate(loggingTokens, BULK, exchange);
  if (app instanceof Rejection) return elasticError(app);
  return { status: 200, body: JSON.stringify(answer), headers: PRODUCT };
}
