/** Reads lines of CSV (RFC 4180) as records. A quoted field may hold line breaks. */
import type { InputLine } from './input-lines.ts';

export interface CsvRecord {
  /** Number of its first line, from 1. */
  readonly number: number;
  /** Null if it cannot be read. */
  readonly fields: readonly string[] | null;
  /** Why it cannot be read; empty if there are fields. */
  readonly problem: string;
}

/** A record longer than this has lost a quote: what follows would all be one field. */
const MAX_RECORD_LINES = 1_000;

export class CsvRecords {
  /** What stands between fields: what the first line has most of. */
  #separator = '';
  /** The lines of a record whose quote is open. */
  #open: { readonly number: number; readonly lines: string[] } | null = null;

  /** @returns null while the record goes on in the next line */
  add({ number, text, problem }: InputLine): CsvRecord | null {
    const record = this.#open ?? { number, lines: [] };
    this.#open = null;
    if (text === null) return { number: record.number, fields: null, problem };
    record.lines.push(text);
    if (this.#separator === '') {
      // A line that spreadsheets write to tell each other.
      const told = SEPARATOR_LINE.exec(text)?.[1];
      this.#separator = told ?? mostOf(text);
      if (told !== undefined) return null;
    }
    const whole = record.lines.join('\n');
    const fields = fieldsOf(whole.endsWith('\r') ? whole.slice(0, -1) : whole, this.#separator);
    if (typeof fields !== 'string') return { number: record.number, fields, problem: '' };
    if (fields !== OPEN || record.lines.length === MAX_RECORD_LINES)
      return { number: record.number, fields: null, problem: fields };
    this.#open = record;
    return null;
  }

  /** What is left at the end of the input. */
  end(): CsvRecord | null {
    return this.#open === null ? null : { number: this.#open.number, fields: null, problem: OPEN };
  }
}

const SEPARATOR_LINE = /^sep=(.)\r?$/;
const OPEN = 'it has a quote without its end';
const MISPLACED =
  'it has a quote within a field that does not begin with one, or text after the closing quote';

const mostOf = (header: string): string =>
  [',', ';', '\t'].toSorted((a, b) => header.split(b).length - header.split(a).length)[0] ?? ',';

function fieldsOf(record: string, separator: string): string[] | string {
  const fields: string[] = [];
  for (let at = 0; ; at += 1) {
    if (record[at] === '"') {
      const end = closingQuote(record, at + 1);
      if (end === -1) return OPEN;
      fields.push(record.slice(at + 1, end).replaceAll('""', '"'));
      at = end + 1;
      if (at < record.length && record[at] !== separator) return MISPLACED;
    } else {
      const comma = record.indexOf(separator, at);
      const end = comma === -1 ? record.length : comma;
      const field = record.slice(at, end);
      if (field.includes('"')) return MISPLACED;
      fields.push(field);
      at = end;
    }
    if (at >= record.length) return fields;
  }
}

/** Index of the quote that ends a field; two quotes stand for one. */
function closingQuote(record: string, from: number): number {
  for (let at = record.indexOf('"', from); at !== -1; at = record.indexOf('"', at + 2))
    if (record[at + 1] !== '"') return at;
  return -1;
}
