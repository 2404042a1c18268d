/** GET …/fields: the paths that recent payloads have, declared or not. */

import { LRUCache } from 'lru-cache';
import type { FieldCatalog, SeenField } from '../../api-types/answers.ts';
import { typeNames } from '../../apps/event-types.ts';
import { type Field, listFields } from '../../apps/fields.ts';
import { Rejection } from '../../errors.ts';
import { dataOf, json, objectOf } from '../../http/operation.ts';
import { Query } from '../../http/query.ts';
import type { ReadPlace } from '../../http/read-slots.ts';
import { countRows, type Sql } from '../../storage/database/connect.ts';
import { EVERY_ROW } from '../../storage/fields/row-filter.ts';
import type { ScanRequest } from '../../storage/read/event-scan.ts';
import type { StoredEvent } from '../../storage/read/page-request.ts';
import { COUNT, nullable, TIMESTAMP, TYPE_ID } from '../answer-shapes.ts';
import { type AppRead, appReadByParts, turnOf } from '../app-read.ts';
import { checkScope, findTypes, SCOPE } from '../scope-query.ts';
import { type CatalogField, catalogOf } from './field-catalog.ts';
import { KINDS, MAX_ELEMENTS, MAX_LEVELS, spellPath } from './payload-paths.ts';

/** What one sample may take: events, rows that are looked at for them, characters of payloads, and milliseconds. */
export interface SampleBudget {
  readonly events: number;
  readonly rows: number;
  readonly characters: number;
  /** After this time no further step begins. */
  readonly ms: number;
}

const SAMPLE_BUDGET: SampleBudget = {
  events: 2_000,
  rows: 20_000,
  characters: 4 * 1_048_576,
  ms: 1_000,
};

/** How long an answer is given again, and how many characters of answers are kept. */
const FRESH_MS = 10_000;
const CACHE_CHARACTERS = 8 * 1_048_576;

const KIND = { type: 'string', enum: KINDS } as const;

const FIELD = objectOf<SeenField>(
  {
    typeId: TYPE_ID,
    typeName: { type: 'string' },
    path: { type: 'string', description: 'As `filter` takes it.', examples: ['order.country'] },
    events: { ...COUNT, description: 'Events of the sample that have the field.' },
    share: {
      type: 'number',
      minimum: 0,
      maximum: 1,
      description: "The same as a part of the type's events in the sample.",
    },
    kinds: {
      type: 'array',
      items: objectOf({ kind: KIND, events: COUNT }),
      description:
        'The kinds of its values, and how many events have each. The elements of an array count too.',
    },
    kindChange: {
      ...nullable(objectOf({ earlier: KIND, recent: KIND })),
      description:
        "The most frequent kind in the earlier half of the type's events and in the recent half, where these differ; else null.",
    },
    examples: {
      type: 'array',
      items: { type: ['string', 'number', 'boolean'] },
      description: 'Up to three different values of at most 100 characters, the newest first.',
    },
    declaredAs: {
      type: 'array',
      items: { type: 'string', enum: ['value', 'number', 'distinct'] },
      description:
        'The kinds with which the app has declared the field, for this type or for all; empty if it has not.',
    },
    unit: {
      type: ['string', 'null'],
      description: 'What its numbers are of, such as `ms`, where a declaration says so.',
    },
    decimals: {
      type: ['integer', 'null'],
      description: 'Digits after the decimal point with which the dashboard shows its numbers.',
    },
    lastSeenAt: { ...TIMESTAMP, description: 'The newest event of the sample that has the field.' },
  },
  { title: 'Field' },
);

export const FIELDS = {
  path: '/fields',
  query: new Query({ ...SCOPE }, checkScope),
  operation: {
    id: 'listFields',
    summary: 'Read which fields the payloads of recent events have.',
    description:
      `Looks at the newest events of the scope: at most ${SAMPLE_BUDGET.events.toLocaleString('en-US')}, with at most 4 MiB ` +
      `of payloads, ${MAX_LEVELS} levels deep, and ${MAX_ELEMENTS} elements of an array. The answer may be ` +
      `${FRESH_MS / 1_000} seconds old.`,
    answers: {
      200: json(
        'The fields of each event type, the most frequent first.',
        dataOf(
          objectOf<FieldCatalog>({
            fields: { type: 'array', items: FIELD },
            truncated: { type: 'boolean', description: 'Whether there are more fields than are listed.' },
            sample: objectOf({
              events: { ...COUNT, description: 'Events that were looked at.' },
              from: { ...nullable(TIMESTAMP), description: 'The oldest of them; null if there is none.' },
              to: { ...nullable(TIMESTAMP), description: 'The newest of them.' },
            }),
          }),
        ),
      ),
    },
    refusals: ['eventTypeNotFound'],
  },
} as const;

export interface FieldsReadOptions {
  /** For short lookups, which do not wait for reads. */
  readonly sql: Sql;
  readonly monotonic: () => number;
  readonly sampleBudget?: SampleBudget;
}

