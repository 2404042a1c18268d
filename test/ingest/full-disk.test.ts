/** A disk with room for small events alone: readiness goes by the largest that it had no room for. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { startTestService, type TestService, until } from '../support/service.ts';

const LARGE = { text: 'x'.repeat(50_000) };

let service: TestService;
let folder: string | null = null;
afterEach(async () => {
  await service.stop();
  if (folder !== null) await rm(folder, { recursive: true });
  folder = null;
});

/** From now on the database has no room for payloads of more characters. */
const leaveRoomFor = async (length: number): Promise<void> => {
  await service.sql.unsafe(`
    CREATE OR REPLACE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF length(NEW.payload::text) > ${length} THEN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END IF;
      RETURN NEW; END $$;
    CREATE OR REPLACE TRIGGER no_room BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION no_room()`);
};
const ready = async (query = ''): Promise<string> => {
  const { status, body } = await service.request({ path: `/readyz${query}` });
  const { status: state, details } = JSON.parse(body);
  return `${status} ${state ?? details}`;
};
const readyIs = (expected: string): Promise<void> =>
  until(async () => (await ready()) === expected, `/readyz is ${expected}`);
const post = async (payload: object, headers = {}): Promise<number> => {
  const { loggingToken } = service.app;
  const body = JSON.stringify({ loggingToken, typeName: 'order', payload });
  return (await service.request({ method: 'POST', path: '/public/create_event', headers, body })).status;
};
const FULL = '503 The disk is full: make room, then it goes on by itself.';

test.each([
  ['an event', {}],
  ['a request with an Idempotency-Key', { 'Idempotency-Key': 'one' }],
])(
  'security 23: %s that finds no room keeps /readyz at 503 until as much has room, while small ones are stored',
  async (_, headers) => {
    service = await startTestService();
    expect(await post({})).toBe(201);
    expect(await ready()).toBe('200 ready');
    await leaveRoomFor(1_000);
    expect(await post(LARGE, headers)).toBe(503);
    await readyIs(FULL);
    await until(async () => (await post({})) === 201, 'a small one is stored');
    expect(await ready()).toBe(FULL);
    await leaveRoomFor(20_000);
    await until(async () => (await post({ text: 'x'.repeat(15_000) })) === 201, 'a larger one is stored');
    expect(await ready()).toBe(FULL);
    await leaveRoomFor(100_000);
    await readyIs('200 ready');
    expect(await post(LARGE, headers)).toBe(201);
  },
);

test('an event as large that is stored makes it ready at once', async () => {
  service = await startTestService();
  await leaveRoomFor(1_000);
  expect(await post(LARGE)).toBe(503);
  await readyIs(FULL);
  await leaveRoomFor(100_000);
  await until(async () => (await post(LARGE)) === 201, 'it is stored');
  expect(await ready()).toBe('200 ready');
});

test('with a journal, producers are told to go on', async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-full-'));
  service = await startTestService({ config: { JOURNAL_DIR: folder } });
  await leaveRoomFor(1_000);
  expect(await post(LARGE)).toBe(201);
  const details = `${FULL} Events are accepted into the journal.`;
  await readyIs(details);
  expect(await ready('?for=writing')).toBe('200 journaling');
  await leaveRoomFor(100_000);
  await readyIs('200 ready');
  await until(() => service.stats().journal?.waitingEvents === 0, 'nothing waits');
});
