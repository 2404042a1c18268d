/** The format of a segment: whatever is cut or changed, what was acknowledged is read back or its loss is told. */
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createEventIds } from '../../../src/ingest/event-id.ts';
import {
  ENDS_AT,
  encodeBody,
  encodeEnd,
  encodeFrame,
  encodeHeader,
  HEADER_BYTES,
  newHeader,
  readSegment,
  type SegmentHeader,
} from '../../../src/ingest/journal/segment.ts';
import type { JournaledEvent } from '../../../src/storage/write/accepted-event.ts';
import { anyText, sized } from '../../support/fuzz.ts';

const INSTALLATION = { identity: '00112233445566778899aabbccddeeff', generation: '0123456789abcdef' };
const SOURCE = { appId: 'app_1', typeId: 'typ_1', typeName: 'a type' };
const newId = createEventIds();

const payloads = fc.oneof(
  fc.json({ maxDepth: 2 }).map((json) => `{"value":${json}}`),
  anyText({ maxLength: 50 }).map((text) => JSON.stringify({ text })),
  fc.constant('{}'),
);
const sources = fc.oneof(
  fc.constant(SOURCE),
  fc.record({
    appId: fc.string(),
    typeId: fc.string(),
    typeName: anyText({ maxLength: 50 }),
  }),
);
const batches = fc.array(
  fc.array(
    fc.record({
      id: fc.integer({ min: 0, max: 2 ** 41 }).map((time) => newId(time)),
      createdAt: fc.integer({ min: 0, max: 8.64e15 }),
      payload: payloads,
      source: sources,
    }),
    { minLength: 1, maxLength: 5 },
  ),
  { minLength: 1, maxLength: 8 },
);

/** A segment of these batches, and where each of its records ends. */
function segmentOf(
  written: readonly (readonly JournaledEvent[])[],
  header: SegmentHeader = newHeader(INSTALLATION),
) {
  const parts = [encodeHeader(header)];
  const ends: number[] = [];
  let length = HEADER_BYTES;
  for (const batch of written) {
    const body = encodeBody(batch);
    const frame = encodeFrame(header.marker, body, batch.length);
    parts.push(frame, body);
    length += frame.length + body.length;
    ends.push(length);
  }
  return { bytes: Buffer.concat(parts), ends, header };
}

test('what is written is read back as it was, batch by batch', () => {
  fc.assert(
    fc.property(batches, (written) => {
      const { bytes } = segmentOf(written);
      expect(readSegment(bytes)).toMatchObject({
        header: { installation: INSTALLATION },
        batches: written,
        events: written.flat().length,
        tornBytes: 0,
        damagedBytes: 0,
      });
    }),
  );
});

test('a copy that is cut at any byte after the last sync loses nothing acknowledged, invents nothing, and tells the torn tail', () => {
  fc.assert(
    fc.property(batches, fc.nat(), (written, pick) => {
      const { bytes, ends } = segmentOf(written);
      const synced = pick % (ends.length + 1);
      const from = synced === 0 ? HEADER_BYTES : (ends[synced - 1] ?? 0);
      for (let cut = from; cut <= bytes.length; cut += 1) {
        const whole = ends.filter((end) => end <= cut).length;
        const read = readSegment(bytes.subarray(0, cut));
        expect(read.batches).toEqual(written.slice(0, whole));
        expect(whole).toBeGreaterThanOrEqual(synced);
        expect(read.damagedBytes).toBe(0);
        expect(read.tornBytes).toBe(cut - (whole === 0 ? HEADER_BYTES : (ends[whole - 1] ?? 0)));
      }
    }),
    { numRuns: sized(4, 20) },
  );
});

test('a tail whose blocks were never written, as a file system may show them after a power cut, is a torn one', () => {
  fc.assert(
    fc.property(batches, fc.nat(), (written, pick) => {
      const { bytes, ends } = segmentOf(written);
      const synced = ends.length < 2 ? HEADER_BYTES : (ends[ends.length - 2] ?? 0);
      const from = synced + (pick % (bytes.length - synced - 1));
      const holed = Buffer.from(bytes).fill(0, from);
      const read = readSegment(holed);
      expect(read.batches).toEqual(written.slice(0, -1));
      expect(read).toMatchObject({ damagedBytes: 0, tornBytes: bytes.length - synced });
    }),
  );
});

test('any one byte that changes is noticed, and costs the one record that it is in', () => {
  fc.assert(
    fc.property(batches, fc.integer({ min: 1, max: 255 }), (written, change) => {
      const { bytes, ends } = segmentOf(written);
      // Of the header one byte in 37, of the records each.
      for (let at = change % 37; at < bytes.length; at += at < HEADER_BYTES ? 37 : 1) {
        const changed = Buffer.from(bytes);
        changed[at] = (changed[at] ?? 0) ^ change;
        const hit = at < HEADER_BYTES ? -1 : ends.findIndex((end) => at < end);
        const read = readSegment(changed);
        expect(read.damagedBytes, `byte ${at}`).toBeGreaterThan(0);
        expect(read.tornBytes).toBe(0);
        expect(read.batches).toEqual(written.filter((_, index) => index !== hit));
      }
    }),
    { numRuns: sized(2, 10) },
  );
});

