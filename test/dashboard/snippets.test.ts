/** The programs that the dashboard shows do what they say, as they are pasted. */
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { producers, reading, type SnippetPlace, sending } from '../../dashboard/components/snippets.ts';
import { LAUNCHER } from '../support/command-line.ts';
import { newOwnApp, newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService } from '../support/service.ts';

const REPOSITORY = dirname(LAUNCHER);

const run = promisify(execFile);
const INTERPRETERS: Readonly<Record<string, readonly string[]>> = {
  Node: [process.execPath, '--input-type=module', '-e'],
  Python: ['python3', '-c'],
};

let service: TestService;
let owner: Person;
let path: string;
let place: SnippetPlace;
let folder: string;

beforeAll(async () => {
  service = await startTestService();
  owner = await newPerson(service, 'owner@example.com');
  const app = await newOwnApp(owner);
  ({ path } = app);
  const { data } = await owner.post(`${path}/tokens`, { name: 'Reader' });
  const { appId, loggingToken } = app;
  place = { base: service.url, appId, loggingToken, resourceToken: String(data.resourceToken) };
  folder = await mkdtemp(join(tmpdir(), 'tidemark-snippets-'));
  const client = join(folder, 'node_modules', 'tidemark-client');
  await cp(join(REPOSITORY, 'client', 'package.json'), join(client, 'package.json'));
  const tsc = join(REPOSITORY, 'node_modules', '.bin', 'tsc');
  await run(tsc, ['-p', join(REPOSITORY, 'client'), '--outDir', join(client, 'dist')]);
});
afterAll(async () => {
  await service?.stop();
  await rm(folder, { recursive: true, force: true });
});

async function output(name: string, text: string): Promise<string> {
  const [command = '', ...args] = INTERPRETERS[name.replace('Read: ', '')] ?? ['bash', '-c'];
  const { stdout } = await run(command, [...args, text], { cwd: folder });
  return stdout;
}

test('each of those that send stores its events, and each of those that read shows them', async () => {
  const total = async (): Promise<number> => Number((await owner.get(path)).data.total);
  for (const { name, text } of sending(place)) {
    const before = await total();
    expect(await output(name, text), name).toMatch(/true/);
    expect((await total()) - before, name).toBe(name === 'Batch' ? 2 : 1);
  }
  for (const { name, text } of reading(place)) {
    const shown =
      (await output(name, text)) +
      (name === 'Export' ? await readFile(join(folder, 'events.ndjson'), 'utf8') : '');
    for (const from of ['curl', 'node', 'python']) expect(shown, name).toContain(from);
  }
});

test('those of other programs are what the documentation says of them', async () => {
  const page = await readFile(join(REPOSITORY, 'docs', 'producers.md'), 'utf8');
  const documented = page.replace(/\$\{LOGGING_TOKEN\}/g, 'TOKEN').replaceAll('tdl_…', 'TOKEN');
  const at = { ...place, base: 'https://events.example.com', loggingToken: 'TOKEN' };
  const [annotation, ...configured] = producers(at).reverse();
  for (const { name, text } of configured) expect(documented, name).toContain(`\n${text}\n`);
  const own = producers(place).find(({ name }) => name === annotation?.name)?.text ?? '';
  expect(await output('Annotation', own)).toContain('"annotationId":"ann_');
  for (const { name, text } of producers(place)) {
    expect(text, name).toContain(new URL(place.base).port);
    expect(text, name).toContain(place.loggingToken);
  }
});

test('a token that is not known is named as what it is', () => {
  const unknown = { ...place, loggingToken: null, resourceToken: null };
  for (const { text } of sending(unknown)) expect(text).toContain('YOUR_LOGGING_TOKEN');
  for (const { text } of reading(unknown)) expect(text).toContain('YOUR_RESOURCE_TOKEN');
});
