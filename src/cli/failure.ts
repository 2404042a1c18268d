/** Describes failures to the operator. */
import { OperatorError, oneLine, Refused } from '../errors.ts';
import { errorCode, isDiskFull, isUnavailable } from '../storage/database/connect.ts';

/** One line for any failure. */
export function describeFailure(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof OperatorError || error instanceof Refused) return message;
  if (isDiskFull(error)) return `the disk is full (${message}): make room, then repeat the command`;
  // File errors share codes with socket errors.
  const isOfFile =
    error instanceof Error && 'path' in error && 'syscall' in error && error.syscall !== 'connect';
  if (errorCode(error) === '42501') return `the user of DATABASE_URL lacks a right (${message}): grant it`;
  if (isUnavailable(error) && !isOfFile) return `the database is unavailable (${message}): retry`;
  return `unexpected failure: ${message} (set LOG_LEVEL=debug for the stack trace)`;
}

/** Prints the failure as one line on standard error. */
export function printFailure(error: unknown): void {
  process.stderr.write(`tidemark: ${oneLine(describeFailure(error))}\n`);
  if (['debug', 'trace'].includes(process.env.LOG_LEVEL ?? '')) console.error(error);
}
