/** Whether this is the project's own container image, and what that means for hints. */
import { existsSync } from 'node:fs';

/** The Dockerfile makes it, beside package.json, which lies above src/ and dist/ alike. */
const MARK = new URL('../.container', import.meta.url);

/** True in the image that the Dockerfile makes: it has no embedded PostgreSQL and no clone to run npm in. */
export function isContainerImage(): boolean {
  return existsSync(MARK);
}

/** How the command line is called from outside: in a clone, in a container of Compose, in a pod of Kubernetes. */
export function commandPrefix(
  environment: Readonly<Record<string, string | undefined>>,
  inImage: boolean = isContainerImage(),
): string {
  if (!inImage) return 'npm run -s tidemark --';
  // Kubernetes sets this one in every container.
  return environment.KUBERNETES_SERVICE_HOST === undefined
    ? 'docker compose exec server tidemark'
    : 'kubectl exec deployment/tidemark -- tidemark';
}
