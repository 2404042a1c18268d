/** What a failure is called towards the person at the keyboard. */
import { AccountError } from './accounts/account-error.ts';
import { OperatorError, oneLine } from './errors.ts';
import { isUnavailable } from './storage/connect.ts';

/** One line for whatever went wrong. */
export function describeFailure(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  if (error instanceof OperatorError || error instanceof AccountError) return message;
  // Files have codes in common with sockets.
  const isOfFile =
    error instanceof Error && 'path' in error && 'syscall' in error && error.syscall !== 'connect';
  if (isUnavailable(error) && !isOfFile) return `the database went away (${message}): try again`;
  return `unexpected failure: ${message} (LOG_LEVEL=debug shows where)`;
}

/** Prints the failure as one line on standard error. */
export function printFailure(error: unknown): void {
  process.stderr.write(`tidemark: ${oneLine(describeFailure(error))}\n`);
  if (['debug', 'trace'].includes(process.env.LOG_LEVEL ?? '')) console.error(error);
}
