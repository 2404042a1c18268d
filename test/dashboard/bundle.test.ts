/** What is downloaded: how much, in which pieces, and that a strict CSP has nothing to refuse. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliDecompressSync, gzipSync } from 'node:zlib';
import { beforeAll, expect, test } from 'vitest';
import { build } from '../support/command-line.ts';

const BUILT = fileURLToPath(new URL('../../dist/dashboard/', import.meta.url));
/** The budget for the scripts that a page loads, gzipped: that of the chart loads most. */
const MOST_BYTES = 100 * 1_024;
/** What is loaded on demand, and how much each may add: few visits are to the page of the account, few charts are distributions. */
const ON_DEMAND = ['heatmap', 'security'];
const MOST_ON_DEMAND_BYTES = 4_000;
/** The budget for fonts, which are compressed already. */
const MOST_FONT_BYTES = 40_000;

let scripts: { name: string; text: string }[];
let page: string;
beforeAll(() => {
  build();
  const names = readdirSync(join(BUILT, 'assets'));
  scripts = names
    .filter((name) => name.endsWith('.js'))
    .map((name) => ({ name, text: readFileSync(join(BUILT, 'assets', name), 'utf8') }));
  page = readFileSync(join(BUILT, 'index.html'), 'utf8');
});

const gzipped = (text: string): number => gzipSync(text, { level: 9 }).length;

test('a page loads at most 100 KB of scripts, gzipped file by file, and little on demand', () => {
  const sizes = scripts.map(({ name, text }) => [name, gzipped(text)] as const);
  const isOnDemand = (name: string): boolean => ON_DEMAND.some((one) => name.startsWith(`${one}-`));
  const [later, loaded] = [true, false].map((is) => sizes.filter(([name]) => isOnDemand(name) === is));
  expect(later).toHaveLength(ON_DEMAND.length);
  expect(
    loaded?.reduce((total, [, size]) => total + size, 0),
    JSON.stringify(sizes),
  ).toBeLessThanOrEqual(MOST_BYTES);
  for (const [name, size] of later ?? []) expect(size, name).toBeLessThanOrEqual(MOST_ON_DEMAND_BYTES);
  // What is on demand is loaded by a call alone.
  const isStatic = new RegExp(`(?:from|import)\\s*"[^"]*/(?:${ON_DEMAND.join('|')})-`);
  expect([page, ...scripts.map(({ text }) => text)].filter((text) => isStatic.test(text))).toEqual([]);
  expect(page).not.toMatch(/heatmap-|security-/);
});

test('there is one font, of a bounded size, which the page asks for at once, with its license', () => {
  const fonts = readdirSync(join(BUILT, 'assets')).filter((name) => name.endsWith('.woff2'));
  expect(fonts).toHaveLength(1);
  expect(readFileSync(join(BUILT, 'assets', fonts[0] ?? '')).length).toBeLessThanOrEqual(MOST_FONT_BYTES);
  expect(page).toMatch(
    new RegExp(`<link rel="preload" as="font"[^>]* href="/assets/${fonts[0]}"[^>]* crossorigin`),
  );
  expect(readFileSync(join(BUILT, 'font-license.txt'), 'utf8')).toContain('SIL OPEN FONT LICENSE');
});

test('the chart is in a file that the first page does not load', () => {
  const withCanvas = scripts.filter(({ text }) => text.includes('setPointerCapture'));
  expect(withCanvas.map(({ name }) => name)).toEqual([expect.stringMatching(/^explore-/)]);
  expect(page).not.toContain('explore');
  expect(page.match(/<script/g)).toHaveLength(1);
});

test('the page draws every icon that scripts name', () => {
  const icons = readFileSync(new URL('../../dashboard/components/icon.ts', import.meta.url), 'utf8');
  const named = [...icons.matchAll(/^ {2}\| '(\w+)'/gm)].map(([, name]) => `icon-${name}`);
  expect(named.length).toBeGreaterThan(20);
  expect([...page.matchAll(/<symbol id="([^"]+)"/g)].map(([, id]) => id)).toEqual(named);
});

test('programs and configurations of producers are in a file that a page loads when it shows them', () => {
  expect(readdirSync(join(BUILT, 'assets'))).toContainEqual(expect.stringMatching(/^snippets-.{8}\.txt$/));
  expect(scripts.filter(({ text }) => text.includes('omelasticsearch'))).toEqual([]);
  expect(page).not.toContain('snippets-');
});

test('scripts, styles and texts lie beside their copies by Brotli', () => {
  const assets = join(BUILT, 'assets');
  const plain = readdirSync(assets).filter((name) => /\.(js|css|txt)$/.test(name));
  expect(plain.length).toBeGreaterThan(scripts.length);
  for (const name of plain) {
    const file = readFileSync(join(assets, name));
    expect(brotliDecompressSync(readFileSync(join(assets, `${name}.br`))).equals(file), name).toBe(true);
  }
});

test('names are hashed, and nothing is inline', () => {
  for (const name of readdirSync(join(BUILT, 'assets')))
    expect(name).toMatch(/-[\w-]{8}\.(js|css|svg|txt|woff2)(\.br)?$/);
  expect(page).toMatch(/<script type="module"[^>]* src="\/assets\/[^"]+"><\/script>/);
  expect(page).not.toMatch(/<style|style=|\son\w+=|javascript:|<script(?![^>]*src=)/);
  expect(scripts.filter(({ text }) => /\beval\(|new Function\(/.test(text))).toEqual([]);
});
