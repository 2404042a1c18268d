import { hash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LineIds, parseImportLine } from '../../../src/cli/transfer/import-line.ts';
import { type InputLine, LineBlock, readLines } from '../../../src/cli/transfer/input-lines.ts';
import { Occurrences } from '../../../src/cli/transfer/occurrences.ts';
import { OperatorError } from '../../../src/errors.ts';
import { isJson } from '../../json/json-text.ts';
import { anyText, sized } from '../../support/fuzz.ts';

interface ParsedLine {
  readonly type: string;
  readonly createdAt: number;
  readonly payload: string;
  readonly id: string | null;
}

/** The events of lines, or their problems. */
function parsed(...lines: readonly string[]): (ParsedLine | string)[] {
  const block = new LineBlock(Buffer.from(lines.join('\n')), 1, 1_000_000);
  const found: (ParsedLine | string)[] = [];
  while (block.next()) {
    const event = parseImportLine(block);
    if (typeof event === 'string') found.push(event);
    else {
      const { bytes, start, end } = event.payload;
      found.push({ ...event, payload: bytes.toString('utf8', start, end) });
    }
  }
  return found;
}

describe('a line', () => {
  const time = '2026-01-31T08:30:00.123Z';
  const at = Date.parse(time);

  test('gives its type, its time and the very text of its payload', () => {
    const payload = '{ "a" : 1e400, "a":-0,"big":12345678901234567890, "z":"\\ud800\\u0000" }';
    const line = `{"payload":${payload} ,"type":"ä","createdAt":"${time}","x":{"payload":1}}`;
    const event = { type: 'ä', id: null, createdAt: at, payload };
    expect(parsed(line, '{"ü":1}', line)).toEqual([event, 'the field "type" is missing', event]);
  });

  test.each([
    ['2026-01-31T09:30:00.123+01:00', at],
    ['2026-01-31 08:30:00.123999', at],
    ['2026-01-31T08:30', at - 123],
  ])('may give its time as %s', (createdAt, ms) => {
    expect(parsed(JSON.stringify({ type: 't', createdAt, payload: {} }))).toMatchObject([{ createdAt: ms }]);
  });

  test.each([
    ['nonsense', 'it is not valid JSON'],
    ['[]', 'it must be a JSON object'],
    ['{}', 'the field "type" is missing'],
    ['{"type":7}', 'the field "type" must be a string, the name of the event type'],
    ['{"type":""}', 'the field "type" must not be empty'],
    ['{"type":"\\u0000"}', 'the field "type" must not contain NUL'],
    ['{"type":"t"}', 'the field "createdAt" is missing'],
    [
      '{"type":"t","createdAt":1769848200123}',
      expect.stringContaining('must be an ISO 8601 date with a time'),
    ],
    [
      '{"type":"t","createdAt":"2026-01-31"}',
      expect.stringContaining('must be an ISO 8601 date with a time'),
    ],
    [
      '{"type":"t","createdAt":"2026-02-30T00:00:00Z"}',
      'the field "createdAt" is a date that does not exist',
    ],
    ['{"type":"t","createdAt":"1969-12-31T23:59:59Z"}', 'the field "createdAt" is before 1970'],
    [`{"type":"t","createdAt":"${time}"}`, 'the field "payload" is missing'],
    [`{"type":"t","createdAt":"${time}","payload":[]}`, 'the field "payload" must be a JSON object'],
    [
      `{"type":"t","createdAt":"${time}","payload":{"a":${'['.repeat(1_000)}${']'.repeat(1_000)}}}`,
      'the field "payload" may be nested at most 1000 levels deep',
    ],
  ])('that says %s is refused with its reason', (text, reason) => {
    expect(parsed(text)).toEqual([reason]);
  });
});

