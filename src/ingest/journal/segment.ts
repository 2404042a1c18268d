/**
 * The format of a journal segment: a header and records, one record per commit group. Numbers are big-endian.
 *
 * Header, written twice in case one copy gets corrupted, 44 bytes per copy:
 *   magic (8), marker (8, random), installation (16), its generation (8), CRC-32 of these 40 bytes (4)
 * Record:
 *   marker (8), bytes of the body (4), events (4), CRC-32 of the body (4), CRC-32 of these 20 bytes (4), body
 * Body:
 *   bytes of the sources (4), sources as JSON in UTF-8: [[app id, type id, type name], …], public ids; then the events
 * Event in a body:
 *   id (16), createdAt in milliseconds (8, a double), index of the source (4), bytes of the payload (4), payload in UTF-8
 *
 * Files contain no internal ids: after a restore or a failover these may belong to other apps.
 *
 * Every record begins with the random marker of its segment. After a damaged record the next one is found by searching for
 * the marker and checking its checksums.
 */
import { randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import type { Installation } from '../../storage/installation-id.ts';
import type { EventSource, JournaledEvent } from '../../storage/write/accepted-event.ts';

const MAGIC = Buffer.from('TDMKJNL2');
/** Magic of the earlier format, which has internal ids. */
const OLD_MAGIC = Buffer.from('TDMKJNL1');
const OLD_HEADER_COPY_BYTES = 36;
const MARKER_BYTES = 8;
const INSTALLATION_BYTES = 16;
const GENERATION_BYTES = 8;
const HEADER_COPY_BYTES = MAGIC.length + MARKER_BYTES + INSTALLATION_BYTES + GENERATION_BYTES + 4;
const FRAME_BYTES = MARKER_BYTES + 16;
const SOURCES_BYTES = 4;
const EVENT_BYTES = 16 + 8 + 4 + 4;

/** Bytes of a segment before its first record. */
export const HEADER_BYTES = 2 * HEADER_COPY_BYTES;

export interface SegmentHeader {
  /** First 8 bytes of every record of this segment. */
  readonly marker: Buffer;
  /** The installation that the events belong to. */
  readonly installation: Installation;
}

/** The header of a new segment. */
export function newHeader(installation: Installation): SegmentHeader {
  return { marker: randomBytes(MARKER_BYTES), installation };
}

export function encodeHeader({ marker, installation: { identity, generation } }: SegmentHeader): Buffer {
  const facts = Buffer.concat([MAGIC, marker, Buffer.from(identity, 'hex'), Buffer.from(generation, 'hex')]);
  const copy = Buffer.concat([facts, checksum(facts)]);
  return Buffer.concat([copy, copy]);
}

function checksum(bytes: Uint8Array): Buffer {
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(bytes));
  return sum;
}

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/**
 * Encodes the events of a commit group as the body of a record.
 * @throws if an id is not a UUID: it would shift the following bytes under a valid checksum
 */
export function encodeBody(batch: readonly JournaledEvent[]): Buffer {
  const indexes = new Map<EventSource, number>();
  for (const { source } of batch) if (!indexes.has(source)) indexes.set(source, indexes.size);
  const sources = Buffer.from(
    JSON.stringify([...indexes.keys()].map(({ appId, typeId, typeName }) => [appId, typeId, typeName])),
  );
  const sizes = batch.map(({ payload }) => Buffer.byteLength(payload));
  const start = SOURCES_BYTES + sources.length;
  const body = Buffer.allocUnsafe(sizes.reduce((sum, size) => sum + EVENT_BYTES + size, start));
  body.writeUInt32BE(sources.length);
  sources.copy(body, SOURCES_BYTES);
  let at = start;
  for (const [index, event] of batch.entries()) {
    const size = sizes[index] ?? 0;
    if (!ID.test(event.id)) throw new Error('The id of an event is not a UUID.');
    at += body.write(event.id.replaceAll('-', ''), at, 'hex');
    at = body.writeDoubleBE(event.createdAt, at);
    at = body.writeUInt32BE(indexes.get(event.source) ?? 0, at);
    at = body.writeUInt32BE(size, at);
    at += body.write(event.payload, at, 'utf8');
  }
  return body;
}

