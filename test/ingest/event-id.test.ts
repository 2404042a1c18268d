import fc from 'fast-check';
import { expect, test } from 'vitest';
import { createEventIds } from '../../src/ingest/event-id.ts';

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const NOW = Date.UTC(2026, 0, 31, 12, 0, 0, 123);

/** The time in an id, in milliseconds since the epoch. */
function timeOf(id: string): number {
  return Number.parseInt(id.replace('-', '').slice(0, 12), 16);
}

function expectAscending(ids: readonly string[]): void {
  // Text comparison, in place of an assertion a pair: there are many.
  expect(ids.findIndex((id, index) => index > 0 && id <= (ids[index - 1] ?? ''))).toBe(-1);
}

test('an id is a UUIDv7 of the time it was made', () => {
  const newId = createEventIds();
  for (const now of [NOW, NOW + 1, Date.UTC(2100, 1, 1)]) {
    const id = newId(now);
    expect(id).toMatch(UUID_V7);
    expect(timeOf(id)).toBe(now);
  }
});

test.each([0, 1])('the first id that is made may be of the time %i', (now) => {
  const id = createEventIds()(now);
  expect(id).toMatch(UUID_V7);
  expect(timeOf(id)).toBe(now);
});

test('ids of one millisecond are ascending, valid and different, also where the counter runs over', () => {
  const newId = createEventIds();
  const ids = Array.from({ length: 50_000 }, () => newId(NOW));
  expect(ids.every((id) => UUID_V7.test(id))).toBe(true);
  expectAscending(ids);
});

test('where the counter runs over, the time of the id goes on by one millisecond', () => {
  const newId = createEventIds();
  const times = Array.from({ length: 5_000 }, () => timeOf(newId(NOW)));
  expect(new Set(times)).toEqual(new Set([NOW, NOW + 1, NOW + 2].slice(0, new Set(times).size)));
  expect(times.at(-1)).toBeGreaterThan(NOW);
});

test('half of the counter is left in every millisecond', () => {
  for (let round = 0; round < 200; round += 1) {
    const newId = createEventIds();
    const ids = Array.from({ length: 2_048 }, () => newId(NOW));
    expect(ids.find((id) => timeOf(id) !== NOW)).toBeUndefined();
  }
});

test('security 28: ids stay ascending where the clock steps back, and follow it when it has caught up', () => {
  const newId = createEventIds();
  const ids = [newId(NOW), newId(NOW - 3_600_000), newId(NOW - 1), newId(NOW), newId(NOW + 1)];
  expectAscending(ids);
  expect(timeOf(ids[1] ?? '')).toBe(NOW);
  expect(timeOf(ids[4] ?? '')).toBe(NOW + 1);
});

test('ids are ascending for any clock', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: -5, max: 5 }), { maxLength: 3_000 }), (steps) => {
      const newId = createEventIds();
      let now = NOW;
      expectAscending(
        steps.map((step) => {
          now += step;
          return newId(now);
        }),
      );
    }),
    { numRuns: 50 },
  );
});

test('generators of the same millisecond make different ids', () => {
  const ids = Array.from({ length: 2_000 }, () => createEventIds()(NOW));
  expect(new Set(ids).size).toBe(ids.length);
});

test('the random part repeats neither within a pool of random bytes nor across pools', () => {
  const newId = createEventIds();
  const parts = Array.from({ length: 10_000 }, () => newId(NOW).slice(19));
  expect(new Set(parts).size).toBe(parts.length);
});
