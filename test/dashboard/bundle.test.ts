/** What is downloaded: how much, in which pieces, and that a strict CSP has nothing to refuse. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { beforeAll, expect, test } from 'vitest';
import { buildDashboard } from '../support/browser.ts';

const BUILT = fileURLToPath(new URL('../../dist/dashboard/', import.meta.url));
const MOST_BYTES = 50_000;

let scripts: { name: string; text: string }[];
let page: string;
beforeAll(() => {
  buildDashboard();
  const names = readdirSync(join(BUILT, 'assets'));
  scripts = names
    .filter((name) => name.endsWith('.js'))
    .map((name) => ({ name, text: readFileSync(join(BUILT, 'assets', name), 'utf8') }));
  page = readFileSync(join(BUILT, 'index.html'), 'utf8');
});

const gzipped = (text: string): number => gzipSync(text, { level: 9 }).length;

test('all JavaScript together is at most 50 KB, compressed file by file', () => {
  const sizes = scripts.map(({ name, text }) => [name, gzipped(text)] as const);
  const total = sizes.reduce((sum, [, size]) => sum + size, 0);
  expect(total, `${JSON.stringify(sizes)}`).toBeLessThanOrEqual(MOST_BYTES);
});

test('uPlot is alone in its file, which the first page does not load', () => {
  const withUplot = scripts.filter(({ text }) => text.includes('u-cursor-x'));
  expect(withUplot.map(({ name }) => name)).toEqual([expect.stringMatching(/^uplot-/)]);
  expect(page).not.toContain('uplot');
  expect(page.match(/<script/g)).toHaveLength(1);
});

test('names are hashed, and nothing is inline', () => {
  for (const name of readdirSync(join(BUILT, 'assets'))) expect(name).toMatch(/-[\w-]{8}\.(js|css|svg)$/);
  expect(page).toMatch(/<script type="module"[^>]* src="\/assets\/[^"]+"><\/script>/);
  expect(page).not.toMatch(/<style|style=|\son\w+=|javascript:|<script(?![^>]*src=)/);
  expect(scripts.filter(({ text }) => /\beval\(|new Function\(/.test(text))).toEqual([]);
});
