/** GET /config.schema.json: the JSON Schema of the configuration, for editors and checks. */
import { json } from '../http/operation.ts';
import type { Declaration, Route } from '../http/route.ts';
import { CONFIG_SCHEMA } from './document.ts';

export const CONFIG_SCHEMA_ROUTE: Declaration = {
  method: 'GET',
  path: '/config.schema.json',
  headers: [],
  operation: {
    id: 'getConfigSchema',
    tag: 'Service',
    summary: 'Read the JSON Schema of the configuration as a file.',
    token: null,
    isLimited: false,
    answers: { 200: json('A JSON Schema, draft 07.', { type: 'object' }) },
    refusals: [],
  },
};

const BODY = JSON.stringify(CONFIG_SCHEMA);

export function configSchemaRoute(): Route {
  return { ...CONFIG_SCHEMA_ROUTE, handle: async () => ({ status: 200, body: BODY }) };
}
