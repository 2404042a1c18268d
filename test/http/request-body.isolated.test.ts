/** Bodies whose pieces come in turns: each is its own, though their memory is used again and again. */
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { BodyRoom } from '../../src/http/body-room.ts';
import { type ReceivedBody, RequestBody } from '../../src/http/request-body.ts';
import { runs } from '../support/fuzz.ts';

const MAX_BYTES = 65_536;

/** A body, its text, and what is still to come of it. */
class Sender {
  readonly text: string;
  readonly body: RequestBody;
  result: ReceivedBody | undefined;
  #onChunk: ((chunk: Buffer, last: boolean) => void) | undefined;
  #rest: Buffer;

  constructor(room: BodyRoom, text: string) {
    this.text = text;
    this.#rest = Buffer.from(text);
    const length = String(this.#rest.length);
    this.body = new RequestBody(
      {
        header: (name) => (name === 'content-length' ? length : ''),
        address: () => '127.0.0.1',
        pauseBody: () => undefined,
        resumeBody: () => undefined,
        readBody: (onChunk) => {
          this.#onChunk = onChunk;
        },
        closeAfterAnswer: () => undefined,
        refuse: () => undefined,
      },
      room,
      MAX_BYTES,
      {},
      0,
    );
    void this.body.read().then((result) => {
      if (typeof result === 'string' || Buffer.isBuffer(result)) this.result = result;
    });
  }

  send(bytes: number): void {
    const chunk = Buffer.from(this.#rest.subarray(0, bytes));
    this.#rest = this.#rest.subarray(bytes);
    this.#onChunk?.(chunk, this.#rest.length === 0);
    chunk.fill('!'); // A chunk's memory is only valid during the call.
  }

  get isSent(): boolean {
    return this.#rest.length === 0;
  }
}

const STEP = fc.record({
  sender: fc.nat(3),
  bytes: fc.integer({ min: 1, max: 9_000 }),
  release: fc.boolean(),
});

describe('bodies in pieces', () => {
  test('have the text of their own sender, also where it is read after the answer', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(STEP, { minLength: 10, maxLength: 60 }),
        fc.nat(8_000),
        async (steps, length) => {
          const room = new BodyRoom(16 * MAX_BYTES);
          let made = 0;
          const newSender = (): Sender => {
            made += 1;
            const letter = String.fromCharCode(0x61 + (made % 26));
            return new Sender(room, (made % 2 === 0 ? 'é' : 'e') + letter.repeat(length + 37 * made));
          };
          const senders = Array.from({ length: 4 }, newSender);
          const over: Sender[] = [];
          for (const { sender: at, bytes, release } of steps) {
            const sender = senders[at] as Sender;
            sender.send(bytes);
            if (!sender.isSent && !release) continue;
            await Promise.resolve();
            sender.body.release();
            over.push(sender);
            senders[at] = newSender();
          }
          for (const { text, result } of over) if (result !== undefined) expect(result.toString()).toBe(text);
          expect(over.filter(({ isSent }) => isSent).every(({ result }) => result !== undefined)).toBe(true);
          for (const { body } of senders) body.release();
          expect(room.bytes).toBe(0);
        },
      ),
      runs(200),
    );
  });
});

describe('a body for which there is no room', () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  /** A body of so many bytes, of which a part arrives while the room is full. */
  async function unwanted(bytes: number) {
    const room = new BodyRoom(1_048_576);
    const full = room.open('127.0.0.2', true, () => undefined);
    room.grow(full, 780_000);
    room.arrived(full);
    const pauses: string[] = [];
    let onChunk: (chunk: Buffer, last: boolean) => void = () => undefined;
    const owner = {
      header: (name: string) => (name === 'content-length' ? String(bytes) : ''),
      address: () => '127.0.0.1',
      readBody: (listener: typeof onChunk) => {
        onChunk = listener;
      },
      pauseBody: () => pauses.push('paused'),
      resumeBody: () => pauses.push('resumed'),
      closeAfterAnswer: () => undefined,
      refuse: () => undefined,
    };
    const body = new RequestBody(owner, room, bytes, {}, 0);
    const results: unknown[] = [];
    void body.read().then((result) => results.push(result));
    onChunk(Buffer.alloc(200_000, 'a'), false);
    await Promise.resolve();
    return { room, body, pauses, results, onChunk };
  }

  test('is refused at once if it is small', async () => {
    const { pauses, results } = await unwanted(262_144);
    expect(results).toMatchObject([{ reason: 'unavailable' }]);
    expect(pauses).toHaveLength(0);
  });

  test('is refused after a pause if it is large, and holds nothing meanwhile', async () => {
    const { room, pauses, results, onChunk } = await unwanted(262_145);
    // What has arrived before the pause took effect.
    onChunk(Buffer.alloc(10_000, 'a'), false);
    await Promise.resolve();
    expect(results).toHaveLength(0);
    expect(pauses).toEqual(['paused']);
    expect(room.bytes).toBe(780_000);
    await vi.advanceTimersByTimeAsync(499);
    expect(results).toHaveLength(0);
    await vi.advanceTimersByTimeAsync(1);
    expect(results).toMatchObject([{ reason: 'unavailable' }]);
    // The rest is discarded.
    onChunk(Buffer.alloc(52_145, 'a'), true);
    expect(pauses).toEqual(['paused', 'resumed']);
    expect(room.bytes).toBe(780_000);
  });

  test('whose client leaves during the pause is forgotten', async () => {
    const { body, pauses, results } = await unwanted(500_000);
    body.release();
    await vi.advanceTimersByTimeAsync(500);
    expect(pauses).toEqual(['paused']);
    expect(results).toMatchObject([{ details: 'The client closed the connection.' }]);
  });
});