test('a line ends where it ends, whatever the next one begins with', () => {
  const part = fc.constantFrom(
    '{',
    '}',
    '{"a":1',
    '{"a":1,',
    '{"a":',
    '"b":2}',
    ',"b":2}',
    '2}',
    '"',
    ': 2}',
    '{"',
    '12',
    '3',
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 8 }), (lines) => {
      const alone = lines.flatMap((line) => parsed(line));
      expect(parsed(...lines)).toEqual(alone);
      expect(alone.map((problem) => problem !== 'it is not valid JSON')).toEqual(lines.map(isJson));
    }),
  );
});

test('a line is read as JSON.parse reads it, whatever stands twice, is escaped or is not JSON', () => {
  const name = fc.constantFrom(
    'type',
    'createdAt',
    'payload',
    'id',
    '\\u0074ype',
    'pay\\u006coad',
    'x',
    '__proto__',
  );
  const value = fc.oneof(
    fc.constantFrom(
      '"t"',
      '"\\u0074\\""',
      '"2026-01-31T08:30:00.123Z"',
      '{}',
      '{ "a" : [1, {}] }',
      '[]',
      'null',
      '7',
      '""',
      '"\\x"',
    ),
    fc.json(),
  );
  const line = fc
    .array(fc.tuple(name, value), { maxLength: 6 })
    .chain((members) =>
      fc
        .constantFrom('', ' ', ',', '}')
        .map((end) => `{${members.map(([key, text]) => `"${key}": ${text}`).join()}}${end}`),
    );
  fc.assert(
    fc.property(line, (text) => {
      const [found = ''] = parsed(text);
      if (typeof found === 'string') {
        expect(found !== 'it is not valid JSON').toBe(isJson(text));
        return;
      }
      const known: { type?: unknown; createdAt?: unknown; payload?: unknown } = JSON.parse(text);
      expect(found.type).toBe(known.type);
      expect(JSON.parse(found.payload)).toEqual(known.payload);
      expect(found.createdAt).toBe(Date.parse(String(known.createdAt)));
    }),
    { numRuns: sized(500, 2_000) },
  );
});

describe('the id of an imported event', () => {
  const event = { type: 't', createdAt: Date.UTC(2026, 0, 31), payload: '{}' };

  /** @param occurrence which of several such lines */
  function idOf(appId: string, change: Partial<typeof event>, occurrence = 1): string {
    const changed = { ...event, ...change };
    const bytes = Buffer.from(`x${changed.payload}x`);
    const line = { ...changed, id: null, payload: { bytes, start: 1, end: bytes.length - 1 } };
    const ids = new LineIds(appId);
    for (let before = 1; before < occurrence; before += 1) ids.of(line);
    return textOf(ids.of(line));
  }

  function textOf(id: Uint8Array): string {
    return Buffer.from(id)
      .toString('hex')
      .replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
  }

  test('keeps the id that an export has written, and no other', () => {
    const keptOf = (id: unknown): string | null => {
      const createdAt = '2026-01-31T08:30:00.123Z';
      const [line = ''] = parsed(JSON.stringify({ id, type: 'x', createdAt, payload: {} }));
      return typeof line === 'string' ? line : line.id;
    };
    const time = Date.UTC(2026, 0, 31, 8, 30)
      .toString(16)
      .padStart(12, '0')
      .replace(/^(.{8})/, '$1-');
    for (const version of [7, 8])
      expect(keptOf(`${time}-${version}abc-8def-0123456789ab`)).toBe(
        `${time}-${version}abc-8def-0123456789ab`,
      );
    // Of another time, another version, another spelling, or somebody else's.
    const others = [
      `019a0000-0000-7abc-8def-0123456789ab`,
      `${time}-4abc-8def-0123456789ab`,
      `${time}-7ABC-8def-0123456789ab`,
    ];
    for (const id of [...others, '42', 42, null, undefined]) expect(keptOf(id)).toBeNull();
  });

  test('is another for another app, type, time, payload or number, and else the same', () => {
    const all = [
      idOf('app_1', {}),
      idOf('app_2', {}),
      idOf('app_1', { type: 'u' }),
      idOf('app_1', { createdAt: event.createdAt + 1 }),
      idOf('app_1', { payload: '{ }' }),
      idOf('app_1', {}, 2),
      idOf('app_1', {}, 3),
    ];
    expect(new Set(all).size).toBe(all.length);
    expect(idOf('app_1', {})).toBe(all[0]);
    // Ids of earlier imports.
    expect(all.slice(4)).toEqual([
      '019c1159-7000-8a05-83e1-5349e6666b9d',
      '019c1159-7000-8a02-a5a2-fbaf19022474',
      '019c1159-7000-892a-81a4-5fb2cf4c14e7',
    ]);
  });
});

