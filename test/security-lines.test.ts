/** Promises and the tests that hold them: each line of SECURITY.md, of the contract and of durability (docs/claims.md). */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { markedTable, readPage } from './docs/pages.ts';

const FOLDER = fileURLToPath(new URL('.', import.meta.url));
const LINES = Array.from({ length: 28 }, (_, index) => index + 1);

interface Line {
  readonly number: number;
  /** Files of tests, as paths in test/ without their endings. */
  readonly tests: readonly string[];
  readonly alsoTests: readonly string[];
}

const table: Line[] = markedTable(readPage('SECURITY.md'), 'security lines').map(
  ([number, , tests = '', alsoTests = '']) => ({
    number: Number(number),
    tests: filesOf(tests),
    alsoTests: filesOf(alsoTests),
  }),
);

function filesOf(cell: string): string[] {
  return [...cell.matchAll(/`([^`]+)`/g)].map(([, file = '']) => file);
}

/** File, as a path in test/ without its ending → the numbers of the lines that its tests are named after. */
function namedTests(): Map<string, ReadonlySet<number>> {
  const files = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' });
  const tests = files.filter(
    (file) => /\.(test|contract)\.ts$/.test(file) && !file.startsWith('security-lines'),
  );
  return new Map(
    tests.map((file) => {
      const text = readFileSync(`${FOLDER}${file}`, 'utf8');
      const numbers = [...text.matchAll(/['"`]security (\d+): /g)].map(([, number]) => Number(number));
      return [file.replace(/\.(test|contract)\.ts$/, ''), new Set(numbers)];
    }),
  );
}

test('SECURITY.md has every line of the security list, each with a test', () => {
  expect(table.map(({ number }) => number)).toEqual(LINES);
  expect(table.filter(({ tests }) => tests.length === 0)).toEqual([]);
});

test('each file that SECURITY.md names for a line has a test of that line', () => {
  const named = namedTests();
  const missing = table.flatMap(({ number, tests }) =>
    tests.filter((file) => named.get(file)?.has(number) !== true).map((file) => `${number}: ${file}`),
  );
  expect(missing).toEqual([]);
  const also = table.flatMap(({ alsoTests }) => alsoTests);
  expect(also.filter((file) => !existsSync(`${FOLDER}${file}.test.ts`))).toEqual([]);
});

test('SECURITY.md names every file that has a test of a line', () => {
  const unnamed = [...namedTests()].flatMap(([file, numbers]) =>
    [...numbers]
      .filter((number) => !table.find((line) => line.number === number)?.tests.includes(file))
      .map((number) => `${number}: ${file}`),
  );
  expect(unnamed).toEqual([]);
});

test.each(['contract', 'durability'])(
  'each promise of %s in docs/claims.md has a test of the name there',
  (kind) => {
    const claims = markedTable(
      readPage('docs/claims.md'),
      kind === 'contract' ? 'claims of the contract' : 'claims of durability',
    );
    expect(claims.length).toBeGreaterThan(20);
    const missing = claims.filter(([, name = '', file = '']) => {
      const path = `${FOLDER}${file.replaceAll('`', '')}.test.ts`;
      return !existsSync(path) || !readFileSync(path, 'utf8').includes(name);
    });
    expect(missing).toEqual([]);
  },
);
