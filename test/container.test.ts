import { expect, test } from 'vitest';
import { commandPrefix, isContainerImage } from '../src/container.ts';
import { openDatabase } from '../src/storage/open.ts';

test('hints name the way into a clone, a package, a container of Compose, and a pod', () => {
  expect(isContainerImage()).toBe(false);
  expect(commandPrefix({})).toBe('npm run -s tidemark --');
  expect(commandPrefix({}, false, false)).toBe('npx tidemark');
  expect(commandPrefix({}, true)).toBe('docker compose exec server tidemark');
  const pod = { KUBERNETES_SERVICE_HOST: '10.0.0.1' };
  expect(commandPrefix(pod, true)).toBe('kubectl exec deployment/tidemark -- tidemark');
  expect(commandPrefix(pod, false)).toBe('npm run -s tidemark --');
});

test('the image does not make an embedded PostgreSQL where DATABASE_URL is missing', async () => {
  const quiet = { info: () => undefined, warn: () => undefined };
  const open = openDatabase({ DATABASE_URL: '', DATA_DIR: '/nowhere' }, quiet, {
    supervise: false,
    inImage: true,
  });
  await expect(open).rejects.toThrow(/^DATABASE_URL is not set: .*no embedded PostgreSQL$/);
});