/** Bytes of a record in addition to its body. */
export const RECORD_OVERHEAD_BYTES = FRAME_BYTES;

/** The frame before the body of a record. */
export function encodeFrame(marker: Buffer, body: Buffer, events: number): Buffer {
  const frame = Buffer.alloc(FRAME_BYTES);
  marker.copy(frame);
  frame.writeUInt32BE(body.length, MARKER_BYTES);
  frame.writeUInt32BE(events, MARKER_BYTES + 4);
  frame.writeUInt32BE(crc32(body), MARKER_BYTES + 8);
  frame.writeUInt32BE(crc32(frame.subarray(0, MARKER_BYTES + 12)), MARKER_BYTES + 12);
  return frame;
}

/** The content of a segment. */
export interface SegmentContents {
  /** Null if neither copy is valid: then no record can be read. */
  readonly header: SegmentHeader | null;
  readonly batches: readonly (readonly JournaledEvent[])[];
  readonly events: number;
  /** Bytes of an incomplete record at the end: a torn write, which was never acknowledged. */
  readonly tornBytes: number;
  /** Other bytes that are not valid. */
  readonly damagedBytes: number;
}

/** Reads a segment. Never throws: invalid bytes are counted. */
export function readSegment(bytes: Buffer): SegmentContents {
  const { header, damagedBytes: damagedHeader } = readHeader(bytes);
  const batches: JournaledEvent[][] = [];
  let damagedBytes = damagedHeader;
  let tornBytes = 0;
  let at = HEADER_BYTES;
  while (header !== null && at < bytes.length) {
    const record = readRecord(bytes, at, header.marker);
    if (record !== null) {
      batches.push(record.batch);
      at = record.end;
      continue;
    }
    const next = nextRecord(bytes, at + 1, header.marker);
    if (next === -1 && isTorn(bytes.subarray(at), header.marker)) tornBytes = bytes.length - at;
    else damagedBytes += (next === -1 ? bytes.length : next) - at;
    at = next === -1 ? bytes.length : next;
  }
  // A segment is renamed after its header is durable, so a missing header is damage.
  if (header === null) damagedBytes = bytes.length;
  const events = batches.reduce((sum, batch) => sum + batch.length, 0);
  return { header, batches, events, tornBytes, damagedBytes };
}

function readHeader(bytes: Buffer): { header: SegmentHeader | null; damagedBytes: number } {
  const copies = [readHeaderCopy(bytes, 0), readHeaderCopy(bytes, HEADER_COPY_BYTES)];
  const header = bytes.length < HEADER_BYTES ? null : (copies.find((copy) => copy !== null) ?? null);
  const bad = copies.filter((copy) => copy === null).length;
  return { header, damagedBytes: header === null ? 0 : bad * HEADER_COPY_BYTES };
}

function readHeaderCopy(bytes: Buffer, from: number): SegmentHeader | null {
  const copy = bytes.subarray(from, from + HEADER_COPY_BYTES);
  if (copy.length < HEADER_COPY_BYTES || !copy.subarray(0, MAGIC.length).equals(MAGIC)) return null;
  const facts = copy.subarray(0, -4);
  if (crc32(facts) !== copy.readUInt32BE(facts.length)) return null;
  const afterMarker = MAGIC.length + MARKER_BYTES;
  const marker = Buffer.from(facts.subarray(MAGIC.length, afterMarker));
  const identity = facts.toString('hex', afterMarker, afterMarker + INSTALLATION_BYTES);
  const generation = facts.toString('hex', afterMarker + INSTALLATION_BYTES);
  return { marker, installation: { identity, generation } };
}

