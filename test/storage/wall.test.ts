/** The wall around storage: what it may know of the rest of the code, and what stays inside. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, test } from 'vitest';

const SOURCE = new URL('../../src/', import.meta.url).pathname;
const files = readdirSync(SOURCE, { recursive: true, encoding: 'utf8' }).filter((file) =>
  file.endsWith('.ts'),
);
const outside = files.filter((file) => !file.startsWith('storage/'));

/** What a file imports, as paths in src. */
function importsOf(file: string): string[] {
  const text = readFileSync(join(SOURCE, file), 'utf8');
  return [...text.matchAll(/from '(\.[^']+)'|import\('(\.[^']+)'\)/g)].map(([, from, imported]) =>
    normalize(join(dirname(file), from ?? imported ?? '')),
  );
}

test('storage hangs no state on objects of others', () => {
  const hanging = files.filter(
    (file) =>
      file.startsWith('storage/') && /\bWeak(Map|Set)\b/.test(readFileSync(join(SOURCE, file), 'utf8')),
  );
  expect(hanging).toEqual([]);
});

test('storage knows nothing of what is built on it', () => {
  const above = /^(accounts|apps|cache|cli|cluster|http|ingest|limits|read|service)\//;
  const upward = files
    .filter((file) => file.startsWith('storage/'))
    .flatMap((file) =>
      importsOf(file)
        .filter((target) => above.test(target))
        .map((target) => `${file} → ${target}`),
    );
  expect(upward).toEqual([]);
});

test('an engine is named in its own folder and where one is chosen', () => {
  const engines = files.filter((file) => /^storage\/engines\/(postgres|timescale|citus)\//.test(file));
  expect(engines.length).toBeGreaterThan(4);
  const users = files.filter(
    (file) =>
      !/^storage\/engines\/(postgres|timescale|citus)\//.test(file) &&
      importsOf(file).some((target) => /^storage\/engines\/(postgres|timescale|citus)\//.test(target)),
  );
  expect(users).toEqual(['storage/engines/engines.ts']);
});

const SQL_ON_EVENTS =
  /\b(FROM|INTO|UPDATE|COPY|JOIN|TABLE)\s+(ONLY\s+)?(events|(minute|quarter_hour|hour|day|month)_counts|count_deltas|pending_deltas|(last_)?folds?|events_per_\w+|stale_\w+|daily_prefix_sums|profiled_days)\b/i;

test('SQL on events and counts is in storage alone', () => {
  const elsewhere = outside.filter((file) => {
    const text = readFileSync(join(SOURCE, file), 'utf8');
    return SQL_ON_EVENTS.test(text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, ''));
  });
  expect(elsewhere).toEqual([]);
});
