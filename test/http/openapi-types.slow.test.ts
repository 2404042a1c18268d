/** The description of the API is valid, and of use to generators: types for TypeScript, with which the example of the README compiles. */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { describeApi } from '../../src/http/openapi.ts';
import { API } from '../../src/service/api-description.ts';
import { hasTypesGenerator, TYPES_GENERATOR } from '../support/openapi-types.ts';
import { sharedService } from '../support/service.ts';

const run = promisify(execFile);
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-openapi-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.skipIf(!hasTypesGenerator)('types for TypeScript', () => {
  /** Compiles modules beside the generated types. @returns the compiler's complaints */
  const compile = async (modules: Readonly<Record<string, string>>): Promise<string[]> => {
    await writeFile(join(folder, 'openapi.json'), JSON.stringify(describeApi(API, { version: '1.0.0' })));
    await run(process.execPath, [
      TYPES_GENERATOR,
      join(folder, 'openapi.json'),
      '-o',
      join(folder, 'tidemark.d.ts'),
    ]);
    for (const [name, code] of Object.entries(modules)) await writeFile(join(folder, name), code);
    await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules')).catch(() => undefined);
    const compilerOptions = {
      ...{ strict: true, noUncheckedIndexedAccess: true, exactOptionalPropertyTypes: true },
      ...{ module: 'nodenext', target: 'es2023', lib: ['es2023'], types: ['node'], skipLibCheck: false },
    };
    await writeFile(
      join(folder, 'tsconfig.json'),
      JSON.stringify({ compilerOptions, files: [...Object.keys(modules), 'tidemark.d.ts'] }),
    );
    const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
    return await run(process.execPath, [compiler, '-p', folder]).then(
      () => [],
      ({ stdout }: { stdout: string }) => stdout.trim().split('\n'),
    );
  };

  test('the example of the README compiles with the generated types, and reads every event; a field that no answer has does not compile', async () => {
    const service = await sharedService();
    const readme = await readFile(join(ROOT, 'README.md'), 'utf8');
    const [, example = ''] = /```ts\n([\s\S]*?)```/.exec(readme) ?? [];
    expect(example).toContain("from './tidemark.js'");
    const wrong = `import type { components } from './tidemark.js';
export const id = (event: components['schemas']['Event']): string => event.eventId;\n`;
    const complaints = await compile({
      'example.mts': example.replaceAll('http://127.0.0.1:8080', service.url),
      'wrong.mts': wrong,
    });
    expect(complaints).toEqual([expect.stringMatching(/\bwrong\.mts.*Property 'eventId' does not exist/)]);

    for (let n = 0; n < 250; n += 50)
      await service.request({
        method: 'POST',
        path: '/v1/events',
        headers: { Authorization: `Bearer ${service.app.loggingToken}` },
        body: JSON.stringify({
          events: Array.from({ length: 50 }, (_, i) => ({ typeName: 'n', payload: { n: n + i } })),
        }),
      });
    const token = { name: 'README', appIds: [service.app.appId], expiresInSeconds: null };
    const { resourceToken } = await createResourceToken(service.sql, token);
    // What the example exports, which the compiler has just seen.
    const { events } = (await import(pathToFileURL(join(folder, 'example.mjs')).href)) as {
      events: (appId: string, token: string) => AsyncIterable<{ payload: { n: number } }>;
    };
    const found: number[] = [];
    for await (const { payload } of events(service.app.appId, resourceToken)) found.push(payload.n);
    expect(found).toEqual(Array.from({ length: 250 }, (_, n) => n));
  });
});

describe('the linter', () => {
  const lint = async (description: object): Promise<{ code: number; output: string }> => {
    const [file, config] = [join(folder, 'openapi.json'), join(folder, 'redocly.yaml')];
    await writeFile(file, JSON.stringify(description));
    await writeFile(config, 'extends:\n  - recommended-strict\n');
    const env = { ...process.env, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true' };
    const linter = join(ROOT, 'node_modules/@redocly/cli/bin/cli.js');
    return await run(process.execPath, [linter, 'lint', file, '--config', config], { env }).then(
      ({ stdout, stderr }) => ({ code: 0, output: stdout + stderr }),
      (error: { code: number; stdout: string; stderr: string }) => ({
        code: error.code,
        output: error.stdout + error.stderr,
      }),
    );
  };

  test('finds nothing, by its strict rules', async () => {
    expect(await lint(describeApi(API, { version: '1.0.0' }))).toMatchObject({
      code: 0,
      output: expect.stringContaining('Your API description is valid'),
    });
  });
});
