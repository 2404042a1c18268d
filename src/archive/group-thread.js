// @ts-check
/**
 * The thread that decodes row groups of archived files: decompressing one takes tens of milliseconds, which no request may wait for.
 * It gives them as rows of COPY. Plain JavaScript, because the tests of Node 20 load it as it is.
 */
import { createHash } from 'node:crypto';
import { setPriority } from 'node:os';
import { parentPort } from 'node:worker_threads';
import * as zlib from 'node:zlib';
import { parquetMetadata, parquetRead } from 'hyparquet';
import { compressors as decompressors } from 'hyparquet-compressors';

/** @import { FileMetaData } from 'hyparquet' */
/** @import { DecodedGroup, GroupRequest } from './group-decoder.ts' */

/** Below the threads of requests, where the system has priorities of threads: elsewhere it would be that of the process. */
const PRIORITY = 10;

/** Node has Zstandard from 22.15 on; its types here are those of the oldest Node. */
const { zstdDecompressSync } =
  /** @type {typeof zlib & { zstdDecompressSync?: (bytes: Uint8Array) => Uint8Array }} */ (zlib);
const compressors = {
  ...decompressors,
  /** @param {Uint8Array} bytes */
  GZIP: (bytes) => zlib.gunzipSync(bytes),
  ...(zstdDecompressSync !== undefined && { ZSTD: zstdDecompressSync }),
};

/** Values as they lie in the file. */
const parsers = {
  /** @param {bigint} millis */
  timestampFromMilliseconds: (millis) => Number(millis),
  /** @param {Uint8Array} bytes */
  stringFromBytes: (bytes) => bytes,
  /** @param {Uint8Array} bytes */
  uuidFromBytes: (bytes) => bytes,
};

/** Files whose metadata is kept: some 100 KB each. */
const MOST_FILES = 32;
/** @type {Map<string, FileMetaData>} */
const known = new Map();

/**
 * @param {string} key
 * @param {Uint8Array} footer
 */
function metadataOf(key, footer) {
  const found = known.get(key) ?? parquetMetadata(footer.slice().buffer);
  known.delete(key);
  known.set(key, found);
  const [oldest] = known.keys();
  if (known.size > MOST_FILES && oldest !== undefined) known.delete(oldest);
  return found;
}

/** @param {Uint8Array} bytes */
const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

/**
 * @param {GroupRequest} request
 * @returns {Promise<DecodedGroup>}
 */
async function decode({ group, bytes, footer, typeIds }) {
  if (sha256(bytes) !== group.sha256 || sha256(footer) !== group.footer)
    throw new Error('it is not what was written');
  const metadata = metadataOf(group.key, footer);
  const rowStart = metadata.row_groups
    .slice(0, group.index)
    .reduce((sum, { num_rows }) => sum + Number(num_rows), 0);
  const rows = Number(metadata.row_groups[group.index]?.num_rows ?? 0);
  const columns = await readColumns(metadata, { group, bytes }, rowStart, rowStart + rows);
  return encode({ ...columns, id: columns.id.map(uuidBytes) }, rows, { group, typeIds });
}

/**
 * The 16 bytes of an id, which is a text; in files of development versions it is these bytes.
 * @param {Uint8Array} id
 */
function uuidBytes(id) {
  return id.length === 16 ? id : Buffer.from(Buffer.from(id).toString('latin1').replaceAll('-', ''), 'hex');
}

/** @typedef {{ id: Uint8Array[], type_id: Uint8Array[], time: number[], payload: Uint8Array[] }} Columns */

/**
 * @param {FileMetaData} metadata
 * @param {Pick<GroupRequest, 'group' | 'bytes'>} read
 * @param {number} rowStart
 * @param {number} rowEnd
 * @returns {Promise<Columns>}
 */
async function readColumns(metadata, { group, bytes }, rowStart, rowEnd) {
  /** @type {Columns} */
  const columns = { id: [], type_id: [], time: [], payload: [] };
  const file = {
    byteLength: group.objectBytes,
    /**
     * @param {number} start
     * @param {number} [end]
     */
    slice: (start, end = group.objectBytes) => {
      if (start < group.start || end > group.end) throw new Error('a column lies outside of its group');
      return bytes.slice(start - group.start, end - group.start).buffer;
    },
  };
  await parquetRead({
    ...{ file, metadata, compressors, parsers, rowStart, rowEnd },
    columns: Object.keys(columns),
    onChunk: ({ columnName, columnData, rowStart: first }) => {
      const column = columns[/** @type {keyof Columns} */ (columnName)];
      for (let at = 0; at < columnData.length; at += 1) column[first - rowStart + at] = columnData[at];
    },
  });
  return columns;
}

