/** What is downloaded: how much, in which pieces, and that a strict CSP has nothing to refuse. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliDecompressSync, gzipSync } from 'node:zlib';
import { beforeAll, expect, test } from 'vitest';
import { build } from '../support/command-line.ts';

const BUILT = fileURLToPath(new URL('../../dist/dashboard/', import.meta.url));
/** The budget for scripts in all, gzipped. */
const MOST_BYTES = 100 * 1_024;
/** What the page of the account adds, to which few visits are. */
const MOST_ACCOUNT_BYTES = 4_000;
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

test('all scripts are at most 100 KB, gzipped file by file', () => {
  const sizes = scripts.map(({ name, text }) => [name, gzipped(text)] as const);
  const sum = (some: typeof sizes): number => some.reduce((total, [, size]) => total + size, 0);
  const ofAccount = sizes.filter(([name]) => name.startsWith('security-'));
  expect(ofAccount).toHaveLength(1);
  expect(sum(sizes), `${JSON.stringify(sizes)}`).toBeLessThanOrEqual(MOST_BYTES);
  expect(sum(ofAccount)).toBeLessThanOrEqual(MOST_ACCOUNT_BYTES);
  expect(page).not.toContain('security-');
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
