import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decodeCursor, encodeCursor } from '../../src/storage/read/event-list.ts';
import { anyText, runs } from '../support/fuzz.ts';

const at = fc.nat({ max: Date.UTC(9999, 0, 1) });

test('a cursor survives being written and read', () => {
  fc.assert(
    fc.property(at, fc.uuid(), fc.constantFrom('asc', 'desc'), (time, id, order) => {
      expect(decodeCursor(encodeCursor({ at: time, id, order }))).toEqual({ at: time, id, order });
    }),
    runs(1_000),
  );
});

test('no text makes reading one throw, and what is read is a time and an id', () => {
  const nearly = fc
    .tuple(at, fc.uuid(), anyText({ maxLength: 3 }), fc.nat(60))
    .map(([time, id, junk, place]) => {
      const text = `a${time}.${id}`;
      return Buffer.from(text.slice(0, place) + junk + text.slice(place)).toString('base64url');
    });
  fc.assert(
    fc.property(fc.oneof(anyText(), fc.base64String(), nearly), (text) => {
      const cursor = decodeCursor(text);
      if (cursor === null) return;
      expect(Number.isNaN(new Date(cursor.at).getTime())).toBe(false);
      expect(cursor.id).toMatch(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
    }),
    runs(1_000),
  );
});
