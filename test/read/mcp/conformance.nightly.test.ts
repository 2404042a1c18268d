/** POST /mcp and the protocol's own conformance suite: the scenarios for servers, against a service that runs. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, request, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createResourceToken } from '../../../src/apps/resource-tokens.ts';
import { sharedService, type TestService } from '../../support/service.ts';

const SUITE = 'node_modules/@modelcontextprotocol/conformance/dist/index.js';

/** The suite calls tools of the server that it was written with. These are ours that do the same: answer with a text, and refuse. */
const TOOLS: Readonly<Record<string, string>> = {
  test_simple_text: 'apps',
  test_error_handling: 'describe',
};

/**
 * The scenarios that do not apply, each with what it needs. The suite fails if one of them passes. Two others are still drafts
 * there, and do not run: json-schema-2020-12 (a tool with that schema) and server-sse-polling (streams that are resumed).
 */
const NOT_APPLICABLE: Readonly<Record<string, string>> = {
  'logging-set-level': 'messages of a log',
  'tools-call-with-logging': 'messages of a log',
  'completion-complete': 'completion of arguments',
  'tools-call-image': 'a tool that answers with an image',
  'tools-call-audio': 'a tool that answers with sound',
  'tools-call-embedded-resource': 'a tool that answers with a resource',
  'tools-call-mixed-content': 'a tool that answers with a text and an image',
  'tools-call-with-progress': 'a stream',
  'tools-call-sampling': 'a stream, and questions to the client',
  'tools-call-elicitation': 'a stream, and questions to the client',
  'elicitation-sep1034-defaults': 'a stream, and questions to the client',
  'elicitation-sep1330-enums': 'a stream, and questions to the client',
  'server-sse-multiple-streams': 'sessions',
  'resources-list': 'resources',
  'resources-read-text': 'resources',
  'resources-read-binary': 'resources',
  'resources-templates-read': 'resources',
  'resources-subscribe': 'resources',
  'resources-unsubscribe': 'resources',
  'prompts-list': 'prompts',
  'prompts-get-simple': 'prompts',
  'prompts-get-with-args': 'prompts',
  'prompts-get-embedded-resource': 'prompts',
  'prompts-get-with-image': 'prompts',
};

/** The others, with the checks that pass. */
const PASSED = {
  'server-initialize': 1,
  ping: 1,
  'tools-list': 1,
  'tools-call-simple-text': 1,
  'tools-call-error': 1,
  'dns-rebinding-protection': 2,
};

let service: TestService;
let front: Server;
let folder: string;
let token: string;

beforeAll(async () => {
  service = await sharedService({ config: { CREATE_LIMIT_PER_MINUTE: 0, READ_LIMIT_PER_MINUTE: 0 } });
  const asked = { name: 'suite', appIds: [service.app.appId], expiresInSeconds: null };
  token = (await createResourceToken(service.sql, asked)).resourceToken;
  folder = await mkdtemp(join(tmpdir(), 'tidemark-mcp-suite-'));
  front = await suiteFront();
});
afterAll(async () => {
  front?.close();
  if (folder !== undefined) await rm(folder, { recursive: true, force: true });
});

/** Adds the token to the requests of the suite, which sends none, and gives the tools their names here. */
async function suiteFront(): Promise<Server> {
  const server = createServer((asked, answer) => {
    forward(asked).then(
      (got) => {
        answer.writeHead(got.statusCode ?? 502, got.headers);
        got.pipe(answer);
      },
      () => answer.writeHead(502).end(),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

async function forward(asked: IncomingMessage): Promise<IncomingMessage> {
  const sent = (await text(asked)).replace(/"(test_\w+)"/, (whole, name: string) =>
    name in TOOLS ? JSON.stringify(TOOLS[name]) : whole,
  );
  const { 'content-length': _, ...headers } = asked.headers;
  const forwarded = request({
    ...{ host: '127.0.0.1', port: service.port, path: asked.url, method: asked.method },
    headers: {
      ...headers,
      ...(sent !== '' && { 'content-length': Buffer.byteLength(sent) }),
      authorization: `Bearer ${token}`,
    },
  });
  const answered = once(forwarded, 'response');
  forwarded.end(sent);
  return (await answered)[0] as IncomingMessage; // What the event brings.
}

test('the scenarios that apply pass', async () => {
  const expected = join(folder, 'not-applicable.yaml');
  await writeFile(expected, JSON.stringify({ server: Object.keys(NOT_APPLICABLE) }));
  const address = front.address();
  if (address === null || typeof address === 'string') throw new Error('The front has no port.');
  const url = `http://127.0.0.1:${address.port}/mcp`;
  const suite = spawn(process.execPath, [SUITE, 'server', '--url', url, '--expected-failures', expected]);
  suite.on('error', () => undefined); // Then it has no code.
  const [said, problems, [code]] = await Promise.all([
    text(suite.stdout),
    text(suite.stderr),
    once(suite, 'close'),
  ]);
  const passed = said.matchAll(/^✓ (\S+): ([1-9]\d*) passed, 0 failed$/gm);
  expect(Object.fromEntries([...passed].map(([, name = '', checks]) => [name, Number(checks)]))).toEqual(
    PASSED,
  );
  expect(code, said + problems).toBe(0);
});
