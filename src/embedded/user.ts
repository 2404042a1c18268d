import { execFile } from 'node:child_process';
import { OperatorError } from '../errors.ts';

/** The user that runs PostgreSQL. */
export interface SystemUser {
  readonly uid: number;
  readonly gid: number;
}

export interface Outcome {
  /** Exit code; if there is none, the error code (`EACCES`, `ENOENT`) or the signal. */
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * The environment of PostgreSQL and its tools: nothing of this process's, so that no PG* variables and no secrets leak.
 * LANG must be set: without it PostgreSQL 18 refuses to guess a locale.
 */
export const CLEAN_ENVIRONMENT = {
  PATH: '/usr/local/bin:/usr/bin:/bin',
  LANG: 'C',
  LC_ALL: 'C',
  TZ: 'UTC',
} as const;

const USER_NAME = 'tidemark';
const FALLBACK_USER_NAME = 'postgres';

/** Whether this process is root. PostgreSQL refuses to run as root. */
export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/**
 * Runs a short command, as `user` if given. Never rejects: a command that could not be started has an outcome as well.
 * libuv drops the supplementary groups when it changes the user.
 */
export function run(
  command: string,
  args: readonly string[],
  options: { readonly user?: SystemUser | undefined; readonly input?: string } = {},
): Promise<Outcome> {
  return new Promise((resolve) => {
    const environment = {
      cwd: '/',
      env: { ...CLEAN_ENVIRONMENT, PATH: `${CLEAN_ENVIRONMENT.PATH}:/usr/sbin:/sbin` },
      maxBuffer: 16 * 1024 * 1024,
      ...options.user,
    };
    try {
      const child = execFile(command, args, environment, (error, stdout, stderr) => {
        resolve({ code: error === null ? 0 : (error.code ?? error.signal ?? 1), stdout, stderr });
      });
      // A command that ends without reading its input breaks the pipe; its exit code is enough.
      child.stdin?.on('error', () => undefined);
      child.stdin?.end(options.input ?? '');
    } catch (error) {
      // spawn throws synchronously for some failures, such as EPERM of setuid.
      resolve({ code: (error as NodeJS.ErrnoException).code ?? 1, stdout: '', stderr: String(error) });
    }
  });
}

/**
 * The unprivileged user that runs PostgreSQL if this process is root: `tidemark`, created if possible, else `postgres`.
 * @throws OperatorError if there is neither
 */
export async function unprivilegedUser(): Promise<SystemUser> {
  const user =
    (await lookUp(USER_NAME)) ?? (await createUser(USER_NAME)) ?? (await lookUp(FALLBACK_USER_NAME));
  if (user !== undefined) return user;
  throw new OperatorError(
    `PostgreSQL refuses to run as root and the user "${USER_NAME}" could not be created: ` +
      `create it (useradd --system ${USER_NAME}), start Tidemark as another user, or set DATABASE_URL`,
  );
}

/** Whether `user` can enter the folder. Tested by the kernel, because mode bits do not show ACLs and mount options. */
export async function canReach(folder: string, user: SystemUser): Promise<boolean> {
  const outcome = await run('/bin/sh', ['-c', 'cd -- "$1"', 'sh', folder], { user });
  return outcome.code === 0;
}

async function lookUp(name: string): Promise<SystemUser | undefined> {
  const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])]);
  if (uid.code !== 0 || gid.code !== 0) return undefined;
  const user = { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  // A user "tidemark" with uid 0 is root and cannot run PostgreSQL.
  return user.uid > 0 ? user : undefined;
}

async function createUser(name: string): Promise<SystemUser | undefined> {
  const account = [
    '--system',
    '--no-create-home',
    '--home-dir',
    '/nonexistent',
    '--shell',
    '/usr/sbin/nologin',
  ];
  // The second form is for an existing group.
  for (const group of [['--user-group'], ['--gid', name]]) {
    await run('useradd', [...account, ...group, name]);
    // Looked up whatever the result of useradd: another process may have created it concurrently.
    const user = await lookUp(name);
    if (user !== undefined) return user;
  }
  return undefined;
}
