/** What is generated in the documentation is what the code and the results say now. */
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

test('the README fits on 200 lines', () => {
  expect(readPage('README.md').trimEnd().split('\n').length).toBeLessThanOrEqual(200);
});
