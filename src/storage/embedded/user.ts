import { execFile } from 'node:child_process';
import { OperatorError } from '../../errors.ts';

/** A user to run PostgreSQL as. */
export interface SystemUser {
  readonly uid: number;
  readonly gid: number;
}

export interface Outcome {
  /** Exit code, or the error code (`EACCES`, `ENOENT`) or signal when there is none. */
  readonly code: number | string;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * What PostgreSQL and its helpers see of our environment: nothing, so that neither PG* variables nor secrets leak in.
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

/** True when this process is root, as whom PostgreSQL refuses to run. */
export function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/**
 * Runs a short command to its end, as `user` when given. Never rejects: a command that could not be started has an
 * outcome too. libuv drops the supplementary groups whenever it changes the user.
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
      // A command that ends without reading its input breaks the pipe; its exit code tells the story.
      child.stdin?.on('error', () => undefined);
      child.stdin?.end(options.input ?? '');
    } catch (error) {
      // spawn throws at once for some failures, EPERM on setuid among them.
      resolve({ code: (error as NodeJS.ErrnoException).code ?? 1, stdout: '', stderr: String(error) });
    }
  });
}

/**
 * The unprivileged user that runs PostgreSQL when we are root: `tidemark`, made if need be, or else `postgres`.
 * @throws OperatorError when there is neither.
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

/** Whether `user` can enter the folder. Asked of the kernel, because mode bits alone know nothing of ACLs and mounts. */
export async function canReach(folder: string, user: SystemUser): Promise<boolean> {
  const outcome = await run('/bin/sh', ['-c', 'cd -- "$1"', 'sh', folder], { user });
  return outcome.code === 0;
}

async function lookUp(name: string): Promise<SystemUser | undefined> {
  const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])]);
  if (uid.code !== 0 || gid.code !== 0) return undefined;
  const user = { uid: Number(uid.stdout), gid: Number(gid.stdout) };
  // A "tidemark" that is root under another name is of no use.
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
  // The second spelling is for a group that is there already.
  for (const group of [['--user-group'], ['--gid', name]]) {
    await run('useradd', [...account, ...group, name]);
    // Looked up whatever useradd said: another process may have made it at the same moment.
    const user = await lookUp(name);
    if (user !== undefined) return user;
  }
  return undefined;
}
