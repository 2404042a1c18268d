/** openapi-typescript needs another TypeScript than the project, so it is a package of its own. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export const TYPES_GENERATOR = fileURLToPath(
  new URL('../../lint/openapi-types/node_modules/openapi-typescript/bin/cli.js', import.meta.url),
);

export const hasTypesGenerator = existsSync(TYPES_GENERATOR);
