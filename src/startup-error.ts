/** A failure that the operator can mend: the command line prints its one line, which says what to do, and exits with 1. */
export class StartupError extends Error {
  override readonly name = 'StartupError';
}
