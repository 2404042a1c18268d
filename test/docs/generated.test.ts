/** What is generated in the documentation is what the code and the results say now. */
import { execFileSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { documents } from '../../bench/report/documents.ts';
import { NOT_MEASURED } from '../../bench/report/figures.ts';
import { SETTINGS } from '../../src/config.ts';
import { readPage } from './pages.ts';

const generated = await documents();

test.each([...generated.keys()])('the generated parts of %s are up to date', (path) => {
  expect(readPage(path), '`npm run docs` renews it').toBe(generated.get(path));
});

test('docs/settings.md has every setting once, with its default', () => {
  const page = readPage('docs/settings.md');
  const listed = [...page.matchAll(/^\| `(\w+)` \| (?:`(.*?)`)? ?\|/gm)];
  const expected = Object.entries(SETTINGS).map(([name, setting]) => [name, setting.default]);
  expect(listed.map(([, name, value = '']) => [name, value])).toEqual(expected);
});

test('every figure of the documentation has been measured', () => {
  for (const [path, text] of generated) expect(text, path).not.toContain(NOT_MEASURED);
});

const git = (...options: readonly string[]): string =>
  execFileSync('git', options, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
/** Commits after which figures of the README are no more those of the program. */
const MOST_COMMITS_BEHIND = 400;

/** Null: this is no clone, or one without its history. */
function commitsSince(commit: string): number | null {
  try {
    if (git('rev-parse', '--is-shallow-repository') === 'true') return null;
  } catch {
    return null;
  }
  return Number(git('rev-list', '--count', `${commit}..HEAD`));
}

test('the figures of the README are of the program as it is', () => {
  const commits = /<sub>[\d-]+; commit (\w+);/.exec(readPage('README.md'));
  const behind = commitsSince(commits?.[1] ?? '');
  if (behind !== null) expect(behind, 'npm run bench records them anew').toBeLessThan(MOST_COMMITS_BEHIND);
});

test('the README fits on 200 lines', () => {
  expect(readPage('README.md').trimEnd().split('\n').length).toBeLessThanOrEqual(200);
});
