/** Lines are made behind their rows in one buffer, whatever is longer than was expected. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { CopiedRows, RowBuffer } from '../../../src/storage/read/copied-rows.ts';
import { LineWriter, lineHead } from '../../../src/storage/read/event-lines.ts';
import { runs } from '../../support/fuzz.ts';

const SIGNATURE = Buffer.from('PGCOPY\n\u00ff\r\n\0\0\0\0\0\0\0\0\0', 'latin1');
const EPOCH_MS = Date.UTC(2000, 0, 1);

interface Row {
  readonly id: string;
  readonly at: number;
  readonly type: number;
  readonly payload: string;
}

/** A message of COPY: `id uuid, created_at timestamptz, type_id integer, payload json`. */
function rowMessage({ id, at, type, payload }: Row, isFirst: boolean): Buffer {
  const text = Buffer.from(payload);
  const row = Buffer.alloc(46);
  row.writeInt16BE(4, 0);
  row.writeInt32BE(16, 2);
  Buffer.from(id.replaceAll('-', ''), 'hex').copy(row, 6);
  row.writeInt32BE(8, 22);
  row.writeBigInt64BE(BigInt(at - EPOCH_MS) * 1_000n, 26);
  row.writeInt32BE(4, 34);
  row.writeInt32BE(type, 38);
  row.writeInt32BE(text.length, 42);
  const content = Buffer.concat([isFirst ? SIGNATURE : Buffer.alloc(0), row, text]);
  const head = Buffer.from('d____', 'latin1');
  head.writeUInt32BE(content.length + 4, 1);
  return Buffer.concat([head, content]);
}

const TYPES = ['plain', 'with "quotes" and é', '\u0001'.repeat(200)].map((type, n) => ({
  typeId: `typ_${n}`,
  type,
}));

const ROW = fc.record({
  id: fc.uuid(),
  // Microseconds after that are no longer exact numbers.
  at: fc.integer({ min: Date.UTC(1970, 0, 1), max: Date.UTC(2284, 0, 1) }),
  type: fc.nat(TYPES.length - 1),
  payload: fc
    .tuple(fc.json(), fc.constantFrom('', ' ', '\n', '\r\n'))
    .map(([json, space]) => `{"a":${space}${json}}`),
});

test('each row is a line, however little room was expected', () => {
  fc.assert(
    fc.property(fc.array(ROW, { maxLength: 20 }), fc.nat(2_000), (rows, room) => {
      const buffer = new RowBuffer();
      for (const [index, row] of rows.entries()) buffer.add(rowMessage(row, index === 0));
      const copied = new CopiedRows(buffer.bytes);
      expect(copied.length).toBe(rows.length);
      const heads = TYPES.map(lineHead);
      const writer = new LineWriter(buffer, room);
      while (copied.next()) writer.add(copied, heads[copied.typeId] ?? Buffer.alloc(0));
      const lines = rows.map(({ id, at, type, payload }) => {
        const known = JSON.stringify({ id, ...TYPES[type], createdAt: new Date(at).toISOString() });
        return `${known.slice(0, -1)},"payload":${payload.replaceAll(/[\r\n]/g, ' ')}}\n`;
      });
      expect(writer.end().toString()).toBe(lines.join(''));
      expect(writer.events).toBe(rows.length);
    }),
    runs(200),
  );
});
