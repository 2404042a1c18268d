/** Exported lines of JSON as lines of CSV (RFC 4180). */
import type { TimeSlice } from '../../base/time-slice.ts';
import { RowBuffer } from '../../storage/read/copied-rows.ts';
import { type Scalar, scalarsOf } from '../filter/payload-matcher.ts';

/** A field of payloads that has a column of its own. */
export interface FieldColumn {
  /** As it was asked for, which is its title. */
  readonly title: string;
  readonly path: readonly string[];
}

const ID_START = '{"id":"'.length;
const ID_END = ID_START + 36;
const PAYLOAD = Buffer.from(',"payload":');
/** `"2026-01-31T08:30:00.123Z"` */
const TIME_LENGTH = 26;
const QUOTE = 0x22;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
/** Bytes of a line beside its texts, at most: quotes, and what stands between columns and after them. */
const BESIDE = 64;

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

/** What stands between columns. A spreadsheet takes that of its country: where numbers have a comma, the semicolon. */
export const SEPARATORS = { comma: ',', semicolon: ';', tab: '\t' } as const;
export type Separator = keyof typeof SEPARATORS;
export const SEPARATOR_NAMES = ['comma', 'semicolon', 'tab'] as const satisfies readonly Separator[];

/** Whether cells that a spreadsheet would read as another value (00123, 18 digits) are written as formulas of texts. */
export const TEXTS = ['exact', 'quoted'] as const;
export type Texts = (typeof TEXTS)[number];

/** How CSV is written. */
export interface CsvForm {
  readonly formulas: Formulas;
  readonly separator: Separator;
  /** Whether the file begins with a byte order mark, by which a spreadsheet knows UTF-8. */
  readonly bom: boolean;
  readonly texts: Texts;
}

const FIXED = ['id', 'typeId', 'type', 'createdAt', 'payload'];

/** Digits of a number that a spreadsheet keeps. */
const KEPT_DIGITS = 15;

/** Longer texts are no numbers, dates or amounts. */
const LONGEST_VALUE = 40;

/** Whether a spreadsheet may read a text as another value, in whatever language: `00123`, `5%`, `Jan 5`, `MARCH1`, `true`. */
function isAmbiguous(text: string): boolean {
  return text.length <= LONGEST_VALUE && /^(?:true|false)$|\p{Nd}/iu.test(text);
}

/** Titles of columns, told apart from those that every file has. */
function titlesOf(columns: readonly FieldColumn[]): string[] {
  const titles = new Set(FIXED);
  for (const { title } of columns) {
    let own = title;
    while (titles.has(own)) own = `payload.${own}`;
    titles.add(own);
  }
  return [...titles].slice(FIXED.length);
}

/** Converts whole lines, as storage writes them. Remembers what the types look like. */
export class CsvLines {
  readonly #text: (text: string) => string;
  readonly #between: string;
  readonly #keepsTexts: boolean;
  /** The members between an event's id and its time, and their columns with what stands beside them. */
  readonly #types = new Map<string, Buffer>();
  readonly #room = new RowBuffer();
  readonly #fields: readonly ((payload: string) => readonly Scalar[])[];
  /** The first line. */
  readonly header: string;

  /** @param columns stand before the payload, in their order */
  constructor({ formulas, separator, bom, texts }: CsvForm, columns: readonly FieldColumn[] = []) {
    this.#text = formulas === 'escape' ? escaped : (text) => text;
    this.#between = SEPARATORS[separator];
    this.#keepsTexts = texts === 'quoted';
    this.#fields = columns.map(({ path }) => scalarsOf(path));
    const titles = titlesOf(columns).map((title) => quoted(this.#text(title)));
    const all = ['id', 'typeId', 'type', 'createdAt', ...titles, 'payload'].join(this.#between);
    this.header = `${bom ? '\ufeff' : ''}${all}\r\n`;
  }

  /** @param slice shares the event loop */
  async convert(lines: Buffer, slice: TimeSlice): Promise<Buffer> {
    let end = 0;
    for (let start = 0; start < lines.length; start = end + 1) {
      end = lines.indexOf(LINE_FEED, start);
      if (end === -1) end = lines.length;
      if (end > start) this.#line(lines, start, end);
      // A column reads each payload once more.
      if (this.#fields.length > 0 ? slice.isOver : slice.isOverAfter(end - start)) await slice.next();
    }
    const converted = Buffer.from(this.#room.bytes);
    this.#room.clear();
    return converted;
  }

  /** Gives the memory back, once everything is converted. */
  release(): void {
    this.#room.release();
  }

  /** A line as bytes: a text for each would cost three times as much. */
  #line(lines: Buffer, start: number, end: number): void {
    // The members before the payload are ours: their texts have no unescaped quotes.
    const timeEnd = lines.indexOf(PAYLOAD, start + ID_END);
    const timeStart = timeEnd - TIME_LENGTH;
    const payload = timeEnd + PAYLOAD.length;
    // The payload ends with the line, before its brace.
    const payloadEnd = end - 1;
    const cells =
      this.#fields.length === 0
        ? null
        : Buffer.from(this.#cells(lines.toString('utf8', payload, payloadEnd)));
    const type = this.#type(lines.toString('latin1', start + ID_END, timeStart));
    const most = 2 * (end - start) + type.length + (cells?.length ?? 0) + BESIDE;
    const room = this.#room.withRoom(most);
    const first = this.#room.length;
    let at = first;
    at += lines.copy(room, at, start + ID_START, start + ID_END);
    at += type.copy(room, at);
    at += lines.copy(room, at, timeStart + 1, timeEnd - 1);
    room[at++] = this.#between.charCodeAt(0);
    if (cells !== null) at += cells.copy(room, at);
    room[at++] = QUOTE;
    for (let from = payload; from < payloadEnd; from += 1) {
      const byte = lines[from] ?? 0;
      room[at++] = byte;
      if (byte === QUOTE) room[at++] = QUOTE;
    }
    room[at++] = QUOTE;
    room[at++] = CARRIAGE_RETURN;
    room[at++] = LINE_FEED;
    this.#room.added(at - first);
  }

  /** The columns of fields, with what stands after each. */
  #cells(payload: string): string {
    const cells = this.#fields.map((read) => {
      const values = read(payload);
      const text = values.map((value) => value.text).join(', ');
      // A number is no formula, though it may begin with a minus.
      const isWord = values.length === 1 && values[0]?.isString === false;
      if (text === '') return '';
      if (this.#keepsTexts && (isWord ? text.replace(/\D/g, '').length > KEPT_DIGITS : isAmbiguous(text)))
        return quoted(`="${text.replaceAll('"', '""')}"`);
      return quoted(isWord ? text : this.#text(text));
    });
    return cells.map((cell) => cell + this.#between).join('');
  }

  /** @param members `","typeId":…,"type":…,"createdAt":`, bytes of UTF-8 as characters */
  #type(members: string): Buffer {
    let columns = this.#types.get(members);
    if (columns === undefined) {
      const { typeId, type } = JSON.parse(`{"id":"${Buffer.from(members, 'latin1')}0}`) as {
        typeId: string;
        type: string;
      };
      const cells = ['', quoted(this.#text(typeId)), quoted(this.#text(type)), ''];
      columns = Buffer.from(cells.join(this.#between));
      this.#types.set(members, columns);
    }
    return columns;
  }
}

function quoted(text: string): string {
  return `"${text.replaceAll('"', '""')}"`;
}
