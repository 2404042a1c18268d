/** Lines of a body in any pieces, taken at any time, through memory or the spool: the same lines, in order. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Rejection } from '../../src/errors.ts';
import { ArrivingLines, TOO_LONG } from '../../src/http/arriving-lines.ts';

const MAX_LINE_BYTES = 40;
const LINE = fc.string({ unit: fc.constantFrom('a', 'é', ' ', '\r'), maxLength: 60 });
const REFUSED = new Rejection('unavailable', 'Of the test.');

/** Takes until the end; a dropped line is null. */
async function takeAll(lines: ArrivingLines): Promise<{ taken: (string | null)[]; end: Rejection | null }> {
  const taken: (string | null)[] = [];
  for (;;) {
    const next = await lines.take();
    if (next === null || next instanceof Rejection) return { taken, end: next };
    if (next === TOO_LONG) taken.push(null);
    // Lines that came in one piece with their end are given whatever their length.
    else
      taken.push(
        ...next
          .toString()
          .split('\n')
          .slice(0, next.toString().endsWith('\n') ? -1 : undefined),
      );
    // Others have their turn before more are taken.
    await new Promise(setImmediate);
  }
}

test('whatever the pieces, each line is given once, or dropped if it is too long', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(LINE, { maxLength: 30 }),
      fc.boolean(),
      fc.array(fc.nat(700), { maxLength: 25 }),
      fc.infiniteStream(fc.constantFrom('push', 'spool', 'wait')),
      fc.nat(200),
      async (sent, endsWithFeed, cuts, ways, firstBytes) => {
        const body = Buffer.from(sent.join('\n') + (endsWithFeed ? '\n' : ''));
        const first = Buffer.from(body.subarray(0, firstBytes));
        let freed = 0;
        const lines = new ArrivingLines(first, {
          maxLineBytes: MAX_LINE_BYTES,
          onFreed: (bytes) => {
            freed += bytes;
          },
          onAwaited: () => undefined,
        });
        const all = takeAll(lines);
        const bounds = [
          first.length,
          ...cuts.filter((cut) => cut > first.length && cut < body.length),
          body.length,
        ];
        bounds.sort((a, b) => a - b);
        for (const [at, end] of bounds.slice(1).entries()) {
          const way = ways.next().value;
          if (way === 'wait') await new Promise(setImmediate);
          const piece = Buffer.from(body.subarray(bounds[at], end));
          if (way === 'spool' || lines.isSpooling) expect(lines.spool(piece, true)).toBe(true);
          else lines.push(piece);
          piece.fill('!'); // A piece's memory is only valid during the call.
        }
        lines.end();
        const { taken, end } = await all;
        expect(end).toBeNull();
        const expected =
          body.length === 0
            ? []
            : body
                .toString()
                .split('\n')
                .slice(0, endsWithFeed || body.at(-1) === 0x0a ? -1 : undefined);
        expect(taken).toHaveLength(expected.length);
        for (const [index, line] of taken.entries())
          if (line === null) expect(Buffer.byteLength(expected[index] ?? '')).toBeGreaterThan(MAX_LINE_BYTES);
          else expect(line).toBe(expected[index]);
        expect(freed).toBe(body.length);
      },
    ),
  );
});

test('a body that is closed gives the whole lines that have arrived, then why; one that fails gives nothing more', async () => {
  const make = (): ArrivingLines => {
    const options = { maxLineBytes: MAX_LINE_BYTES, onFreed: () => undefined, onAwaited: () => undefined };
    const lines = new ArrivingLines(Buffer.from('a\nb'), options);
    lines.push(Buffer.from('c\nd\ne'));
    expect(lines.spool(Buffer.from('f\ng'), true)).toBe(true);
    return lines;
  };
  const closed = make();
  closed.close(REFUSED);
  expect(await takeAll(closed)).toEqual({ taken: ['a', 'bc', 'd', 'ef'], end: REFUSED });
  const failed = make();
  failed.fail(REFUSED);
  expect(await takeAll(failed)).toEqual({ taken: [], end: REFUSED });
  expect(failed.spool(Buffer.from('x'), true)).toBe(true);
});

test('a sender that is not known yet has little room in the spool', () => {
  const options = { maxLineBytes: MAX_LINE_BYTES, onFreed: () => undefined, onAwaited: () => undefined };
  const lines = new ArrivingLines(Buffer.from(''), options);
  const piece = Buffer.alloc(16 * 1_048_576);
  expect([1, 2, 3].map(() => lines.spool(piece, false))).toEqual([true, true, false]);
  expect(lines.spool(piece, true)).toBe(true);
  lines.fail(REFUSED);
});
