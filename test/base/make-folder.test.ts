import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { makeFolder } from '../../src/base/make-folder.ts';

test('several at once make folders whose parents are missing', async () => {
  const root = await mkdtemp(join(tmpdir(), 'tidemark-folders-'));
  onTestFinished(() => rm(root, { recursive: true, force: true }));
  const names = Array.from({ length: 8 }, (_, n) => `writer-${n}`);
  for (let round = 0; round < 50; round += 1) {
    const folders = names.map((name) => join(root, `${round}`, 'journal', name));
    await Promise.all(folders.map((folder) => makeFolder(folder, 0o700)));
    for (const folder of folders) expect((await stat(folder)).mode & 0o777).toBe(0o700);
  }
});
