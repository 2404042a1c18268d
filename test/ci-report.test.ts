/** What .ci/run says of a run of the tests: whatever titles and messages have, half a surrogate pair too. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';

const folder = mkdtempSync(join(tmpdir(), 'tidemark-ci-report-'));
afterAll(() => rmSync(folder, { recursive: true }));

test('names what failed, and how many passed', () => {
  const report = join(folder, 'tests.json');
  const failed = { status: 'failed', fullName: 'half \ud83d', failureMessages: ['expected \udc00\ud83d'] };
  const [bad, good] = ['/test/b.test.ts', '/test/a.test.ts'];
  const testResults = [
    { name: bad, status: 'failed', assertionResults: [failed, { ...failed, status: 'passed' }] },
    { name: good, status: 'passed', assertionResults: [] },
  ];
  const counts = { numPassedTests: 1, numFailedTests: 1, numPendingTests: 0 };
  writeFileSync(report, JSON.stringify({ ...counts, testResults }));
  const run = (...options: readonly string[]): string =>
    execFileSync(process.execPath, ['.ci/report.mjs', ...options], { encoding: 'utf8' });
  expect(run('failed', report)).toBe(`${bad}\n`);
  expect(
    run('tell', join(folder, 'none.json'), report)
      .split('\n')
      .map((line) => line.trim()),
  ).toEqual([
    ...[`failed: ${bad}`, 'half \ufffd', 'expected \ufffd\ufffd'],
    ...['1 passed, 1 failed at first, 0 skipped', ''],
  ]);
});
