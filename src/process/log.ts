/** Structured logs on standard error: JSON lines, or readable ones on a terminal. Never a token and never a payload. */

import pino, { type Level, type Logger } from 'pino';
import { escaped } from '../base/escape.ts';
import type { Config } from '../config.ts';
import { LineOutput, standardOutput } from './log-output.ts';

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

/**
 * How many lines of one text are written in a second. Clients cause many lines by repeating what fails: the others are counted,
 * and a line with their number follows at the end of the second.
 */
const LINES_PER_SECOND = 20;
/** Texts whose single lines say nothing new: each request that is refused during an outage has one. */
const ONE_PER_SECOND: readonly string[] = ['http: request failed, the database cannot be reached'];
/** Texts that are counted at a time. Further ones share a count. */
const MAX_TEXTS = 1_000;
const OTHER_TEXTS = 'other lines';

/**
 * Creates the process's logger.
 * @param base fields of every line: the worker, if there are several
 */
export function createLog(
  level: Config['LOG_LEVEL'],
  base: { worker: number } | null = null,
  destination?: LogDestination,
): Logger {
  const rates = new LineRates();
  const written = destination ?? standardOutput(2);
  const log = pino(
    {
      level,
      base,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRETS.flatMap((name) => [name, `*.${name}`]), censor: '[redacted]' },
      serializers: { err: describeError },
      hooks: {
        logMethod(args, method, level) {
          if (rates.admits(args, this.levels.labels[level] ?? '')) method.apply(this, args);
        },
      },
    },
    // They occur only inside JSON strings.
    { write: (line: string) => written.write(line.replace(UNESCAPED, escaped)) },
  );
  rates.onSuppressed = (level, text, suppressed) => log[level]({ [SUMMARY]: true, suppressed }, text);
  if (written instanceof LineOutput)
    written.onResume = (lines) =>
      log.warn({ lines }, 'log: lines dropped, standard error was not read or not writable');
  return log;
}

/** Marks the line that has the number of the others. */
const SUMMARY = Symbol('summary');

/** Counts lines by their text, and admits so many a second. */
class LineRates {
  onSuppressed: (level: Level, text: string, suppressed: number) => void = () => undefined;
  #lines = new Map<string, { readonly level: Level; count: number; suppressed: number }>();

  /** @param args of a method of the logger: fields and text, or the text alone */
  admits(args: readonly unknown[], level: string): boolean {
    const [first, second] = args;
    const text = typeof first === 'string' ? first : second;
    if (typeof text !== 'string' || !isRated(level)) return true;
    // The authentication log has rates of its own, by client, and its other lines are kept.
    if (typeof first === 'object' && first !== null && ('event' in first || SUMMARY in first)) return true;
    if (this.#lines.size === 0) setTimeout(() => this.#endSecond(), 1_000).unref();
    const key = this.#lines.has(text) || this.#lines.size < MAX_TEXTS ? text : OTHER_TEXTS;
    const lines = this.#lines.get(key) ?? { level, count: 0, suppressed: 0 };
    this.#lines.set(key, lines);
    if (lines.count >= (ONE_PER_SECOND.includes(key) ? 1 : LINES_PER_SECOND)) {
      lines.suppressed += 1;
      return false;
    }
    lines.count += 1;
    return true;
  }

  #endSecond(): void {
    const lines = this.#lines;
    this.#lines = new Map();
    for (const [text, { level, suppressed }] of lines)
      if (suppressed > 0) this.onSuppressed(level, text, suppressed);
  }
}

/** Whoever logs at lower levels wants every line. Fatal lines are the last ones. */
function isRated(level: string): level is 'info' | 'warn' | 'error' {
  return level === 'info' || level === 'warn' || level === 'error';
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