/** Whether a file was written in the format of an earlier release. */
export function isOldFormat(bytes: Buffer): boolean {
  return [0, OLD_HEADER_COPY_BYTES].some((at) => bytes.subarray(at, at + OLD_MAGIC.length).equals(OLD_MAGIC));
}

interface Frame {
  readonly bodyBytes: number;
  readonly events: number;
  readonly bodySum: number;
}

function readFrame(bytes: Buffer, at: number, marker: Buffer): Frame | null {
  const frame = bytes.subarray(at, at + FRAME_BYTES);
  if (frame.length < FRAME_BYTES || !frame.subarray(0, MARKER_BYTES).equals(marker)) return null;
  if (crc32(frame.subarray(0, MARKER_BYTES + 12)) !== frame.readUInt32BE(MARKER_BYTES + 12)) return null;
  return {
    bodyBytes: frame.readUInt32BE(MARKER_BYTES),
    events: frame.readUInt32BE(MARKER_BYTES + 4),
    bodySum: frame.readUInt32BE(MARKER_BYTES + 8),
  };
}

function readRecord(
  bytes: Buffer,
  at: number,
  marker: Buffer,
): { batch: JournaledEvent[]; end: number } | null {
  const frame = readFrame(bytes, at, marker);
  if (frame === null) return null;
  const end = at + FRAME_BYTES + frame.bodyBytes;
  const body = bytes.subarray(at + FRAME_BYTES, end);
  if (body.length < frame.bodyBytes || crc32(body) !== frame.bodySum) return null;
  const batch = decodeBody(body, frame.events);
  return batch === null ? null : { batch, end };
}

/** Index of the next complete record; -1 if there is none. */
function nextRecord(bytes: Buffer, from: number, marker: Buffer): number {
  for (let at = bytes.indexOf(marker, from); at !== -1; at = bytes.indexOf(marker, at + 1))
    if (readRecord(bytes, at, marker) !== null) return at;
  return -1;
}

/**
 * Whether the last bytes of a segment are a torn write: shorter than the record, or ending in zeros, which a file system
 * returns for unwritten blocks. A complete record ends in the brace of a payload.
 */
function isTorn(rest: Buffer, marker: Buffer): boolean {
  if (rest.length < FRAME_BYTES || isZero(rest.subarray(-2))) return true;
  const frame = readFrame(rest, 0, marker);
  return frame !== null && FRAME_BYTES + frame.bodyBytes > rest.length;
}

function isZero(bytes: Buffer): boolean {
  return bytes.every((byte) => byte === 0);
}

/** Decodes a body with a valid checksum; null if it is not in the format of {@link encodeBody}. */
function decodeBody(body: Buffer, events: number): JournaledEvent[] | null {
  const start = body.length < SOURCES_BYTES ? 0 : SOURCES_BYTES + body.readUInt32BE(0);
  const sources = start === 0 || start > body.length ? null : decodeSources(body, start);
  if (sources === null) return null;
  const batch: JournaledEvent[] = [];
  let at = start;
  while (batch.length < events) {
    if (at + EVENT_BYTES > body.length) return null;
    const hex = body.toString('hex', at, at + 16);
    const source = sources[body.readUInt32BE(at + 24)];
    const size = body.readUInt32BE(at + 28);
    if (source === undefined) return null;
    batch.push({
      id: `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`,
      createdAt: body.readDoubleBE(at + 16),
      payload: body.toString('utf8', at + EVENT_BYTES, at + EVENT_BYTES + size),
      source,
    });
    at += EVENT_BYTES + size;
  }
  return at === body.length ? batch : null;
}

function decodeSources(body: Buffer, end: number): EventSource[] | null {
  try {
    const sources: unknown = JSON.parse(body.toString('utf8', SOURCES_BYTES, end));
    if (!Array.isArray(sources)) return null;
    return sources.map(([appId, typeId, typeName]) => ({ appId, typeId, typeName }));
  } catch {
    return null; // Not JSON, so not written by this code: the caller counts it as damage.
  }
}
