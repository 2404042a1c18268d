/** Another commit of this repository, laid out and built beside the working tree. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { OperatorError } from '../../src/errors.ts';
import { ROOT } from '../report/results.ts';

const run = promisify(execFile);

async function git(...args: readonly string[]): Promise<string> {
  return (await run('git', args, { cwd: ROOT })).stdout.trim();
}

/** @returns the full hash. @throws OperatorError where there is no such commit */
export async function resolveCommit(ref: string): Promise<string> {
  return await git('rev-parse', '--verify', '--quiet', '--end-of-options', `${ref}^{commit}`).catch(() => {
    throw new OperatorError(`there is no commit ${ref} here (a shallow clone has only the last ones)`);
  });
}

/**
 * What a change is compared with: the commit at which it left the main branch; on the main branch itself the commit before.
 * @returns null where the history has neither, as in a shallow clone
 */
export async function mergeBase(): Promise<string | null> {
  const head = await resolveCommit('HEAD');
  for (const branch of ['origin/HEAD', 'origin/main', 'main']) {
    const base = await git('merge-base', 'HEAD', branch).catch(() => '');
    if (base !== '' && base !== head) return base;
  }
  return await resolveCommit('HEAD^').catch(() => null);
}

async function hasSameLock(folder: string): Promise<boolean> {
  const [ours, theirs] = await Promise.all(
    [ROOT, folder].map((one) => readFile(join(one, 'package-lock.json'), 'utf8')),
  );
  return ours === theirs;
}

/**
 * Lays a commit out in .bench/commits and builds it. The same packages are shared; others are installed.
 * @param commit a full hash @returns its folder, which stays for the next comparison
 */
export async function checkOut(commit: string): Promise<string> {
  const folder = join(ROOT, '.bench', 'commits', commit);
  const done = join(folder, 'dist', '.built');
  if (existsSync(done)) return folder;
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const archive = join(folder, '.archive.tar');
  await git('archive', '--format=tar', `--output=${archive}`, commit);
  await run('tar', ['-x', '-f', archive, '-C', folder]);
  await rm(archive);
  if (await hasSameLock(folder)) await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'));
  else await run('npm', ['ci', '--no-fund', '--no-audit'], { cwd: folder });
  await run(process.execPath, ['tidemark.mjs', '--build-only'], { cwd: folder });
  return folder;
}
