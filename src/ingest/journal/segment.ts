/**
 * The format of a journal segment: a header and records, one record per commit group. Numbers are big-endian.
 *
 * Header, two copies at 0 and 4,096, so that no sector of a disk has both. A copy has 1,024 bytes, the rest of them zeros:
 *   magic (8), marker (8, random), installation (16), its generation (8), CRC-32 of these 40 bytes (4)
 *   at 512, once the file is complete: marker (8), bytes of the file (8), events (4), CRC-32 of these 20 bytes (4)
 * The records begin after the second copy, at 5,120.
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
import type { Installation } from '../../storage/database/installation-id.ts';
import type { EventSource, JournaledEvent } from '../../storage/write/accepted-event.ts';

const MAGIC = Buffer.from('TDMKJNL3');
const MARKER_BYTES = 8;
const INSTALLATION_BYTES = 16;
const GENERATION_BYTES = 8;
const FACTS_BYTES = MAGIC.length + MARKER_BYTES + INSTALLATION_BYTES + GENERATION_BYTES + 4;
/** Where the copies of the header begin: in sectors of their own, which have at most 4,096 bytes. */
const COPIES_AT = [0, 4_096] as const;
const COPY_BYTES = 1_024;
/** Where the end of the file stands in a copy. Written later than the rest of it, so in another sector of 512 bytes. */
const END_AT = 512;
const END_BYTES = MARKER_BYTES + 16;
const FRAME_BYTES = MARKER_BYTES + 16;
const SOURCES_BYTES = 4;
const EVENT_BYTES = 16 + 8 + 4 + 4;

/** Bytes of a segment before its first record. */
export const HEADER_BYTES = COPIES_AT[1] + COPY_BYTES;

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
  const header = Buffer.alloc(HEADER_BYTES);
  for (const at of COPIES_AT) copy.copy(header, at);
  return header;
}

/** How much a file has when it is complete. */
export interface SegmentEnd {
  /** Bytes of the file. */
  readonly length: number;
  readonly events: number;
}

/** Where the end of a file is written once it is complete. One copy is synced before the next is written. */
export const ENDS_AT: readonly number[] = COPIES_AT.map((at) => at + END_AT);