// The format of copied-rows.ts, which says what it is.
const SIGNATURE = Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1');
const HEAD_BYTES = 5;
const COPY_DATA = 0x64;
const PAYLOAD = 46;
const EPOCH_MS = Date.UTC(2000, 0, 1);

/**
 * @param {Columns} columns
 * @param {number} rows
 * @param {Pick<GroupRequest, 'group' | 'typeIds'>} of
 * @returns {DecodedGroup}
 */
function encode({ id: ids, type_id: types, time: times, payload: payloads }, rows, { group, typeIds }) {
  if (rows === 0 || [ids, types, times, payloads].some(({ length }) => length !== rows))
    throw new Error('its columns have not as many values as it has rows');
  let length = SIGNATURE.length + rows * (HEAD_BYTES + PAYLOAD);
  for (const payload of payloads) length += payload.length;
  const bytes = Buffer.from(new ArrayBuffer(length));
  /** @type {Map<number, number>} */
  const counts = new Map();
  const internal = internalIds(typeIds);
  for (let row = 0, at = 0; row < rows; row += 1) {
    const [id, type, time, payload] = [ids[row], types[row], times[row], payloads[row]];
    if (id === undefined || type === undefined || time === undefined || payload === undefined)
      throw new Error('a column has no value in a row');
    const typeId = internal(type);
    counts.set(typeId, (counts.get(typeId) ?? 0) + 1);
    const signature = row === 0 ? SIGNATURE.length : 0;
    bytes[at] = COPY_DATA;
    bytes.writeUInt32BE(HEAD_BYTES - 1 + signature + PAYLOAD + payload.length, at + 1);
    if (row === 0) SIGNATURE.copy(bytes, at + HEAD_BYTES);
    const tuple = at + HEAD_BYTES + signature;
    const micros = (time - EPOCH_MS) * 1_000;
    bytes.writeInt16BE(4, tuple);
    bytes.writeInt32BE(16, tuple + 2);
    bytes.set(id, tuple + 6);
    bytes.writeInt32BE(8, tuple + 22);
    bytes.writeInt32BE(Math.floor(micros / 2 ** 32), tuple + 26);
    bytes.writeUInt32BE(micros - Math.floor(micros / 2 ** 32) * 2 ** 32, tuple + 30);
    bytes.writeInt32BE(4, tuple + 34);
    bytes.writeInt32BE(typeId, tuple + 38);
    bytes.writeInt32BE(payload.length, tuple + 42);
    bytes.set(payload, tuple + PAYLOAD);
    at = tuple + PAYLOAD + payload.length;
  }
  const hasEnds =
    isEvent(ids.at(0), times.at(0), group.id, group.at) &&
    isEvent(ids.at(-1), times.at(-1), group.lastId, group.lastAt);
  const hasCounts =
    counts.size === group.types.size &&
    [...group.types].every(([typeId, count]) => counts.get(typeId) === count);
  if (!hasEnds || !hasCounts) throw new Error('it has other events than those that were written');
  return { bytes };
}

/**
 * @param {Uint8Array | undefined} id
 * @param {number | undefined} time
 * @param {string} expectedId
 * @param {number} expectedTime
 */
function isEvent(id, time, expectedId, expectedTime) {
  return (
    id !== undefined &&
    Buffer.from(id).toString('hex') === expectedId.replaceAll('-', '') &&
    time === expectedTime
  );
}

/** @param {ReadonlyMap<string, number>} typeIds */
function internalIds(typeIds) {
  // A dictionary's value has one array of bytes.
  /** @type {WeakMap<Uint8Array, number>} */
  const found = new WeakMap();
  return (/** @type {Uint8Array} */ bytes) => {
    const before = found.get(bytes);
    if (before !== undefined) return before;
    const typeId = typeIds.get(Buffer.from(bytes).toString('latin1'));
    if (typeId === undefined) throw new Error('it has a type that is not known');
    found.set(bytes, typeId);
    return typeId;
  };
}

if (process.platform === 'linux') setPriority(0, PRIORITY);

parentPort?.on('message', async (/** @type {GroupRequest} */ request) => {
  const { number } = request;
  try {
    const { bytes } = await decode(request);
    parentPort?.postMessage({ number, bytes }, [/** @type {ArrayBuffer} */ (bytes.buffer)]);
  } catch (error) {
    parentPort?.postMessage({ number, problem: error instanceof Error ? error.message : String(error) });
  }
});
