/** `tidemark field`, and what other commands make of declared fields. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { declareField, listFields, MAX_FIELDS } from '../../src/apps/fields.ts';
import { MINUTE_MS } from '../../src/storage/counts/levels.ts';
import { connect, type Sql } from '../../src/storage/database/connect.ts';
import { FieldUpkeep } from '../../src/storage/fields/upkeep.ts';
import { type Outcome, tidemark } from '../support/command-line.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';
import { countedTotal } from '../support/field-totals.ts';
import { first } from '../support/fuzz.ts';
import { testSecret } from '../support/service.ts';

const COUNTRIES = ['DE', 'FR', 'IT', 'DE'];
const EVENTS = 200;
const START = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS - EVENTS * MINUTE_MS;
/** Each in 4, and a quarter of the events has an IT country. */
const TOTALS = { DE: EVENTS / 2, FR: EVENTS / 4, IT: EVENTS / 4, SE: 0 };

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-fields-test-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.each(first(availableEngines()))('on %s', (engine) => {
  let database: TestDatabase;
  let sql: Sql;
  beforeAll(async () => {
    database = await testDatabase(engine, { prepared: true });
    sql = database.sql;
  });
  afterAll(() => database.drop());

  const run = (args: readonly string[], on: TestDatabase = database): Promise<Outcome> =>
    tidemark(args, { DATABASE_URL: on.url, DATA_DIR: folder });
  const json = async (args: readonly string[], on?: TestDatabase): Promise<Record<string, unknown>> => {
    const { code, stdout, stderr } = await run([...args, '--json'], on);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    return JSON.parse(stdout);
  };
  const failure = async (args: readonly string[], exitCode = 2): Promise<string> => {
    const { code, stdout, stderr } = await run([...args, '--json']);
    expect({ code, stdout }).toEqual({ code: exitCode, stdout: '' });
    expect(stderr.trim().split('\n')).toHaveLength(1);
    return stderr;
  };

  async function newApp(): Promise<{ readonly id: number; readonly appId: string }> {
    const { appId } = await createApp(sql, await testSecret(), { name: 'fields' });
    const [app] = await sql<{ id: number }[]>`SELECT id FROM apps WHERE public_id = ${appId}`;
    return { id: app?.id ?? 0, appId };
  }

  /** Maintenance of fields until nothing is left of it. */
  async function settle(on: TestDatabase, appId: number): Promise<void> {
    const alone = connect(on.address, { connections: 1, name: 'test upkeep' });
    // Later than the last event, whose minute would wait for its end.
    const upkeep = new FieldUpkeep(alone, () => Date.now() + 10 * MINUTE_MS);
    const isDone = async (): Promise<boolean> =>
      upkeep.uncountedMinutes === 0 &&
      (await listFields(on.sql, appId)).every(
        ({ backfill, completeFrom }) => !backfill && completeFrom !== null,
      );
    for (let rounds = 0; rounds === 0 || !(await isDone()); rounds += 1) {
      expect(rounds).toBeLessThan(100);
      await upkeep.everySecond();
    }
    await upkeep.everySecond();
    await alone.end();
  }

  async function importInto(appId: string): Promise<void> {
    const lines = Array.from({ length: EVENTS }, (_, n) =>
      JSON.stringify({
        type: 'order',
        createdAt: new Date(START + n * MINUTE_MS).toISOString(),
        payload: { country: COUNTRIES[n % COUNTRIES.length] },
      }),
    );
    const file = join(folder, `${appId}.ndjson`);
    await writeFile(file, lines.join('\n'));
    const { code, stdout } = await run(['import', '--app', appId, file, '--json']);
    expect({ code, ...JSON.parse(stdout) }).toMatchObject({ code: 0, imported: EVENTS });
  }

  async function expectTotals(on: TestDatabase, appId: number): Promise<void> {
    for (const [country, total] of Object.entries(TOTALS))
      expect(await countedTotal(on.sql, appId, `country:${country}`), country).toBe(total);
  }

  test.each([
    ['$.order.total', 'order.total'],
    ['items[0].sku', 'items.sku'],
    ['items[].sku', 'items.sku'],
    ['/order/total', 'order.total'],
    ['order.total', null],
  ])('a path as other programs write it (%s) is told what is meant: %s', async (path, meant) => {
    const { appId } = await newApp();
    const { stdout } = await run(['field', 'add', '--app', appId, '--path', path]);
    expect(stdout.includes('did you mean')).toBe(meant !== null);
    if (meant !== null) expect(stdout).toContain(`did you mean ${meant}?`);
  });

  test('fields are added, listed and removed as JSON and as text', async () => {
    const { id, appId } = await newApp();
    await createEventType(sql, { appId, name: 'order', maxTypes: 10 });
    const field = { kind: 'value', typeName: null, backfill: false, values: 0, otherSince: null };
    const add = ['field', 'add', '--app', appId, '--path'];
    expect(await json([...add, 'order.country'])).toMatchObject({ ...field, path: 'order.country' });
    expect(await json([...add, '"odd name".x', '--type', 'order', '--backfill'])).toMatchObject({
      ...field,
      path: '"odd name".x',
      typeName: 'order',
      typeId: expect.stringMatching(/./),
      // Without events there is nothing to count: it is complete at once.
      completeFrom: '1970-01-01T00:00:00.000Z',
      backfill: false,
    });
    const text = await run([...add, 'third']);
    expect(text.stdout).toContain('Its counts are complete: the app has no earlier events.');
    expect((await listFields(sql, id)).map(({ path }) => path)).toEqual([
      ['order', 'country'],
      ['odd name', 'x'],
      ['third'],
    ]);
    const list = ['field', 'list', '--app', appId];
    expect((await json(list)).fields).toMatchObject([
      {
        path: 'order.country',
        by: null,
        completeFrom: '1970-01-01T00:00:00.000Z',
        backfill: false,
        eventsLeft: 0,
      },
      { path: '"odd name".x', completeFrom: '1970-01-01T00:00:00.000Z', backfill: false, eventsLeft: 0 },
      { path: 'third' },
    ]);
    const { stdout } = await run(list);
    expect(stdout).toMatch(/^Field +Kind +By +Type +Complete from +Backfill +Values +Other since$/m);
    expect(stdout).toMatch(/^"odd name"\.x +value .*order +1970-01-01T00:00:00.000Z +-/m);

    const remove = ['field', 'remove', '--app', appId, '--path', 'order.country'];
    expect(await json(remove)).toMatchObject({ path: 'order.country' });
    expect(await failure(remove)).toContain('the app has not declared this field');
    expect((await json(list)).fields).toMatchObject([{ path: '"odd name".x' }, { path: 'third' }]);
  }, 60_000);

  test('what cannot be declared is refused with the reason, and nothing changes', async () => {
    const { id, appId } = await newApp();
    for (let n = 0; n < MAX_FIELDS - 1; n += 1)
      await declareField(sql, {
        appId: id,
        path: ['a', String(n)],
        kind: 'value',
        typeName: null,
        backfill: false,
      });
    const add = ['field', 'add', '--app', appId, '--path'];
    const before = await listFields(sql, id);
    const refusals = [
      [['field', 'add', '--app', 'app_doesnotexist', '--path', 'x'], /no app/i],
      [['field', 'list', '--app', 'app_doesnotexist'], /no app/i],
      [['field', 'remove', '--app', 'app_doesnotexist', '--path', 'x'], /no app/i],
      [[...add, 'order..country'], /--path is wrong at column 7: /],
      [['field', 'remove', '--app', appId, '--path', 'a."b'], /--path is wrong at column \d+: /],
      [[...add, 'x', '--type', 'nope'], /the app has no event type "nope"/],
      [[...add, 'a.3'], /the app has declared this field already/, 1],
      [[...add, 'x', '--kind', 'text'], /--kind.*(value|number)/],
      [['field', 'add', '--app', appId], /--path/],
    ] as const;
    for (const [args, reason, exitCode] of refusals) expect(await failure(args, exitCode)).toMatch(reason);
    expect(await listFields(sql, id)).toEqual(before);

    await json([...add, 'last']);
    expect(await failure([...add, 'one-too-many'], 1)).toContain(`an app may have ${MAX_FIELDS} fields`);
    // Again, with the past: that is no further field.
    expect(await json([...add, 'a.3', '--backfill'])).toMatchObject({ path: 'a.3', backfill: true });
    expect(await listFields(sql, id)).toHaveLength(MAX_FIELDS);
  }, 60_000);

  test('an import into an app with fields is counted, and a backfill says how much is left', async () => {
    const { id, appId } = await newApp();
    const country = { appId: id, path: ['country'], kind: 'value', typeName: null } as const;
    await declareField(sql, { ...country, backfill: false });
    await settle(database, id);
    await importInto(appId);
    // Its values came with the rows.
    await expectTotals(database, id);
    await settle(database, id);
    await expectTotals(database, id);

    await declareField(sql, { ...country, path: ['other'], backfill: true });
    const left = async (): Promise<unknown> => {
      const { fields } = await json(['field', 'list', '--app', appId]);
      return (fields as { path: string; eventsLeft: number }[]).map(({ path, eventsLeft }) => [
        path,
        eventsLeft,
      ]);
    };
    expect(await left()).toEqual([
      ['country', 0],
      ['other', null],
    ]);
    await sql`
      UPDATE declared_fields SET generation = 1, complete_from = ${new Date(START + 50 * MINUTE_MS)} WHERE path = '["other"]'`;
    expect(await left()).toEqual([
      ['country', 0],
      ['other', 50],
    ]);
    expect((await run(['field', 'list', '--app', appId])).stdout).toMatch(/^other .* 50 events left/m);
    await settle(database, id);
    expect(await left()).toEqual([
      ['country', 0],
      ['other', 0],
    ]);
  }, 60_000);

  test('a backup brings declared fields back, whose totals are exact again', async () => {
    const { id, appId } = await newApp();
    await declareField(sql, { appId: id, path: ['country'], kind: 'value', typeName: null, backfill: true });
    await importInto(appId);
    await settle(database, id);
    const file = join(folder, `${engine}.backup`);
    await json(['backup', file]);
    const target = await testDatabase(engine, { empty: true });
    try {
      await json(['restore', file], target);
      await expectTotals(target, id);
      await settle(target, id);
      await expectTotals(target, id);
      expect(await listFields(target.sql, id)).toEqual(await listFields(sql, id));
      const { fields } = await json(['field', 'list', '--app', appId], target);
      expect(fields).toMatchObject([
        { path: 'country', eventsLeft: 0, completeFrom: '1970-01-01T00:00:00.000Z' },
      ]);
    } finally {
      await target.drop();
    }
  }, 60_000);
});
