/** Small file systems in memory, which tests fill. Only root may mount them. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { chown } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { SystemUser } from '../../src/embedded/user.ts';

let allowed: boolean | null = null;

/** Whether this process may mount file systems. */
export function mountsAllowed(): boolean {
  if (allowed === null) {
    const folder = mkdtempSync(join(tmpdir(), 'tidemark-mount-'));
    allowed = mount(folder, '64k');
    if (allowed) spawnSync('umount', [folder]);
    rmSync(folder, { recursive: true });
  }
  return allowed;
}

/**
 * Mounts one over a folder.
 * @param size for example `512k`
 * @returns a function that takes it away again
 */
export async function mountSmall(
  folder: string,
  size: string,
  user?: SystemUser,
): Promise<() => Promise<void>> {
  if (!mount(folder, size)) throw new Error(`${folder} cannot be mounted over.`);
  if (user !== undefined) await chown(folder, user.uid, user.gid);
  return async () => {
    // Lazily: whoever has a file open in it must not keep the test.
    spawnSync('umount', ['--lazy', folder]);
  };
}

function mount(folder: string, size: string): boolean {
  return spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=0700`, 'tmpfs', folder]).status === 0;
}
