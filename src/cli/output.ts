/** Output of the commands: aligned text, or one JSON object for scripts. */
import { escaped } from '../base/escape.ts';
import { type Config, SETTINGS } from '../config.ts';
import { OperatorError } from '../errors.ts';

/** Names and values, one per line. */
export function formatFields(fields: Readonly<Record<string, Cell>>): string {
  const lines = Object.entries(fields);
  const width = Math.max(...lines.map(([name]) => name.length));
  return lines.map(([name, value]) => `${name.padEnd(width)}  ${formatCell(value)}`).join('\n');
}

/** A table with a header; one sentence if it has no rows. */
export function formatTable(
  head: readonly string[],
  rows: readonly (readonly Cell[])[],
  empty: string,
): string {
  if (rows.length === 0) return empty;
  const lines = [head, ...rows.map((row) => row.map(formatCell))];
  // Not Math.max over all rows: a call accepts about 100,000 arguments, and a list may be longer.
  const widths = head.map((_, column) =>
    lines.reduce((widest, line) => Math.max(widest, length(line[column] ?? '')), 0),
  );
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - length(cell)))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

/** The settings with their defaults and meanings, for `serve --help`. */
export function formatSettings(): string {
  const rows = Object.entries(SETTINGS).map(([name, { default: value, unit, meaning }]) => [
    name,
    [value, unit].filter((part) => part !== '').join(' ') || '(empty)',
    meaning,
  ]);
  return formatTable(['Variable', 'Default', 'Meaning'], rows, '');
}

/** A log for short commands, on standard error: standard output has the result. */
export function commandLog(level: Config['LOG_LEVEL']): {
  info(message: string): void;
  warn(message: string): void;
} {
  const rank = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'].indexOf(level);
  const write = (message: string): void => {
    process.stderr.write(`tidemark: ${message}\n`);
  };
  return {
    info: (message) => rank <= 2 && write(message),
    warn: (message) => rank <= 3 && write(message),
  };
}

type Cell = string | Date | null | readonly string[];

function formatCell(cell: Cell): string {
  if (cell === null) return '-';
  if (cell instanceof Date) return cell.toISOString();
  const text = typeof cell === 'string' ? cell : cell.join(' ');
  // An event type's name may contain terminal control sequences.
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}]/gu, escaped);
}

function length(text: string): number {
  return [...text].length;
}

/** Where the result goes of a command that writes a file: `-` is standard output, which has the content then. */
export function besideOutput(file: string): NodeJS.WritableStream {
  return file === '-' ? process.stderr : process.stdout;
}

/** The error for a file that a command was given and cannot read. */
export function unreadable(file: string, error: NodeJS.ErrnoException): OperatorError {
  return new OperatorError(
    error.code === 'ENOENT' ? `there is no file ${file}` : `${file} cannot be read: ${error.message}`,
  );
}
