/** Exported lines of JSON as lines of CSV (RFC 4180). */
import type { TimeSlice } from '../../base/time-slice.ts';
import { type Scalar, scalarsOf } from '../filter/payload-matcher.ts';

/** A field of payloads that has a column of its own. */
export interface FieldColumn {
  /** As it was asked for, which is its title. */
  readonly title: string;
  readonly path: readonly string[];
}

const ID_START = '{"id":"'.length;
const ID_END = ID_START + 36;
const PAYLOAD = ',"payload":';
/** `"2026-01-31T08:30:00.123Z"` */
const TIME_LENGTH = 26;

/**
 * What becomes of a text that a spreadsheet would run as a formula: it gets an apostrophe before it, or stays as it is for programs. A
 * producer chooses the names of types, so without this a member's spreadsheet would run what any client has sent.
 */
export const FORMULAS = ['escape', 'keep'] as const;
export type Formulas = (typeof FORMULAS)[number];

/**
 * The beginnings that OWASP names (CSV injection): = + - @, their wide forms, tab and line breaks. Apostrophes before them count as
 * well, so that {@link withoutEscape} gives every text back.
 */
const FORMULA = /^'*[=+\-@\t\r\n＝＋－＠]/;

/** A text as {@link CsvLines} writes it by default. */
export function escaped(text: string): string {
  return FORMULA.test(text) ? `'${text}` : text;
}

/** The text of which {@link escaped} has made this. */
export function withoutEscape(text: string): string {
  return text.startsWith("'") && FORMULA.test(text) ? text.slice(1) : text;
}

/** Converts whole lines, as storage writes them. Remembers what the types look like. */
export class CsvLines {
  readonly #text: (text: string) => string;
  /** The members between an event's id and its time, and their columns. */
  readonly #types = new Map<string, string>();
  readonly #fields: readonly ((payload: string) => readonly Scalar[])[];
  /** The first line. */
  readonly header: string;

  /** @param columns stand before the payload, in their order */
  constructor(formulas: Formulas, columns: readonly FieldColumn[] = []) {
    this.#text = formulas === 'escape' ? escaped : (text) => text;
    this.#fields = columns.map(({ path }) => scalarsOf(path));
    const titles = columns.map(({ title }) => `${quoted(this.#text(title))},`);
    this.header = `id,typeId,type,createdAt,${titles.join('')}payload\r\n`;
  }

  /** @param slice shares the event loop: a column reads each payload once more */
  async convert(lines: Buffer, slice: TimeSlice): Promise<Buffer> {
    let text = '';
    for (const line of lines.toString().split('\n')) {
      if (line !== '') text += this.#line(line);
      if (this.#fields.length > 0 && slice.isOver) await slice.next();
    }
    return Buffer.from(text);
  }

  #line(line: string): string {
    // The members before the payload are ours: their texts have no unescaped quotes.
    const timeEnd = line.indexOf(PAYLOAD);
    const timeStart = timeEnd - TIME_LENGTH;
    // The payload begins with a brace.
    const payload = line.slice(timeEnd + PAYLOAD.length, -1);
    const type = this.#type(line.slice(ID_END, timeStart));
    const createdAt = line.slice(timeStart + 1, timeEnd - 1);
    return `${line.slice(ID_START, ID_END)},${type},${createdAt},${this.#cells(payload)}${quoted(payload)}\r\n`;
  }

  #cells(payload: string): string {
    let cells = '';
    for (const read of this.#fields) {
      const values = read(payload);
      const text = values.map((value) => value.text).join(', ');
      // A number is no formula, though it may begin with a minus.
      const isWord = values.length === 1 && values[0]?.isString === false;
      cells += `${text === '' ? '' : quoted(isWord ? text : this.#text(text))},`;
    }
    return cells;
  }

  /** @param members `","typeId":…,"type":…,"createdAt":` */
  #type(members: string): string {
    let columns = this.#types.get(members);
    if (columns === undefined) {
      const { typeId, type } = JSON.parse(`{"id":"${members}0}`) as { typeId: string; type: string };
      columns = `${quoted(this.#text(typeId))},${quoted(this.#text(type))}`;
      this.#types.set(members, columns);
    }
    return columns;
  }
}

function quoted(text: string): string {
  return `"${text.replaceAll('"', '""')}"`;
}
