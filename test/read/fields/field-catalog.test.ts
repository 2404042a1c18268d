/** The catalog of fields: its paths are those of filters, its size is bounded, whatever the payloads are. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { catalogOf } from '../../../src/read/fields/field-catalog.ts';
import { visitPaths } from '../../../src/read/fields/payload-paths.ts';
import { parseFilter } from '../../../src/read/filter/parse-filter.ts';
import { matcherOf } from '../../../src/read/filter/payload-matcher.ts';
import type { StoredEvent } from '../../../src/storage/read/page-request.ts';

function pathsOf(payload: string): string[] {
  const found: string[] = [];
  visitPaths(payload, (path, kind) => found.push(`${path} ${kind}`));
  return found;
}

/** Newest first. */
function eventsOf(payloads: readonly string[], typeId = 'typ_1'): StoredEvent[] {
  return payloads.map((payload, index) => ({
    id: '',
    typeId,
    payload,
    createdAt: new Date(Date.UTC(2026, 0, 1) - index * 1_000),
  }));
}

describe('paths', () => {
  test('go through objects and the elements of arrays', () => {
    expect(pathsOf('{"a":1,"b":{"c":"x","d":[]},"e":[{"f":null},[true],2]}')).toEqual([
      'a number',
      'b object',
      'b.c string',
      'b.d array',
      'e array',
      'e object',
      'e.f null',
      'e array',
      'e boolean',
      'e number',
    ]);
  });

  test('are quoted where a filter needs it', () => {
    const payload = '{"a b":1,"":2,"x.y":{"-z":3},"-n":4,"\\u0061":5,"q\\"":6,"é":7}';
    expect(pathsOf(payload).map((found) => found.replace(/ \w+$/, ''))).toEqual([
      '"a b"',
      '""',
      '"x.y"',
      '"x.y".-z',
      '"-n"',
      'a',
      '"q\\""',
      'é',
    ]);
  });

  test('each match their payload in a filter, for any JSON', () => {
    const payloads = fc
      .jsonValue({ maxDepth: 6 })
      .map((inner) => JSON.stringify({ top: inner, list: [inner, { again: inner }] }));
    fc.assert(
      fc.property(payloads, (payload) => {
        visitPaths(payload, (path) => {
          const condition = parseFilter(`${path}:*`);
          if ('problem' in condition) throw new Error(`${path}: ${condition.problem}`);
          expect(matcherOf(condition)(payload), path).toBe(true);
        });
      }),
    );
  });

  test('end at eight levels, at 20 elements and at long names', () => {
    const deep = `${'{"a":'.repeat(12)}1${'}'.repeat(12)}`;
    expect(pathsOf(deep).at(-1)).toBe('a.a.a.a.a.a.a.a object');
    expect(pathsOf(`{"a":[${'1,'.repeat(99)}1],"b":1}`)).toHaveLength(1 + 20 + 1);
    expect(pathsOf(`{"${'x'.repeat(101)}":1,"b":1}`)).toEqual(['b number']);
    expect(pathsOf(`{"a":${'['.repeat(900)}${']'.repeat(900)},"b":1}`).at(-1)).toBe('b number');
  });
});

describe('a catalog', () => {
  test('has how often each path occurs, its kinds, examples as they were sent, and its last time', async () => {
    const { fields } = await catalogOf(
      eventsOf(['{"a":1e400}', '{"b":"x","a":-0}', '{"a":[1,"y",1]}', '{"a":"y","b":null}']),
    );
    expect(fields).toEqual([
      {
        typeId: 'typ_1',
        path: 'a',
        events: 4,
        share: 1,
        kinds: [
          { kind: 'number', events: 3 },
          { kind: 'string', events: 2 },
          { kind: 'array', events: 1 },
        ],
        kindChange: { earlier: 'string', recent: 'number' },
        examples: ['1e400', '-0', '1'],
        lastSeenAt: new Date(Date.UTC(2026, 0, 1)),
      },
      {
        typeId: 'typ_1',
        path: 'b',
        events: 2,
        share: 0.5,
        kinds: [
          { kind: 'string', events: 1 },
          { kind: 'null', events: 1 },
        ],
        kindChange: null,
        examples: ['"x"'],
        lastSeenAt: new Date(Date.UTC(2026, 0, 1) - 1_000),
      },
    ]);
  });

  test('keeps types apart', async () => {
    const { fields } = await catalogOf([...eventsOf(['{"a":1}']), ...eventsOf(['{"a":"x"}'], 'typ_2')]);
    expect(fields.map(({ typeId, kinds }) => [typeId, kinds[0]?.kind])).toEqual([
      ['typ_1', 'number'],
      ['typ_2', 'string'],
    ]);
  });

  test('is bounded for payloads that have other names each', async () => {
    const payloads = Array.from({ length: 1_000 }, (_, i) => `{"k${i}":1,"same":1}`);
    const { fields, isTruncated } = await catalogOf(eventsOf(payloads));
    expect(fields).toHaveLength(200);
    expect(fields[0]).toMatchObject({ path: 'same', events: 1_000 });
    expect(isTruncated).toBe(true);
    const types = Array.from({ length: 10 }, (_, i) => eventsOf(payloads, `typ_${i}`)).flat();
    expect((await catalogOf(types)).fields).toHaveLength(1_000);
  });
});

test('catalogs that are made at once take turns: others wait for a slice of one of them', async () => {
  const member = (n: number): string => `"name ${n}":${n}`;
  const payload = `{${Array.from({ length: 2_000 }, (_, n) => member(n)).join(',')}}`;
  const events = eventsOf(Array.from({ length: 25 }, () => payload));
  /** Turns of the event loop until so many catalogs are made. */
  const turnsOf = async (catalogs: number): Promise<number> => {
    let [turns, isOver] = [0, false];
    const others = (): void => {
      turns += 1;
      if (!isOver) setImmediate(others);
    };
    setImmediate(others);
    await Promise.all(Array.from({ length: catalogs }, () => catalogOf(events)));
    isOver = true;
    return turns;
  };
  await turnsOf(1);
  expect(await turnsOf(10)).toBeGreaterThan(4 * (await turnsOf(1)));
});
