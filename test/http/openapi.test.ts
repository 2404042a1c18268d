/** The description of the API: complete, valid, and of use to generators; and that the tests hold answers to it. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { beforeAll, expect, test } from 'vitest';
import { describeApi } from '../../src/http/openapi.ts';
import { EVENTS, SINGLE } from '../../src/read/events/events-read.ts';
import { API } from '../../src/service/api-description.ts';
import { sharedService, type TestService } from '../support/service.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

let service: TestService;
beforeAll(async () => {
  service = await sharedService();
});

test('the service serves the description that the tests hold its answers to', async () => {
  const { status, body } = await service.request({ path: '/openapi.json' });
  expect(status).toBe(200);
  const { info, ...served } = JSON.parse(body);
  const { info: _, ...composed } = describeApi(API, { version: 'of the tests' });
  expect(served).toEqual(JSON.parse(JSON.stringify(composed)));
  expect(info.version).toMatch(/^\d+\.\d+\.\d+/);
});

test('no route that is declared outside of /api and the pages is left out', async () => {
  const names = await readdir(join(ROOT, 'src'), { recursive: true });
  const sources = await Promise.all(
    names.filter((name) => name.endsWith('.ts')).map((name) => readFile(join(ROOT, 'src', name), 'utf8')),
  );
  const literal = sources.flatMap((text) =>
    [...text.matchAll(/\bpath: '(\/(?!api\/)[\w/:.]+)'/g)].map(([, path = '']) => path),
  );
  const known = API.flatMap(({ path }) => [path, path.replace('/v1/apps/:appId', '')]);
  expect(literal).toEqual(expect.arrayContaining([EVENTS.path, SINGLE.path, '/v1/apps', '/livez']));
  expect(literal.filter((path) => !known.includes(path))).toEqual([]);
});

test('every operation has examples of what is sent and of what comes back, which its schemas allow', () => {
  interface Content {
    readonly schema: { readonly format?: string };
    readonly example?: unknown;
  }
  interface Described {
    readonly operationId: string;
    readonly requestBody?: { readonly content: Readonly<Record<string, Content>> };
    readonly responses: Readonly<Record<string, { readonly content: Readonly<Record<string, Content>> }>>;
  }
  const description = describeApi(API, { version: '1.0.0' }) as unknown as {
    readonly paths: Readonly<Record<string, Readonly<Record<string, Described>>>>;
  };
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema(description, 'api');
  const pointer = (...names: string[]): string =>
    names.map((name) => `/${encodeURIComponent(name.replaceAll('~', '~0').replaceAll('/', '~1'))}`).join('');
  const problems: string[] = [];
  let examples = 0;
  for (const [path, methods] of Object.entries(description.paths))
    for (const [method, { operationId, requestBody, responses }] of Object.entries(methods)) {
      const contents = [
        ...(requestBody ? [{ at: ['requestBody'], content: requestBody.content }] : []),
        ...Object.entries(responses)
          .filter(([status]) => Number(status) < 300)
          .map(([status, { content }]) => ({ at: ['responses', status], content })),
      ];
      for (const { at, content } of contents)
        for (const [type, { schema, example }] of Object.entries(content)) {
          // Bytes cannot be shown.
          if (schema.format === 'binary') continue;
          examples += 1;
          const where = `${operationId} ${at.join(' ')} ${type}`;
          const check = ajv.getSchema(
            `api#${pointer('paths', path, method, ...at, 'content', type, 'schema')}`,
          );
          if (example === undefined) problems.push(`${where}: no example`);
          else if (check?.(example) !== true) problems.push(`${where}: ${ajv.errorsText(check?.errors)}`);
        }
    }
  expect(problems).toEqual([]);
  expect(examples).toBeGreaterThan(50);
});

test('the order of checks and the bodies of errors are as the description says', async () => {
  const { body } = await service.request({ path: '/openapi.json' });
  const { info, externalDocs } = JSON.parse(body);
  expect(info.description).toContain(
    'whose token is in the body, checks size, JSON and fields before the token',
  );
  const refusal = async (
    path: string,
    sent: string,
    headers = {},
  ): Promise<{ status: number; body: object }> => {
    const response = await service.request({ method: 'POST', path, body: sent, headers });
    return { status: response.status, body: JSON.parse(response.body) };
  };
  const junk = '{"loggingToken":"tdl_junk"}';
  expect(await refusal('/public/create_event', junk)).toMatchObject({
    status: 400,
    body: { param: 'payload' },
  });
  expect(await refusal('/v1/events', '[')).toMatchObject({
    status: 401,
    body: { code: 'AUTH_INVALID_TOKEN' },
  });
  const ofLogs = await refusal('/v1/otlp/v1/logs', '[', { 'Content-Type': 'application/json' });
  expect(Object.keys(ofLogs.body).sort()).toEqual(['code', 'message']);
  expect((await refusal('/v1/elasticsearch/_bulk', '[')).body).toMatchObject({
    error: { reason: expect.any(String) },
  });
  expect((await service.request({ path: externalDocs.url })).status).toBe(200);
});
