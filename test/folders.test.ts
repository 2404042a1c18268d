import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, test } from 'vitest';

const SOURCE = new URL('../src/', import.meta.url).pathname;
const DASHBOARD = new URL('../dashboard/', import.meta.url).pathname;

/** Which file of a folder imports which, type imports and those on demand included. */
function fileImports(folder: string): Map<string, readonly string[]> {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.ts'),
  );
  return new Map(
    files.map((file) => {
      const targets = readFileSync(join(folder, file), 'utf8').matchAll(/(?:from |import\()'(\.[^']+)'/g);
      return [file, [...targets].map(([, target]) => normalize(join(dirname(file), target ?? '')))];
    }),
  );
}

/** Which folder of src imports which; a file at the top counts as a folder of its own. */
function folderImports(): Map<string, Set<string>> {
  const imports = new Map<string, Set<string>>();
  for (const file of readdirSync(SOURCE, { recursive: true, encoding: 'utf8' })) {
    const [folder] = file.split('/');
    if (!file.endsWith('.ts') || folder === undefined) continue;
    const targets = imports.get(folder) ?? new Set();
    imports.set(folder, targets);
    for (const [, target] of readFileSync(join(SOURCE, file), 'utf8').matchAll(/from '(\.[^']+)'/g)) {
      const [other] = normalize(join(dirname(file), target ?? '')).split('/');
      if (other !== undefined && other !== folder) targets.add(other);
    }
  }
  return imports;
}

test('folders and the files at the top import each other in one direction only, whatever lies between them', () => {
  const imports = folderImports();
  expect(imports.get('read')).toContain('storage');
  const cycles: string[] = [];
  const follow = (path: readonly string[]): void => {
    for (const next of imports.get(path.at(-1) ?? '') ?? []) {
      if (next === path[0]) cycles.push([...path, next].join(' → '));
      else if (!path.includes(next)) follow([...path, next]);
    }
  };
  for (const folder of imports.keys()) follow([folder]);
  expect(cycles).toEqual([]);
});

test.each([
  [SOURCE, 'storage/storage.ts', 'storage/migrate.ts'],
  [DASHBOARD, 'routes/app.ts', 'routes/explore.ts'],
])('no file of %s imports itself through others, not even for types', (folder, one, other) => {
  const imports = fileImports(folder);
  expect(imports.get(one)).toContain(other);
  const done = new Set<string>();
  const circles: string[] = [];
  const follow = (path: readonly string[]): void => {
    const file = path.at(-1) ?? '';
    if (done.has(file)) return;
    for (const next of imports.get(file) ?? []) {
      const at = path.indexOf(next);
      if (at >= 0) circles.push([...path.slice(at), next].join(' → '));
      else follow([...path, next]);
    }
    done.add(file);
  };
  for (const file of imports.keys()) follow([file]);
  expect(circles).toEqual([]);
});
