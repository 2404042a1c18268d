import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { describeFailure } from '../../src/cli/failure.ts';
import { formatTable } from '../../src/cli/output.ts';

test('a table may have more rows than a call may have arguments', () => {
  const rows = Array.from({ length: 200_000 }, (_, index) => [`tok_${index}`, 'name']);
  const lines = formatTable(['Token', 'Name'], rows, '').split('\n');
  expect(lines).toHaveLength(200_001);
  expect(lines[0]).toBe('Token       Name');
  expect(lines.at(-1)).toBe('tok_199999  name');
});

test('a path that cannot be used is told with its reason', async () => {
  const nowhere = join(import.meta.dirname, 'nothing');
  const failures = await Promise.allSettled([readdir(nowhere), readdir(import.meta.filename)]);
  expect(failures.map((failure) => 'reason' in failure && describeFailure(failure.reason))).toEqual([
    `${nowhere}: there is no such file or folder`,
    `${import.meta.filename}: a part of the path is no folder`,
  ]);
});
