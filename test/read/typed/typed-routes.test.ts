/** What the dashboard asks about text that is typed: conditions, ranges and instants. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newPerson, type Person } from '../../support/person.ts';
import { startTestService, TestClock, type TestService } from '../../support/service.ts';

const NOW = Date.parse('2026-11-22T08:00:00Z');

let service: TestService;
let person: Person;

beforeAll(async () => {
  service = await startTestService({ clock: new TestClock(NOW) });
  person = await newPerson(service, 'typist@example.com');
});
afterAll(() => service.stop());

const asked = async (path: string, parameters: Record<string, string>): Promise<unknown> => {
  const { success: _, ...answer } = (await person.get(`${path}?${new URLSearchParams(parameters)}`)).data;
  return answer;
};

test('conditions are answered in the grammar of filters, or with what is wrong', async () => {
  expect(await asked('/api/typed-conditions', { text: "country = 'DE' AND plan != free" })).toEqual({
    conditions: ['country:"DE"', '-plan:free'],
    mistake: null,
  });
  expect(await asked('/api/typed-conditions', { text: '(country:DE)' })).toEqual({
    conditions: null,
    mistake: expect.stringContaining('brackets'),
  });
  expect(await asked('/api/typed-conditions', { text: 'order placed' })).toEqual({
    conditions: null,
    mistake: null,
  });
});

test('a range is as pages spell it, and instants are ISO 8601, on the clock of the zone', async () => {
  const timezone = 'Europe/Berlin';
  expect(await asked('/api/typed-range', { text: 'last 3 hours', timezone })).toEqual({
    ...{ range: '3h', at: null, until: null },
  });
  expect(await asked('/api/typed-range', { text: '14 Nov 09:00 to 10:30', timezone })).toEqual({
    range: '2026-11-14T08:00:00Z~2026-11-14T09:30:00Z',
    ...{ at: '2026-11-14T08:00:00Z', until: '2026-11-14T09:30:00Z' },
  });
  expect(await asked('/api/typed-range', { text: '14 Nov 09:00' })).toEqual({
    range: '2026-11-14T09:00:00Z~',
    ...{ at: '2026-11-14T09:00:00Z', until: null },
  });
  expect(await asked('/api/typed-range', { text: 'soon', timezone })).toEqual({
    ...{ range: null, at: null, until: null },
  });
});

test('only who is signed in is answered', async () => {
  for (const path of ['/api/typed-conditions', '/api/typed-range'])
    expect((await service.request({ method: 'GET', path: `${path}?text=today` })).status).toBe(401);
});