export function fieldsRead(options: FieldsReadOptions): AppRead {
  const answers = new RecentAnswers(options.monotonic);
  return appReadByParts(FIELDS, async (call, query, slots) => {
    const { app } = call;
    const { typeId, typeName, from, to: until } = query;
    // An answer of before an erasure has examples of what is erased.
    const erasures = await countErasures(options.sql, app.id);
    // By the public id: an internal one may be another app's in another database.
    const key = JSON.stringify([app.appId, erasures, typeId, typeName, from, until]);
    // Whoever waits for the same answer has no place meanwhile.
    const body = await answers.get(key, () =>
      slots.run(turnOf(call), async (place) => {
        const { sql } = place;
        const typeIds = await findTypes(sql, app.id, query);
        if (typeIds instanceof Rejection) return typeIds;
        const request = { appId: app.id, typeIds, from, until, order: 'desc', after: null } as const;
        const sample = await sampleOf(options, place, request);
        return await bodyOf(sql, sample, await listFields(sql, app.id));
      }),
    );
    if (body instanceof Rejection) return body;
    return { data: () => JSON.parse(body).data as object, present: () => ({ status: 200, body }) };
  });
}

/** How many erasures of an app are finished. */
async function countErasures(sql: Sql, app: number): Promise<number> {
  return await countRows(sql, sql`erasures WHERE app_id = ${app} AND finished_at IS NOT NULL`);
}

/** Answers are shared by the requests that ask for the same, and given again for some seconds. */
class RecentAnswers {
  readonly #now: () => number;
  readonly #bodies = new LRUCache<string, { readonly body: string; readonly at: number }>({
    maxSize: CACHE_CHARACTERS,
    sizeCalculation: ({ body }, key) => body.length + key.length,
  });
  readonly #running = new Map<string, Promise<string | Rejection>>();

  constructor(now: () => number) {
    this.#now = now;
  }

  async get(key: string, make: () => Promise<string | Rejection>): Promise<string | Rejection> {
    for (;;) {
      const known = this.#bodies.get(key);
      if (known !== undefined && this.#now() - known.at < FRESH_MS) return known.body;
      const running = this.#running.get(key);
      if (running === undefined) {
        const made = this.#make(key, make);
        this.#running.set(key, made);
        return await made;
      }
      const shared = await running;
      // The request that made it was refused, or its client is gone: this one may not be.
      if (!(shared instanceof Rejection)) return shared;
    }
  }

  async #make(key: string, make: () => Promise<string | Rejection>): Promise<string | Rejection> {
    const at = this.#now();
    try {
      const body = await make();
      if (!(body instanceof Rejection)) this.#bodies.set(key, { body, at });
      return body;
    } finally {
      this.#running.delete(key);
    }
  }
}

/** The newest events of a scope. */
async function sampleOf(
  { monotonic: now, sampleBudget: budget = SAMPLE_BUDGET }: FieldsReadOptions,
  { events: reader, pass }: ReadPlace,
  request: ScanRequest,
): Promise<StoredEvent[]> {
  const search = reader.search(request, EVERY_ROW);
  const deadline = now() + budget.ms;
  const sample: StoredEvent[] = [];
  let characters = 0;
  for (let rows = budget.rows; rows > 0 && now() < deadline; ) {
    const { events, looked, position } = await search.step(Math.min(rows, budget.events));
    for (const event of events) {
      sample.push(event);
      characters += event.payload.length;
      if (sample.length >= budget.events || characters >= budget.characters) return sample;
    }
    if (position === null) return sample;
    rows -= looked;
    if (!(await pass())) return sample;
  }
  return sample;
}

async function bodyOf(sql: Sql, sample: readonly StoredEvent[], declared: readonly Field[]): Promise<string> {
  const { fields, isTruncated } = await catalogOf(sample);
  const paths = declared.map((field) => ({ ...field, path: spellPath(field.path) }));
  const names = await typeNames(sql, [...new Set(fields.map(({ typeId }) => typeId))]);
  const rows = fields.map((field) => {
    const { path, typeId } = field;
    const same = paths.filter(
      (one) => one.path === path && one.by === null && (one.typeId === null || one.typeId === typeId),
    );
    const declaredAs = [...new Set(same.map(({ kind }) => kind))];
    const shown = paths.find((one) => one.path === path && (one.unit ?? one.decimals) !== null);
    const { unit = null, decimals = null } = shown ?? {};
    return fieldText(field, { typeName: names.get(typeId) ?? '', declaredAs, unit, decimals });
  });
  const about = {
    truncated: isTruncated,
    sample: {
      events: sample.length,
      from: sample.at(-1)?.createdAt ?? null,
      to: sample[0]?.createdAt ?? null,
    },
  };
  return `{"success":true,"data":{"fields":[${rows.join(',')}],${JSON.stringify(about).slice(1)}}`;
}

/** Examples go in as the very text that was sent: no float changes a number. */
function fieldText({ examples, ...field }: CatalogField, more: object): string {
  return `${JSON.stringify({ ...field, ...more }).slice(0, -1)},"examples":[${examples.join(',')}]}`;
}
