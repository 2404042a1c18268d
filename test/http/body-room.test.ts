/** The limits of the memory for bodies. Which body is cut when they are reached is in held-bodies.test.ts. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type BodyAccount, BodyRoom } from '../../src/http/body-room.ts';
import { runs, sized } from '../support/fuzz.ts';

const MIB = 1_048_576;
const ROOM = 16 * MIB;

/** A body that releases its memory when it is cut, as requests do. */
class Body {
  isCut = false;
  readonly account: BodyAccount;
  readonly #room: BodyRoom;

  constructor(room: BodyRoom, address: string, usesReserve = false) {
    this.#room = room;
    this.account = room.open(address, usesReserve, () => {
      this.isCut = true;
      this.close();
    });
  }

  grow(bytes: number): boolean {
    return this.#room.grow(this.account, bytes);
  }

  arrive(): void {
    this.#room.arrived(this.account);
  }

  close(): void {
    this.#room.close(this.account);
  }
}

/** Bodies of one address that have sent this many bytes each, and nothing since. */
function stalled(room: BodyRoom, count: number, bytes: number, address = 'attacker'): Body[] {
  const bodies = Array.from({ length: count }, () => {
    const body = new Body(room, address);
    expect(body.grow(bytes)).toBe(true);
    return body;
  });
  room.sweep();
  room.sweep();
  return bodies;
}

test('if the memory is full, small bodies of producers have a reserve', () => {
  const room = new BodyRoom(ROOM);
  for (const address of ['a', 'b']) for (const body of stalled(room, 7, MIB, address)) body.arrive();
  expect(room.take(200, false)).toBe(false);
  expect(new Body(room, 'dashboard').grow(200)).toBe(false);
  expect(room.take(200, true)).toBe(true);
  const slow = new Body(room, 'honest', true);
  expect(slow.grow(100)).toBe(true);
  expect(slow.grow(16_284)).toBe(true);
  // It is not small any more.
  expect(slow.grow(1)).toBe(false);
  slow.arrive();
  for (let taken = 16_584; taken + 16_384 <= 2 * MIB; taken += 16_384)
    expect(room.take(16_384, true)).toBe(true);
  expect(room.take(16_384, true)).toBe(false);
  expect(room.bytes).toBeLessThanOrEqual(ROOM);
});

test('the largest batch fits into the default limit', () => {
  expect(new BodyRoom(ROOM).largestBody).toBeGreaterThanOrEqual(10 * MIB);
});

test('the count is what the bodies hold, and never exceeds its limits', () => {
  const size = 100_000;
  const step = fc.record({
    body: fc.nat(11),
    act: fc.constantFrom('grow', 'grow', 'grow', 'shrink', 'arrive', 'close', 'sweep'),
    bytes: fc.nat(30_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const room = new BodyRoom(size);
      const bodies = new Map<number, Body>();
      const held = (of: (body: Body) => boolean = () => true): number =>
        [...bodies.values()].filter(of).reduce((sum, { account }) => sum + account.bytes, 0);
      for (const { body: number, act, bytes } of steps) {
        const body = bodies.get(number) ?? new Body(room, `address ${number % 4}`, number % 3 === 0);
        bodies.set(number, body);
        if (act === 'grow' && !body.grow(bytes)) body.close();
        if (act === 'shrink') room.shrink(body.account, Math.min(bytes, body.account.bytes));
        if (act === 'arrive') body.arrive();
        if (act === 'sweep') room.sweep();
        if (act === 'close') body.close();
        for (const [key, { isCut, account }] of bodies) if (isCut || !(account.bytes > 0)) bodies.delete(key);
        if (act === 'close' || (act === 'grow' && body.account.bytes === 0)) bodies.delete(number);
        expect(room.bytes).toBe(held());
        expect(room.bytes).toBeLessThanOrEqual(size);
        for (let address = 0; address < 4; address += 1)
          expect(held(({ account }) => account.share.address === `address ${address}`)).toBeLessThanOrEqual(
            (3 / 4) * size,
          );
      }
      for (const body of bodies.values()) body.close();
      expect(room.bytes).toBe(0);
    }),
    runs(sized(300, 1_000)),
  );
});
