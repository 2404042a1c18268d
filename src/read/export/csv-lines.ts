/** Exported lines of JSON as lines of CSV (RFC 4180). */

/** The first line. */
export const CSV_HEADER = 'id,typeId,type,createdAt,payload\r\n';

const ID_START = '{"id":"'.length;
const ID_END = ID_START + 36;
const PAYLOAD = ',"payload":';
/** `"2026-01-31T08:30:00.123Z"` */
const TIME_LENGTH = 26;

/** Converts whole lines, as storage writes them. Remembers what the types look like. */
export class CsvLines {
  /** The members between an event's id and its time, and their columns. */
  readonly #types = new Map<string, string>();

  convert(lines: Buffer): Buffer {
    let text = '';
    for (const line of lines.toString().split('\n')) if (line !== '') text += this.#line(line);
    return Buffer.from(text);
  }

  #line(line: string): string {
    // The members before the payload are ours: their texts have no unescaped quotes.
    const timeEnd = line.indexOf(PAYLOAD);
    const timeStart = timeEnd - TIME_LENGTH;
    const payload = line.slice(timeEnd + PAYLOAD.length, -1);
    const type = this.#type(line.slice(ID_END, timeStart));
    const createdAt = line.slice(timeStart + 1, timeEnd - 1);
    return `${line.slice(ID_START, ID_END)},${type},${createdAt},${quoted(payload)}\r\n`;
  }

  /** @param members `","typeId":…,"type":…,"createdAt":` */
  #type(members: string): string {
    let columns = this.#types.get(members);
    if (columns === undefined) {
      const { typeId, type } = JSON.parse(`{"id":"${members}0}`) as { typeId: string; type: string };
      columns = `${quoted(typeId)},${quoted(type)}`;
      this.#types.set(members, columns);
    }
    return columns;
  }
}

function quoted(text: string): string {
  return `"${text.replaceAll('"', '""')}"`;
}
