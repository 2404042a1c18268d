/** Reads what the writers send in COPY's binary format (PostgreSQL documentation, COPY, File Formats). */
import type { Row } from './database.ts';

export interface CopiedDelta {
  readonly appId: number;
  readonly typeId: number;
  readonly bucket: number;
  readonly count: number;
}

export interface Copies {
  readonly events: readonly Row[];
  readonly deltas: readonly CopiedDelta[];
  /** Minutes, milliseconds since 1970. */
  readonly marks: readonly number[];
}

const EPOCH_MS = 946_684_800_000;
const ROWS_HEADER_BYTES = 19;

export function readCopies(messages: Buffer): Copies {
  const queryBytes = messages.readInt32BE(1);
  const tables = messages.toString('utf8', 5, queryBytes).split(';');
  const events: Row[] = [];
  const deltas: CopiedDelta[] = [];
  const marks: number[] = [];
  let at = 1 + queryBytes;
  for (const table of tables) {
    const bytes = messages.readInt32BE(at + 1);
    for (const fields of fieldsOf(messages.subarray(at + 5 + ROWS_HEADER_BYTES, at + 1 + bytes))) {
      if (table.startsWith('COPY events ')) events.push(eventOf(fields));
      else if (table.startsWith('COPY count_deltas ')) deltas.push(deltaOf(fields));
      else if (table.startsWith('COPY grouped_deltas ')) deltas.push(...groupedOf(fields));
      else if (table.startsWith('COPY stale_buckets ')) marks.push(timeOf(fields[1]));
      else throw new Error(`The simulation has no such table: ${table}`);
    }
    at += 1 + bytes + 5; // CopyDone
  }
  return { events, deltas, marks };
}

function* fieldsOf(bytes: Buffer): Iterable<readonly Buffer[]> {
  for (let at = 0; bytes.readInt16BE(at) !== -1; ) {
    const fields: Buffer[] = [];
    const count = bytes.readInt16BE(at);
    at += 2;
    while (fields.length < count) {
      const length = bytes.readInt32BE(at);
      fields.push(bytes.subarray(at + 4, at + 4 + length));
      at += 4 + length;
    }
    yield fields;
  }
}

function timeOf(field: Buffer | undefined): number {
  return EPOCH_MS + Number((field?.readBigInt64BE() ?? 0n) / 1_000n);
}

function eventOf([id, app, type, time, payload]: readonly Buffer[]): Row {
  const hex = id?.toString('hex') ?? '';
  return {
    id: `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`,
    appId: app?.readInt32BE() ?? 0,
    typeId: type?.readInt32BE() ?? 0,
    createdAt: timeOf(time),
    payload: payload?.toString() ?? '',
  };
}

function deltaOf([app, type, bucket, count]: readonly Buffer[]): CopiedDelta {
  return {
    appId: app?.readInt32BE() ?? 0,
    typeId: type?.readInt32BE() ?? 0,
    bucket: timeOf(bucket),
    count: Number(count?.readBigInt64BE() ?? 0n),
  };
}

function groupedOf([, bucket, apps, types, counts]: readonly Buffer[]): CopiedDelta[] {
  const [typeIds, numbers] = [integersOf(types), integersOf(counts)];
  return integersOf(apps).map((appId, n) => ({
    appId,
    typeId: typeIds[n] ?? 0,
    bucket: timeOf(bucket),
    count: numbers[n] ?? 0,
  }));
}

/** Of an integer[]: dimensions, nulls and the type of its elements, their number and first index, and each with its length. */
function integersOf(field: Buffer | undefined): number[] {
  return Array.from({ length: field?.readInt32BE(12) ?? 0 }, (_, n) => field?.readInt32BE(24 + 8 * n) ?? 0);
}
