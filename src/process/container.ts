/** Detects the project's own container image, for hints on the command line. */
import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { type Config, SETTINGS } from '../config.ts';

/** In a clone, and in no package. */
const SOURCES = new URL('../../src', import.meta.url);
/** Created by the Dockerfile beside package.json, above src/ and dist/ alike. */
const MARK = new URL('../../.container', import.meta.url);

/** True in the project's container image: it has no embedded PostgreSQL and no npm scripts. */
export function isContainerImage(): boolean {
  return existsSync(MARK);
}

/** How the command line is called from outside: in a clone, installed by npm, with Compose, in Kubernetes. */
export function commandPrefix(
  environment: Readonly<Record<string, string | undefined>>,
  inImage: boolean = isContainerImage(),
  isClone: boolean = existsSync(SOURCES),
): string {
  if (!inImage) return isClone ? 'npm run -s tidemark --' : 'npx tidemark';
  // Kubernetes sets this variable in every container.
  return environment.KUBERNETES_SERVICE_HOST === undefined
    ? 'docker compose exec server tidemark'
    : 'kubectl exec deployment/tidemark -- tidemark';
}

/** What a command in another terminal needs to reach the same installation, as a shell takes it; empty where defaults do. */
export function settingsPrefix(
  { DATA_DIR, DATABASE_URL, PORT }: Pick<Config, 'DATA_DIR' | 'DATABASE_URL' | 'PORT'>,
  port: number,
): string {
  const given = {
    ...(DATA_DIR !== SETTINGS.DATA_DIR.default && { DATA_DIR: resolve(DATA_DIR) }),
    ...(DATABASE_URL !== '' && { DATABASE_URL: withoutPassword(DATABASE_URL) }),
    ...(String(PORT) !== SETTINGS.PORT.default && { PORT: String(port) }),
  };
  return Object.entries(given)
    .map(
      ([name, value]) =>
        `${name}=${/^[\w/.:@-]+$/.test(value) ? value : `'${value.replaceAll("'", "'\\''")}'`} `,
    )
    .join('');
}

/** Passwords are not printed: the reader has to put it in. */
function withoutPassword(url: string): string {
  return url.replace(/^(\w+:\/\/[^/?#:@]*):[^/?#@]*@/, '$1:…@');
}
