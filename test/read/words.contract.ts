/** Searches for words find the same events on every engine: those whose payload has them by the definition of a word. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseFilters, payloadFilter, type SearchedTexts } from '../../src/read/filter/payload-filter.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { availableEngines } from '../support/database.ts';
import { type FieldDatabase, type FieldEvent, fieldDatabase } from '../support/field-database.ts';

const START = Date.UTC(2026, 4, 4, 10);
const HOUR_MS = 3_600_000;

const PAYLOADS = [
  '{"order":4711,"name":"Anna"}',
  '{"order":47110,"note":"4711 was paid"}',
  '{"path":"/orders/4711?x=1"}',
  '{"n":4711.5}',
  '{"name":"caf\\u00e9"}',
  '{"name":"café au lait"}',
  '{"text":"a\\nnew line","url":"a\\/b"}',
  '{"smile":"😀","\\u006fdd":true}',
  '{"half":"\\ud83d","nul":"\\u0000"}',
  '{"ip":"10.0.0.1","mail":"a@b.example"}',
  '{"order_id":"order-4711","id":"3f2504e0-4f89-11d3-9a0c-0305e82c3301"}',
];

/** The payloads with a text, by index. */
const CASES: readonly (readonly [texts: SearchedTexts, indexes: readonly number[], filter: string | null])[] =
  [
    [{ word: '4711' }, [0, 1, 2, 10], null],
    [{ q: '4711' }, [0, 1, 2, 3, 10], null],
    [{ word: 'order' }, [0, 1, 10], null],
    [{ word: 'orders' }, [2], null],
    [{ word: 'order-4711' }, [10], null],
    [{ word: 'Order' }, [], null],
    [{ word: 'café' }, [4, 5], null],
    [{ word: 'caf\\u00e9' }, [4], null],
    // As it was sent: an escape stands after it.
    [{ word: 'caf' }, [4], null],
    [{ word: 'new' }, [6], null],
    [{ word: 'a/b' }, [6], null],
    [{ word: '😀' }, [7], null],
    [{ word: '\ud83d' }, [8], null],
    [{ word: '\0' }, [8], null],
    [{ word: 'odd' }, [7], null],
    [{ word: '10.0.0.1' }, [9], null],
    [{ word: '10.0' }, [], null],
    [{ word: 'b.example' }, [9], null],
    [{ word: '3f2504e0-4f89-11d3-9a0c-0305e82c3301' }, [10], null],
    [{ word: '4711', q: 'paid' }, [1], null],
    [{ word: '4711' }, [0], 'name:Anna'],
    [{ word: "it's %_\\ $$" }, [], null],
  ];

describe.each(availableEngines())('with %s', (engine) => {
  let fields: FieldDatabase;
  let reader: EventReader;
  let events: FieldEvent[];

  beforeAll(async () => {
    fields = await fieldDatabase(engine, {
      now: START + 48 * HOUR_MS,
      from: START,
      until: START + 48 * HOUR_MS,
    });
    // Two of each, in two days; those of another app are not found.
    events = Array.from({ length: 2 * PAYLOADS.length }, (_, index) => {
      const at = START + index * HOUR_MS;
      return { id: fields.newId(at), at, typeId: 1 + (index % 2), payload: PAYLOADS[index >> 1] ?? '' };
    });
    await fields.write(events.filter((_, index) => index % 3 > 0));
    // Others come later: by a journal, or as events of the past.
    await fields.store(events.filter((_, index) => index % 3 === 0));
    await fields.write([{ id: fields.newId(START), at: START, typeId: 3, payload: PAYLOADS[0] ?? '' }]);
    reader = (await openStorage(fields.sql)).reader(fields.sql);
  });
  afterAll(() => fields.close());

  test.each(CASES)(
    '%o finds what has it, in either order, step by step',
    async (texts, indexes, condition) => {
      const conditions = condition === null ? [] : parseFilters([condition]);
      const filter = typeof conditions === 'string' ? null : payloadFilter(conditions, texts);
      const wanted = events.filter((_, index) => indexes.includes(index >> 1)).map(({ id }) => id);
      for (const order of ['asc', 'desc'] as const)
        for (const rows of [3, 1_000]) {
          const scope = { appId: 1, typeIds: null, from: null, until: null, order, after: null };
          const search = reader.search(scope, filter);
          const found: string[] = [];
          for (let isOver = false; !isOver; ) {
            const step = await search.step(rows);
            found.push(...step.events.map(({ id }) => id));
            isOver = step.position === null;
            if (step.looked > 0) expect(step.searchedBy).toBe('scan');
          }
          expect(found).toEqual(order === 'asc' ? wanted : wanted.toReversed());
        }
    },
  );
});
