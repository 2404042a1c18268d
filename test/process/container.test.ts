import { expect, test } from 'vitest';
import { commandPrefix, isContainerImage, settingsPrefix } from '../../src/process/container.ts';
import { openDatabase } from '../../src/storage/database/open.ts';

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

test('the next command is printed with the settings that are not the defaults, and without a password', () => {
  const defaults = { DATA_DIR: '.tidemark', DATABASE_URL: '', PORT: 8080 };
  expect(settingsPrefix(defaults, 8080)).toBe('');
  expect(settingsPrefix({ ...defaults, DATA_DIR: '/srv/my data', PORT: 0 }, 19411)).toBe(
    "DATA_DIR='/srv/my data' PORT=19411 ",
  );
  const url = 'postgres://me:pa%40ss@db.example.com:5432/events?sslmode=require';
  expect(settingsPrefix({ ...defaults, DATABASE_URL: url }, 8080)).toBe(
    "DATABASE_URL='postgres://me:…@db.example.com:5432/events?sslmode=require' ",
  );
});
