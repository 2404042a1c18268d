/** The codes of errors of the database and of its connections. */

/** Codes of what may pass when it is tried again (PostgreSQL documentation, appendix A). */
export const SQLSTATE = {
  serializationFailure: '40001',
  deadlock: '40P01',
  /** A wait that lock_timeout or NOWAIT ended. */
  lockNotAvailable: '55P03',
  /** By statement_timeout, by the service or by an operator. */
  queryCanceled: '57014',
  undefinedTable: '42P01',
  invalidSchemaName: '3F000',
  /** A text with NUL, and JSON with one in a text. */
  characterNotInRepertoire: '22021',
  untranslatableCharacter: '22P05',
} as const;

/** What everybody is told of a full disk, of the database's or of this machine. */
export const DISK_IS_FULL = 'The disk is full: make room, then it goes on by itself.';

/** Whether a disk was full: disk_full of PostgreSQL, or the system's codes for a file. */
export function isDiskFull(error: unknown): boolean {
  return ['53100', 'ENOSPC', 'EDQUOT'].includes(errorCode(error));
}

/** Whether a text had NUL in it, which PostgreSQL cannot store: texts from here are UTF-8 otherwise. */
export function hasNul(error: unknown): boolean {
  const { characterNotInRepertoire, untranslatableCharacter } = SQLSTATE;
  return [characterNotInRepertoire, untranslatableCharacter].some((code) => code === errorCode(error));
}

/** SQLSTATE of a database error, or the system's or the client's code of a broken connection; empty where there is none. */
export function errorCode(error: unknown): string {
  if (typeof error !== 'object' || error === null || !('code' in error)) return '';
  return String(error.code);
}

/** @returns null where a lock was not free in time: nothing was done */
export async function unlessLocked<T>(work: () => Promise<T>): Promise<T | null> {
  try {
    return await work();
  } catch (error) {
    if (errorCode(error) === SQLSTATE.lockNotAvailable) return null;
    throw error;
  }
}

/** Codes of the system, of name lookups and of the clients for a connection that cannot be made or is lost. */
const CONNECTION_TROUBLE = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'ENOENT',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'CONNECT_TIMEOUT',
  'CONNECTION_CLOSED',
  'CONNECTION_ENDED',
  'CONNECTION_DESTROYED',
  // A server that is not to be used (connections/server-watch.ts).
  'SERVER_READ_ONLY',
  'SERVER_IN_RECOVERY',
  'SERVER_IS_OLDER',
  'SERVER_IS_FOREIGN',
  'SERVER_FORBIDS',
  'SERVER_HAS_MOVED',
  'SERVER_IS_BEHIND',
  'SERVER_IS_UNFIT',
  // A node of a cluster that does not answer (nodes.ts).
  'NODE_AWAY',
  // read_only_sql_transaction: it was the primary when the connection was made. insufficient_privilege: no session can write.
  '25006',
  '42501',
  // What `connect` fails with at once: no route, no network, no address or port of our own, no room for a socket.
  'EHOSTUNREACH',
  'EHOSTDOWN',
  'ENETUNREACH',
  'ENETDOWN',
  'ENETRESET',
  'EADDRNOTAVAIL',
  'EAGAIN',
  'EMFILE',
  'ENFILE',
  'ENOBUFS',
]);

/** A firewall's or a route's refusal. Files have these codes too, so the system call has to be one of sockets. */
const PROHIBITED = new Set(['EACCES', 'EPERM']);

/** True where the database cannot be reached or is starting, stopping or out of resources: the request is not at fault. */
export function isUnavailable(error: unknown): boolean {
  const code = errorCode(error);
  if (CONNECTION_TROUBLE.has(code) || /^(08|53|57P)/.test(code)) return true;
  return PROHIBITED.has(code) && error instanceof Error && 'syscall' in error && error.syscall === 'connect';
}
