import { execFile } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { settingsMarkdown } from '../../src/cli/output.ts';
import { Installation } from './server-process.ts';

const README = new URL('../../README.md', import.meta.url);
const ROOT = new URL('../..', import.meta.url);

/** The text between two marks of the README. */
function between(text: string, start: string, end: string): string {
  const from = text.indexOf(start);
  const to = text.indexOf(end);
  if (from < 0 || to < from) throw new Error(`The README has no part between ${start} and ${end}`);
  return text.slice(from + start.length, to).trim();
}

test('the README lists every setting as the code has it', async () => {
  const [start, end] = ['<!-- settings -->', '<!-- end of settings -->'] as const;
  const readme = await readFile(README, 'utf8');
  if (process.env.UPDATE_README === '1') {
    const [before, after] = [readme.slice(0, readme.indexOf(start)), readme.slice(readme.indexOf(end))];
    await writeFile(README, `${before}${start}\n${settingsMarkdown()}\n${after}`);
    return;
  }
  expect(
    between(readme, start, end),
    'UPDATE_README=1 npx vitest run test/e2e/readme.test.ts renews it',
  ).toBe(settingsMarkdown());
});

test('the quick start of the README works as written', async () => {
  const readme = await readFile(README, 'utf8');
  const marked = between(readme, 'test/e2e/readme.test.ts -->', '<!-- end of quick start -->');
  const installation = await Installation.make();
  const server = await installation.start();
  try {
    const script = marked.replace(/^```sh\n|```$/g, '').replaceAll(':8080', `:${server.port}`);
    const { stdout } = await promisify(execFile)('bash', ['-euc', script], {
      cwd: ROOT,
      env: { ...process.env, DATA_DIR: installation.dataDir },
    });
    const [created, read] = stdout
      .trim()
      .split('\n')
      .map((line): unknown => JSON.parse(line));
    expect(created).toMatchObject({ success: true, message: 'Event created' });
    expect(read).toMatchObject({
      success: true,
      data: {
        events: [{ payload: { orderId: 1001, total: 129.95 } }],
        pagination: { total: 1, limit: 100, offset: 0, hasMore: false },
      },
    });
  } finally {
    await server.end('SIGTERM');
    await installation.remove();
  }
});
