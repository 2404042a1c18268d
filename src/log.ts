/** Structured logs on standard error: JSON lines, or readable ones on a terminal. Never a token and never a payload. */
import pino, { type Logger } from 'pino';
import type { Config } from './config.ts';

/** Fields that may contain a secret, at any level of a log line. */
const SECRETS = [
  'loggingToken',
  'resourceToken',
  'token',
  'authorization',
  'cookie',
  'password',
  'payload',
  'url',
];

/**
 * Characters that JSON leaves unescaped and that a terminal may run as a command or a reader may take for a line break: DEL,
 * the C1 control characters (U+009B is equivalent to ESC [), and Unicode's line and paragraph separators.
 */
const UNESCAPED = /[\u007f-\u009f\u2028\u2029]/g;

/** Where lines are written. */
export interface LogDestination {
  write(line: string): unknown;
}

/** Standard error: standard output belongs to commands. */
function standardError(): LogDestination {
  const destination = pino.destination({ fd: 2, sync: true });
  // A log that cannot be written, on a full disk or to a reader that is gone, is no reason to stop serving.
  destination.on('error', () => undefined);
  return destination;
}

/**
 * Creates the process's logger.
 * @param base fields of every line: the worker, if there are several
 */
export function createLog(
  level: Config['LOG_LEVEL'],
  base: { worker: number } | null = null,
  destination = standardError(),
): Logger {
  return pino(
    {
      level,
      base,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRETS.flatMap((name) => [name, `*.${name}`]), censor: '[redacted]' },
      serializers: { err: describeError },
    },
    // They occur only inside JSON strings.
    { write: (line: string) => destination.write(line.replace(UNESCAPED, escaped)) },
  );
}

/**
 * An error without a producer's data: PostgreSQL puts values into `detail`, `where` and sometimes into the message of data
 * errors, so only the code and the location of those are kept.
 */
function describeError(error: unknown): object {
  if (!(error instanceof Error)) return { message: String(error) };
  const code = 'code' in error ? String(error.code) : undefined;
  const constraint = 'constraint' in error ? error.constraint : undefined;
  const holdsData = code !== undefined && /^2[23]/.test(code);
  const message = holdsData ? 'data refused by the database' : error.message;
  const stack = holdsData ? undefined : error.stack;
  return { type: error.name, code, constraint, message, stack };
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