test('a header of another format is not read, even if its checksum is right', () => {
  const header = encodeHeader(newHeader(INSTALLATION));
  for (const start of [0, 4_096]) {
    header[start] = (header[start] ?? 0) ^ 1;
    const end = start + 40;
    header.writeUInt32BE(crc32(header.subarray(start, end)), end);
  }
  expect(readSegment(header).header).toBeNull();
});

test("another segment's records are none of this one's", () => {
  const event = { id: newId(1), createdAt: 1, payload: '{}', source: SOURCE };
  const other = segmentOf([[event]]);
  const { bytes } = segmentOf([]);
  const read = readSegment(Buffer.concat([bytes, other.bytes.subarray(HEADER_BYTES)]));
  expect(read).toMatchObject({ events: 0, damagedBytes: other.bytes.length - HEADER_BYTES });
});

test('a record whose checksum is right and whose events are not costs itself, and nothing beside it', () => {
  const event = { id: newId(1), createdAt: 3, payload: '{"a":1}', source: SOURCE };
  const header = newHeader(INSTALLATION);
  const good = encodeBody([event]);
  // Its index of a source is the four bytes before the size and the text of the payload.
  const ofUnknownSource = Buffer.from(good);
  ofUnknownSource.writeUInt32BE(1, good.length - 4 - 4 - event.payload.length);
  const withSources = (text: string): Buffer => {
    const body = Buffer.from(text.padEnd(good.readUInt32BE()));
    return Buffer.concat([good.subarray(0, 4), body, good.subarray(4 + body.length)]);
  };
  // Too short by some bytes, too long, of more events than it has, of a source that it has not, and with sources of no use.
  for (const [body, events] of [
    [ofUnknownSource, 1],
    [withSources('{}'), 1],
    [withSources('not JSON'), 1],
    [good.subarray(0, 20), 1],
    [good.subarray(0, -7), 1],
    [Buffer.concat([good, Buffer.alloc(3)]), 1],
    [good, 2],
    [Buffer.alloc(0), 1],
  ] as const) {
    const whole = [encodeFrame(header.marker, good, 1), good];
    const bad = [encodeFrame(header.marker, body, events), body];
    const contents = readSegment(Buffer.concat([encodeHeader(header), ...whole, ...bad, ...whole]));
    expect(contents).toMatchObject({ batches: [[event], [event]], events: 2, tornBytes: 0 });
    expect(contents.damagedBytes).toBe(Buffer.concat(bad).length);
  }
});

test('no sector of a disk has both copies of the header: without any one of them all other records are read', () => {
  const written = Array.from({ length: 40 }, (_, n) => [
    { id: newId(n), createdAt: n, payload: JSON.stringify({ text: 'x'.repeat(700) }), source: SOURCE },
  ]);
  const { bytes, ends, header } = segmentOf(written);
  for (const length of [bytes.length, null]) {
    if (length !== null)
      for (const at of ENDS_AT) encodeEnd(header.marker, { length, events: 40 }).copy(bytes, at);
    for (let from = 0; from < bytes.length; from += 4_096) {
      const left = Buffer.from(bytes).fill(0, from, Math.min(from + 4_096, bytes.length));
      const read = readSegment(left);
      const whole = (n: number): boolean =>
        (ends[n] ?? 0) <= from || (ends[n - 1] ?? HEADER_BYTES) >= from + 4_096;
      expect(read.header?.installation, `sector at ${from}`).toEqual(INSTALLATION);
      expect(read.batches).toEqual(written.filter((_, n) => whole(n)));
      expect(read.damagedBytes + read.tornBytes).toBeGreaterThan(0);
      if (length !== null) expect(read.end).toEqual({ length, events: 40 });
    }
  }
});

test('the records of a file without a header are found by their checksums', () => {
  fc.assert(
    fc.property(batches, fc.uint8Array({ maxLength: 300 }), (written, noise) => {
      const { bytes } = segmentOf(written);
      const left = Buffer.concat([noise, bytes.subarray(HEADER_BYTES)]);
      expect(readSegment(left)).toMatchObject({ header: null, batches: written, damagedBytes: noise.length });
    }),
    { numRuns: sized(4, 20) },
  );
});

test('a file that has lost its header is damaged, however much of it is left', () => {
  const event = { id: newId(1), createdAt: 1, payload: '{}', source: SOURCE };
  const { bytes } = segmentOf([[event]]);
  for (const left of [bytes.subarray(0, 10), bytes.subarray(0, HEADER_BYTES - 1), Buffer.alloc(500)])
    expect(readSegment(left)).toMatchObject({ header: null, events: 0, damagedBytes: left.length });
  expect(readSegment(Buffer.alloc(0)).header).toBeNull();
});
