/** Detects the project's own container image, for hints on the command line. */
import { existsSync } from 'node:fs';

/** In a clone, and in no package. */
const SOURCES = new URL('../src', import.meta.url);
/** Created by the Dockerfile beside package.json, above src/ and dist/ alike. */
const MARK = new URL('../.container', import.meta.url);

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
