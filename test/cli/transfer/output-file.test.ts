import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { finished } from 'node:stream/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { outputOf } from '../../../src/cli/transfer/output-file.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-output-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

test('drafts that interrupted commands have left go, and those of running ones and of other files stay', async () => {
  const names = ['.a.backup.0123456789ab.part', '.a.backup.ba9876543210.part', '.b.backup.0123456789ab.part'];
  for (const name of names) await writeFile(join(folder, name), 'half');
  const yesterday = new Date(Date.now() - 86_400_000);
  await utimes(join(folder, names[0] ?? ''), yesterday, yesterday);
  await utimes(join(folder, names[2] ?? ''), yesterday, yesterday);
  const write = await outputOf(join(folder, 'a.backup'));
  await write(async (output) => {
    output.end('whole');
    await finished(output);
  });
  expect((await readdir(folder)).sort()).toEqual([names[2], names[1], 'a.backup'].sort());
  expect(await readFile(join(folder, 'a.backup'), 'utf8')).toBe('whole');
});
