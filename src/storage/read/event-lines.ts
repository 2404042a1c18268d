/** Events as lines of JSON, as many as a scope has, for exports. */
import type { Sql } from '../database/connect.ts';
import type { RowFilter } from '../fields/row-filter.ts';
import { type CopiedRows, RowBuffer } from './copied-rows.ts';
import { EventScan, type Position, type ScanRequest } from './event-scan.ts';
import { LineWriter, lineHead } from './line-writer.ts';
import { eachWanted } from './wanted-rows.ts';

export interface EventLines {
  /**
   * `{"id":…,"typeId":…,"type":…,"createdAt":…,"payload":…}`, each ended by a line feed. Line breaks between the tokens
   * of a payload have become spaces.
   */
  readonly lines: Buffer;
  readonly events: number;
  /** Where the next part begins. */
  readonly position: Position;
}

export interface LineReader {
  /**
   * Whether there is nothing to come is only known when null is returned. A part may be empty.
   * The lines of a part are valid until the next but one is asked for: one is sent while the next is read.
   */
  next(): Promise<EventLines | null>;
}

/** About two megabytes of usual events; and the most that a part takes of memory, if it has more than one event. */
const PART = { rows: 8_000, bytes: 2 * 1_048_576 };

export function openLines(sql: Sql, request: ScanRequest, filter: RowFilter | null): LineReader {
  // Two in turn, each for the rows and the lines of a part: new room for each part would keep the garbage collector busy.
  const scan = new EventScan(sql, request, [new RowBuffer(), new RowBuffer()]);
  const heads = new TypeHeads(sql, request.appId);
  return {
    next: async () => {
      const step = await scan.step(PART, filter?.contains ?? []);
      const { position } = scan;
      if (step === null || position === null) return null;
      const { rows, buffer } = step;
      const headOf = await heads.of(rows);
      const writer = new LineWriter(buffer, rows.bytes.length + rows.length * ADDED_BYTES);
      // A type without a head was removed meanwhile, with its app.
      eachWanted(rows, filter, (row) => {
        const head = headOf.get(row.typeId);
        if (head !== undefined) writer.add(row, head);
      });
      const lines = writer.end();
      const isShared = lines.length >= SHARED_BYTES;
      return { lines: isShared ? lines : Buffer.from(lines), events: writer.events, position };
    },
  };
}

/** By how much a line is usually longer than its row. */
const ADDED_BYTES = 120;

/**
 * Shorter parts have bytes of their own: the sender waits until a stream has taken a part only if it is longer than the
 * stream's buffer.
 */
const SHARED_BYTES = 262_144;

/** What lines begin with, by the internal types of their events. A reader asks once for each. */
class TypeHeads {
  readonly #sql: Sql;
  readonly #appId: number;
  readonly #known = new Map<number, Buffer>();

  constructor(sql: Sql, appId: number) {
    this.#sql = sql;
    this.#appId = appId;
  }

  /** Those of all rows that have their payload. */
  async of(rows: CopiedRows): Promise<ReadonlyMap<number, Buffer>> {
    const missing = new Set<number>();
    rows.rewind();
    while (rows.next()) {
      if (!rows.hasPayload) continue;
      const { typeId } = rows;
      if (!this.#known.has(typeId)) missing.add(typeId);
    }
    if (missing.size === 0) return this.#known;
    const types = await this.#sql<{ id: number; typeId: string; type: string }[]>`
      SELECT id, public_id AS "typeId", name AS type FROM type_names
        WHERE app_id = ${this.#appId} AND id = ANY(${[...missing]}::integer[])`;
    for (const { id, ...type } of types) this.#known.set(id, lineHead(type));
    return this.#known;
  }
}
