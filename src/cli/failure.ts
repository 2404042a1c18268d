/** Describes failures to the operator. */
import { OperatorError, oneLine, Refused } from '../errors.ts';
import { errorCode, isDiskFull, isUnavailable } from '../storage/database/connect.ts';

/** What is wrong with a path that a command was given, by the code of the system. */
const OF_FILES: ReadonlyMap<string, string> = new Map([
  ['ENOENT', 'there is no such file or folder'],
  ['EACCES', 'this user may not use it'],
  ['EPERM', 'this user may not use it'],
  ['EISDIR', 'it is a folder: name a file'],
  ['ENOTDIR', 'a part of the path is no folder'],
  ['EROFS', 'its file system is read-only'],
  ['ENAMETOOLONG', 'the name is too long'],
]);

/** One line for any failure. */
export function describeFailure(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof OperatorError || error instanceof Refused) return message;
  if (isDiskFull(error)) return `the disk is full (${message}): make room, then repeat the command`;
  // File errors share codes with socket errors.
  const isOfFile =
    error instanceof Error && 'path' in error && 'syscall' in error && error.syscall !== 'connect';
  const ofFile = isOfFile ? OF_FILES.get(errorCode(error)) : undefined;
  if (isOfFile && ofFile !== undefined) return `${String(error.path)}: ${ofFile}`;
  if (errorCode(error) === '42501') return `the user of DATABASE_URL lacks a right (${message}): grant it`;
  if (isUnavailable(error) && !isOfFile) return `the database is unavailable (${message}): retry`;
  return `unexpected failure: ${message} (set LOG_LEVEL=debug for the stack trace)`;
}

/** Prints the failure as one line on standard error. */
export function printFailure(error: unknown): void {
  process.stderr.write(`tidemark: ${oneLine(describeFailure(error))}\n`);
  if (['debug', 'trace'].includes(process.env.LOG_LEVEL ?? '')) console.error(error);
}
