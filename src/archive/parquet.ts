/**
 * Events as Parquet files, which other programs read without this service: id, type, type_id, time, payload, and a column for each
 * declared field. Row groups are in order of time.
 */
import { createHash, type Hash } from 'node:crypto';
import * as zlib from 'node:zlib';
import { parquetReadObjects } from 'hyparquet';
import { compressors as decompressors } from 'hyparquet-compressors';
import { ByteWriter, type ColumnSource, ParquetWriter, schemaFromColumnData } from 'hyparquet-writer';
import type { ArchivedGroup } from '../storage/database/archive-source.ts';
import { PayloadValues } from '../storage/fields/payload-values.ts';
import { MANY, OTHER } from '../storage/fields/value-text.ts';

export interface ArchivedEvent {
  /** UUID, in the form with four hyphens. */
  readonly id: string;
  readonly typeId: string;
  readonly typeName: string;
  readonly at: number;
  /** The very JSON text that was sent. */
  readonly payload: string;
}

/** A declared field, which gets a column of its own. */
export interface ArchivedField {
  /** Names that lead to the value. */
  readonly path: readonly string[];
  /** The path as a filter has it: the name of the column is `field.` and this. */
  readonly name: string;
  /** Whether the column has numbers; others have texts. */
  readonly isNumber: boolean;
}

/** A row group of a file. */
export interface ParquetGroup
  extends Omit<ArchivedGroup, 'key' | 'objectBytes' | 'groupsEnd' | 'footer' | 'index' | 'types'> {
  /** Public id of a type → events. */
  readonly types: ReadonlyMap<string, number>;
}

/** A file, and what tells it from another one. */
export interface ParquetPart {
  readonly bytes: Uint8Array;
  readonly events: number;
  /** SHA-256 of the events, in hexadecimal: see {@link EventDigest}. */
  readonly digest: string;
  /** Times of the first and the last event, milliseconds since 1970. */
  readonly firstAt: number;
  readonly lastAt: number;
  readonly groups: readonly ParquetGroup[];
  /** The sum of the last 48 bits of the ids of its events, in decimal. */
  readonly ids: string;
  /** SHA-256 of the bytes after the last group, in hexadecimal. */
  readonly footer: string;
}

/** A reader of some events decodes one group: as many as cost some 20 ms. */
const ROWS_OF_GROUP = 5_000;
/** A group ends with the payload that takes it beyond so many characters: 5,000 large ones would need some hundred megabytes. */
const CHARACTERS_OF_GROUP = 4 * 1_048_576;
/** Level 3 takes half the CPU of 1 here, because less has to be written, and a tenth less than 6. */
const GZIP_LEVEL = 3;

type Codec = (bytes: Uint8Array) => Uint8Array;
/** Node has Zstandard from 22.15 on; its types here are those of the oldest Node. */
const { zstdCompressSync, zstdDecompressSync } = zlib as typeof zlib & {
  readonly zstdCompressSync?: Codec;
  readonly zstdDecompressSync?: Codec;
};
const compressors = {
  GZIP: (bytes: Uint8Array) => zlib.gzipSync(bytes, { level: GZIP_LEVEL }),
  ...(zstdCompressSync !== undefined && { ZSTD: zstdCompressSync }),
};
const CODEC = 'ZSTD' in compressors ? 'ZSTD' : 'GZIP';
const readers = {
  ...decompressors,
  GZIP: (bytes: Uint8Array) => zlib.gunzipSync(bytes),
  ...(zstdDecompressSync !== undefined && { ZSTD: zstdDecompressSync }),
};

/** SHA-256 over events in order: of each, its id, type, time and payload as a JSON array, and a line feed. */
export class EventDigest {
  readonly #hash: Hash = createHash('sha256');

  add({ id, typeId, at, payload }: ArchivedEvent): void {
    this.#hash.update(`${JSON.stringify([id, typeId, at, payload])}\n`);
  }

  /** In hexadecimal. Afterwards nothing can be added. */
  end(): string {
    return this.#hash.digest('hex');
  }
}

/** A sum of the last 48 bits of ids, which is as random as they are. */
class IdSum {
  // In halves, whose sums are exact for two hundred million ids.
  #high = 0;
  #low = 0;

  add(id: string): void {
    this.#high += Number.parseInt(id.slice(-12, -6), 16);
    this.#low += Number.parseInt(id.slice(-6), 16);
  }