export function encodeEnd(marker: Buffer, { length, events }: SegmentEnd): Buffer {
  const end = Buffer.alloc(END_BYTES - 4);
  marker.copy(end);
  end.writeBigUInt64BE(BigInt(length), MARKER_BYTES);
  end.writeUInt32BE(events, MARKER_BYTES + 8);
  return Buffer.concat([end, checksum(end)]);
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

export interface SegmentContents {
  /** Null if neither copy is valid: then nobody knows whose the records are. */
  readonly header: SegmentHeader | null;
  /** Null for a file that was not completed, because its process was killed. */
  readonly end: SegmentEnd | null;
  readonly batches: readonly (readonly JournaledEvent[])[];
  readonly events: number;
  /** Bytes of an incomplete record at the end. A killed process leaves one that it has not acknowledged. */
  readonly tornBytes: number;
  /** Other bytes that are not valid. */
  readonly damagedBytes: number;
}

/**
 * Reads a segment. Never throws: invalid bytes are counted. Without a header its records are found by their checksums. A file that is
 * longer than its end says is read up to there.
 */
export function readSegment(bytes: Buffer): SegmentContents {
  const { header, end, damagedBytes: damagedHeader } = readHeader(bytes);
  const records = end === null ? bytes : bytes.subarray(0, end.length);
  const found = header === null ? findMarker(records) : { marker: header.marker, at: HEADER_BYTES };
  const batches: JournaledEvent[][] = [];
  let damagedBytes = found === null ? bytes.length : damagedHeader;
  let tornBytes = 0;
  let at = found?.at ?? bytes.length;
  while (found !== null && at < records.length) {
    const record = readRecord(records, at, found.marker);
    if (record !== null) {
      batches.push(record.batch);
      at = record.end;
      continue;
    }
    const next = nextRecord(records, at + 1, found.marker);
    if (next === -1 && isTorn(records.subarray(at), found.marker)) tornBytes = records.length - at;
    else damagedBytes += (next === -1 ? records.length : next) - at;
    at = next === -1 ? records.length : next;
  }
  // A segment is renamed after its header is durable, so a missing header is damage.
  if (header === null && found !== null) damagedBytes += found.at;
  const events = batches.reduce((sum, batch) => sum + batch.length, 0);
  return { header, end, batches, events, tornBytes, damagedBytes };
}

interface ReadHeader {
  readonly header: SegmentHeader | null;
  readonly end: SegmentEnd | null;
  readonly damagedBytes: number;
}

function readHeader(bytes: Buffer): ReadHeader {
  const copies = COPIES_AT.map((at) => readFacts(bytes, at));
  const header = bytes.length < HEADER_BYTES ? null : (copies.find((copy) => copy !== null) ?? null);
  if (header === null) return { header, end: null, damagedBytes: 0 };
  const end = ENDS_AT.map((at) => readEnd(bytes, at, header.marker)).find((one) => one !== null) ?? null;
  const expected = encodeHeader(header);
  let damagedBytes = 0;
  for (const at of COPIES_AT) {
    // A process may have been killed after it had written one of the two ends.
    const found = Buffer.from(bytes.subarray(at, at + COPY_BYTES));
    if (end !== null && readEnd(bytes, at + END_AT, header.marker) !== null)
      found.fill(0, END_AT, END_AT + END_BYTES);
    if (!found.equals(expected.subarray(at, at + COPY_BYTES))) damagedBytes += COPY_BYTES;
  }
  const gap = bytes.subarray(COPIES_AT[0] + COPY_BYTES, COPIES_AT[1]);
  if (!isZero(gap)) damagedBytes += gap.length;
  return { header, end, damagedBytes };
}

function readFacts(bytes: Buffer, from: number): SegmentHeader | null {
  const copy = bytes.subarray(from, from + FACTS_BYTES);
  if (copy.length < FACTS_BYTES || !copy.subarray(0, MAGIC.length).equals(MAGIC)) return null;
  const facts = copy.subarray(0, -4);
  if (crc32(facts) !== copy.readUInt32BE(facts.length)) return null;
  const afterMarker = MAGIC.length + MARKER_BYTES;
  const marker = Buffer.from(facts.subarray(MAGIC.length, afterMarker));
  const identity = facts.toString('hex', afterMarker, afterMarker + INSTALLATION_BYTES);
  const generation = facts.toString('hex', afterMarker + INSTALLATION_BYTES);
  return { marker, installation: { identity, generation } };
}

function readEnd(bytes: Buffer, from: number, marker: Buffer): SegmentEnd | null {
  const end = bytes.subarray(from, from + END_BYTES);
  if (end.length < END_BYTES || !end.subarray(0, MARKER_BYTES).equals(marker)) return null;
  if (crc32(end.subarray(0, -4)) !== end.readUInt32BE(END_BYTES - 4)) return null;
  return { length: Number(end.readBigUInt64BE(MARKER_BYTES)), events: end.readUInt32BE(MARKER_BYTES + 8) };
}

/** The marker of a file without a header, by its first record whose checksums are right; null without such a record. */
function findMarker(bytes: Buffer): { readonly marker: Buffer; readonly at: number } | null {
  for (let at = 0; at + FRAME_BYTES < bytes.length; at += 1) {
    // A record has events and is not longer than the rest of the file: this spares most checksums.
    const bodyBytes = bytes.readUInt32BE(at + MARKER_BYTES);
    if (bodyBytes < EVENT_BYTES || bodyBytes > bytes.length - at - FRAME_BYTES) continue;
    const marker = bytes.subarray(at, at + MARKER_BYTES);
    if (readRecord(bytes, at, marker) !== null) return { marker: Buffer.from(marker), at };
  }
  return null;
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
