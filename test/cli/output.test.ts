import { expect, test } from 'vitest';
import { formatTable } from '../../src/cli/output.ts';

test('a table may have more rows than a call may have arguments', () => {
  const rows = Array.from({ length: 200_000 }, (_, index) => [`tok_${index}`, 'name']);
  const lines = formatTable(['Token', 'Name'], rows, '').split('\n');
  expect(lines).toHaveLength(200_001);
  expect(lines[0]).toBe('Token       Name');
  expect(lines.at(-1)).toBe('tok_199999  name');
});