describe('an input', () => {
  async function linesOf(chunks: readonly Buffer[], maxBytes = 1_000): Promise<InputLine[]> {
    async function* source(): AsyncGenerator<Buffer> {
      yield* chunks;
    }
    const lines: InputLine[] = [];
    for await (const block of readLines(source(), maxBytes))
      while (block.next()) lines.push({ number: block.number, text: block.text, problem: block.problem });
    return lines;
  }

  test('has the same lines however it is cut into chunks', async () => {
    const line = anyText({ maxLength: 12 }).map((text) => text.replaceAll(/[\n\uFEFF]/g, '|'));
    await fc.assert(
      fc.asyncProperty(
        fc.array(line),
        fc.array(fc.integer({ min: 1, max: 9 })),
        fc.boolean(),
        async (texts, cuts, ended) => {
          const bytes = Buffer.from(texts.join('\n') + (ended ? '\n' : ''));
          const chunks: Buffer[] = [];
          for (let at = 0, i = 0; at < bytes.length; i++) {
            const size = cuts[i] ?? 5;
            chunks.push(bytes.subarray(at, at + size));
            at += size;
          }
          const expected = texts
            .map((text, index) => ({ number: index + 1, text, problem: '' }))
            .filter(({ text }) => text.trim() !== '');
          expect(await linesOf(chunks)).toEqual(expected);
        },
      ),
    );
  });

  test('loses no line after one that is too long or not UTF-8, nor its number', async () => {
    const chunks = ['\uFEFFa\nb', 'b'.repeat(60), 'b'.repeat(60), '\n\nc\n'].map((text) => Buffer.from(text));
    const bad = Buffer.from([0x64, 0xff, 0x0a, 0x65]);
    expect(await linesOf([...chunks, bad], 100)).toEqual([
      { number: 1, text: 'a', problem: '' },
      { number: 2, text: null, problem: 'it is longer than 100 bytes (MAX_BODY_BYTES)' },
      { number: 4, text: 'c', problem: '' },
      { number: 5, text: null, problem: 'it is not valid UTF-8' },
      { number: 6, text: 'e', problem: '' },
    ]);
  });
});

describe('occurrences', () => {
  const INTERVAL_MS = 600_000;
  const count = (occurrences: Occurrences, createdAt: number, payload = '{}'): number =>
    occurrences.count(createdAt, hash('sha256', `${createdAt} ${payload}`));

  test('of an input in order of time need no more memory than the ceiling, and stay exact', () => {
    const occurrences = new Occurrences(1_000);
    for (let line = 0; line < 20_000; line++) {
      // Every event twice, with another one in between.
      const at = Math.floor(line / 4) * 10_000;
      expect(count(occurrences, at, `{"n":${line % 2}}`)).toBe(line % 4 < 2 ? 1 : 2);
      expect(occurrences.remembered).toBeLessThanOrEqual(1_000);
    }
  });

  test('of an input that returns to what was forgotten are refused, with what to do', () => {
    const occurrences = new Occurrences(10);
    for (let interval = 0; interval < 11; interval++) count(occurrences, interval * INTERVAL_MS);
    expect(count(occurrences, INTERVAL_MS)).toBe(2);
    expect(() => count(occurrences, 1)).toThrow(
      new OperatorError(
        'the file returns to events of 1970-01-01T00:00:00.000Z to 1970-01-01T00:10:00.000Z, and more than 10 different ' +
          'lines cannot be remembered to number identical ones: sort the file by createdAt and import it again; what is ' +
          'stored is then skipped',
      ),
    );
  });
});
