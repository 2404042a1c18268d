/** The client as users have it: what its package contains, and that it works as it is packed. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { LAUNCHER } from '../support/command-line.ts';
import { withTestService } from '../support/service.ts';

const run = promisify(execFile);
const REPOSITORY = dirname(LAUNCHER);
const CLIENT = join(REPOSITORY, 'client');

let folder: string;
let files: readonly string[];
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-client-'));
  const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', folder], { cwd: CLIENT });
  const [packed] = JSON.parse(stdout.slice(stdout.indexOf('[')));
  files = packed.files.map(({ path }: { path: string }) => path);
  await run('tar', ['-xzf', join(folder, packed.filename), '-C', folder]);
  await run('mkdir', ['-p', join(folder, 'node_modules')]);
  await run('mv', [join(folder, 'package'), join(folder, 'node_modules', 'tidemark-client')]);
}, 120_000);
afterAll(() => rm(folder, { recursive: true, force: true }));

test('the package has the modules with their types, and depends on nothing', async () => {
  const modules = [
    ...['disk-queue', 'event-logger', 'event-reader', 'index'],
    ...['retry', 'service-clock', 'tidemark-error'],
  ];
  const built = modules.flatMap((name) => [`dist/${name}.d.ts`, `dist/${name}.js`]);
  expect(files.toSorted()).toEqual(['README.md', 'package.json', ...built].toSorted());
  const manifest = JSON.parse(await readFile(join(CLIENT, 'package.json'), 'utf8'));
  const service = JSON.parse(await readFile(join(REPOSITORY, 'package.json'), 'utf8'));
  expect(manifest.version).toBe(service.version);
  expect([manifest.dependencies, manifest.peerDependencies]).toEqual([undefined, undefined]);
});

test('the examples of its README compile against its types, and run', async () => {
  const readme = await readFile(join(CLIENT, 'README.md'), 'utf8');
  const examples = [...readme.matchAll(/```ts\n([\s\S]*?)```/g)].map(([, code = '']) => code);
  expect(examples.length).toBe(2);
  await writeFile(join(folder, 'package.json'), '{"type":"module"}');
  for (const [index, code] of examples.entries()) await writeFile(join(folder, `example${index}.ts`), code);
  const tsc = join(REPOSITORY, 'node_modules', '.bin', 'tsc');
  const options = [
    '--module',
    'nodenext',
    '--target',
    'es2023',
    '--strict',
    '--types',
    'node',
    '--outDir',
    folder,
  ];
  const typeRoots = ['--typeRoots', join(REPOSITORY, 'node_modules', '@types')];
  await run(tsc, [...options, ...typeRoots, ...examples.map((_, index) => `example${index}.ts`)], {
    cwd: folder,
  });
  await withTestService({}, async ({ url, app, sql }) => {
    const grant = { name: 'example', appIds: [app.appId], expiresInSeconds: null };
    const { resourceToken } = await createResourceToken(sql, grant);
    const env = {
      PATH: process.env.PATH,
      LOGGING_TOKEN: app.loggingToken,
      RESOURCE_TOKEN: resourceToken,
      APP_ID: app.appId,
    };
    const outputs: string[] = [];
    for (const [index] of examples.entries()) {
      const file = join(folder, `example${index}.js`);
      await writeFile(file, (await readFile(file, 'utf8')).replaceAll('http://127.0.0.1:8080', url));
      outputs.push((await run(process.execPath, [file], { env })).stdout);
    }
    expect(outputs[1]).toMatch(/^\S+Z \{ orderId: 1001, total: 99\.5 \}\n/);
  });
}, 120_000);