  /** In decimal. */
  end(): string {
    return String(BigInt(this.#high) * 0x1_00_00_00n + BigInt(this.#low));
  }
}

/** Writes a part, row group by row group. */
export class PartWriter {
  readonly #fields: readonly ArchivedField[];
  readonly #values: PayloadValues;
  readonly #file = new ByteWriter();
  readonly #writer: ParquetWriter;
  readonly #digest = new EventDigest();
  #group: ArchivedEvent[] = [];
  #characters = 0;
  readonly #groups: Omit<ParquetGroup, 'sha256'>[] = [];
  #events = 0;
  readonly #ids = new IdSum();
  #firstAt = 0;
  #lastAt = 0;

  /** @param about what the file's own metadata says of it */
  constructor(fields: readonly ArchivedField[], about: Readonly<Record<string, string>>) {
    this.#fields = fields;
    this.#values = new PayloadValues(
      fields.map(({ path }) => path),
      fields.map(({ isNumber }) => (isNumber ? 'number' : 'value')),
    );
    this.#writer = new ParquetWriter({
      writer: this.#file,
      schema: schemaFromColumnData({ columnData: this.#columns([]) }),
      codec: CODEC,
      compressors,
      createdBy: 'tidemark',
      kvMetadata: Object.entries(about).map(([key, value]) => ({ key: `tidemark.${key}`, value })),
    });
  }

  get events(): number {
    return this.#events;
  }

  /** Bytes that are written so far; a group that is not full is not among them. */
  get bytes(): number {
    return this.#file.offset;
  }

  /** @param events after those that were added before, in order of time */
  async add(events: readonly ArchivedEvent[]): Promise<void> {
    for (const event of events) {
      if (this.#events === 0) this.#firstAt = event.at;
      this.#lastAt = event.at;
      this.#events += 1;
      this.#digest.add(event);
      this.#ids.add(event.id);
      this.#group.push(event);
      this.#characters += event.payload.length;
      if (this.#group.length === ROWS_OF_GROUP || this.#characters >= CHARACTERS_OF_GROUP)
        await this.#flush();
    }
  }

  async end(): Promise<ParquetPart> {
    await this.#flush();
    await this.#writer.finish();
    const bytes = this.#file.getBytes();
    const digestOf = (start: number, end?: number): string =>
      createHash('sha256').update(bytes.subarray(start, end)).digest('hex');
    return {
      bytes,
      groups: this.#groups.map((group) => ({ ...group, sha256: digestOf(group.start, group.end) })),
      footer: digestOf(this.#groups.at(-1)?.end ?? 0),
      events: this.#events,
      ids: this.#ids.end(),
      digest: this.#digest.end(),
      firstAt: this.#firstAt,
      lastAt: this.#lastAt,
    };
  }

  async #flush(): Promise<void> {
    const [first, last] = [this.#group[0], this.#group.at(-1)];
    if (first === undefined || last === undefined) return;
    const start = this.#file.offset;
    await this.#writer.write({ columnData: this.#columns(this.#group), rowGroupSize: ROWS_OF_GROUP });
    const types = new Map<string, number>();
    for (const { typeId } of this.#group) types.set(typeId, (types.get(typeId) ?? 0) + 1);
    const { at, id } = first;
    this.#groups.push({ at, id, lastAt: last.at, lastId: last.id, types, start, end: this.#file.offset });
    this.#group = [];
    this.#characters = 0;
  }

  #columns(events: readonly ArchivedEvent[]): ColumnSource[] {
    const values = this.#fields.map((): (string | number | null)[] => []);
    if (values.length > 0) {
      for (const { payload } of events) {
        const texts = this.#values.read(payload);
        for (const [index, { isNumber }] of this.#fields.entries())
          values[index]?.push(columnValue(texts[index] ?? null, isNumber));
      }
    }
    return [
      // As text: Spark refuses Parquet's UUID, and pandas and Polars give it as 16 bytes.
      { name: 'id', type: 'STRING', nullable: false, data: events.map(({ id }) => id) },
      { name: 'type', type: 'STRING', nullable: false, data: events.map(({ typeName }) => typeName) },
      { name: 'type_id', type: 'STRING', nullable: false, data: events.map(({ typeId }) => typeId) },
      {
        ...{ name: 'time', type: 'TIMESTAMP', nullable: false, encoding: 'DELTA_BINARY_PACKED' },
        data: events.map(({ at }) => new Date(at)),
      },
      { name: 'payload', type: 'STRING', nullable: false, data: events.map(({ payload }) => payload) },
      ...this.#fields.map(
        ({ name, isNumber }, index): ColumnSource => ({
          ...{ name: `field.${name}`, type: isNumber ? 'DOUBLE' : 'STRING', nullable: true },
          data: values[index] ?? [],
        }),
      ),
    ];
  }
}

/** A value of a field as a program reads it: a string without its quotes; null where there are several, or it is very long. */
function columnValue(text: string | null, isNumber: boolean): string | number | null {
  if (text === null || text === MANY || text === OTHER) return null;
  if (isNumber) return Number.isFinite(Number(text)) ? Number(text) : null;
  return text.startsWith('"') ? String(JSON.parse(text)) : text;
}

/** The events of a file, in its order. @throws where it is none of ours */
export async function readPart(bytes: Buffer): Promise<ArchivedEvent[]> {
  // A copy of its own memory: small buffers of Node share theirs.
  const file = new Uint8Array(bytes).buffer;
  const rows = await parquetReadObjects({
    file,
    compressors: readers,
    columns: ['id', 'type', 'type_id', 'time', 'payload'],
  });
  return rows.map(({ id, type, type_id: typeId, time, payload }) => {
    if (!(time instanceof Date)) throw new Error('The time of an event is none.');
    return {
      id: text(id),
      typeId: text(typeId),
      typeName: text(type),
      at: time.getTime(),
      payload: text(payload),
    };
  });
}

function text(value: unknown): string {
  if (typeof value !== 'string') throw new Error('A column of the file has no texts.');
  return value;
}
