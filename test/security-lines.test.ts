/** Every line of the list in SECURITY.md has a test that is named after it: “security”, its number, a colon. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const FOLDER = fileURLToPath(new URL('.', import.meta.url));
const LINES = Array.from({ length: 28 }, (_, index) => index + 1);

test('every line of the security list has a test that is named after it', () => {
  const files = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).filter(
    (file) => /\.(test|contract)\.ts$/.test(file) && !file.startsWith('security-lines'),
  );
  const named = new Set(
    files.flatMap((file) =>
      [...readFileSync(`${FOLDER}${file}`, 'utf8').matchAll(/['"`]security (\d+): /gm)].map(([, line]) =>
        Number(line),
      ),
    ),
  );
  expect(LINES.filter((line) => !named.has(line))).toEqual([]);
});
