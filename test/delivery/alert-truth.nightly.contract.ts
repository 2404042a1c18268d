/** Alerts against a truth that is worked out from the events alone, with a clock that the test moves. */
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AlertTrial } from '../../src/api-types/answers.ts';
import { declareField } from '../../src/apps/fields.ts';
import { addAlert, requireRule } from '../../src/delivery/alerts/alert-rules.ts';
import { AlertRounds, SETTLE_MS } from '../../src/delivery/alerts/rounds.ts';
import { tryRule } from '../../src/delivery/alerts/trial.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../src/storage/counts/levels.ts';
import { openStorage, type Storage } from '../../src/storage/storage.ts';
import { availableEngines } from '../support/database.ts';
import { type FieldDatabase, fieldDatabase, type OpenFieldDatabase } from '../support/field-database.ts';
import { seededRandom } from '../support/field-oracle.ts';

/** In the week after the clocks of Berlin went back: 2026-10-25 01:00 UTC. */
const START = Date.UTC(2026, 9, 28, 6);
/** The same after they went forward: 2027-03-28 01:00 UTC. */
const SPRING = Date.UTC(2027, 2, 31, 6);
const BERLIN = 'Europe/Berlin';
const MINUTES = 50;
const WINDOW = 5;
const HOLD = 2;
const HOSTS = ['a', 'b'];

interface Written {
  readonly at: number;
  readonly typeId: number;
  readonly host: string;
  readonly ms: number;
}

/** A rule, and whether its condition holds in a window, of which the test knows the events. */
interface Known {
  readonly rule: object;
  readonly holds: (events: readonly Written[]) => boolean;
  /** Judges each host apart. */
  readonly isByHost?: true;
}

const of = (events: readonly Written[], typeId: number): readonly Written[] =>
  events.filter((event) => event.typeId === typeId);
const window = `${WINDOW}m`;
const RULES: Readonly<Record<string, Known>> = {
  ratio: {
    rule: { ratio: { type: 'type1' }, to: { type: 'type2' }, window, above: 0.75 },
    holds: (events) => of(events, 2).length > 0 && of(events, 1).length / of(events, 2).length > 0.75,
  },
  absent: {
    rule: { absent: true, type: 'type1', by: 'host', window },
    holds: (events) => of(events, 1).length === 0,
    isByHost: true,
  },
  many: {
    rule: { of: 'count', type: 'type2', by: 'host', window, above: 4 },
    holds: (events) => of(events, 2).length > 4,
    isByHost: true,
  },
  p99: {
    rule: { of: 'p99', field: 'ms', window, above: 800 },
    // Of n numbers in order the one at ⌈0.99 n⌉.
    holds: (events) => {
      const sorted = events.map(({ ms }) => ms).sort((x, y) => x - y);
      return (sorted[Math.ceil(0.99 * sorted.length) - 1] ?? 0) > 800;
    },
  },
  avg: {
    rule: { of: 'avg', field: 'ms', window, below: 300 },
    holds: (events) => events.length > 0 && events.reduce((sum, { ms }) => sum + ms, 0) / events.length < 300,
  },
};

function alertTruth(open: OpenFieldDatabase): void {
  let fields: FieldDatabase;
  let storage: Storage;
  let rounds: AlertRounds;
  let now = START;
  const app = { id: 1, appId: 'app1' };
  const written: Written[] = [];
  const random = seededRandom(20_261_028);

  beforeAll(async () => {
    fields = await open({ now: START, from: START - 70 * DAY_MS, until: SPRING + 2 * DAY_MS });
    storage = await openStorage(fields.sql);
    for (const [name, kind] of [
      ['host', 'value'],
      ['ms', 'number'],
    ] as const)
      await declareField(fields.sql, { appId: 1, path: [name], kind, typeName: null, backfill: true });
    await fields.upkeep.everySecond();
    begin();
  });
  afterAll(() => fields.close());

  /** As a process that starts. */
  function begin(): void {
    rounds = new AlertRounds({
      ...{ sql: fields.sql, storage, isLeader: () => true, now: () => now },
      log: pino({ level: 'silent' }),
    });
  }

  const write = async (events: readonly Written[]): Promise<void> => {
    if (events.length === 0) return;
    await fields.write(
      events.map(({ at, typeId, host, ms }) => ({
        ...{ id: fields.newId(at), at, typeId, payload: JSON.stringify({ host, ms }) },
      })),
    );
    written.push(...events);
  };
  const judge = async (minute: number): Promise<void> => {
    now = minute + SETTLE_MS;
    fields.clock.now = now;
    // As maintenance does it all the time: what a write leaves uncounted, and the values of a day.
    await fields.upkeep.everySecond();
    await fields.settle();
    while (!(await rounds.round(minute))) {}
  };
  const add = async (name: string, rule: object, timezone = 'UTC'): Promise<void> => {
    await addAlert(fields.sql, app, {
      ...{ name, rule: JSON.stringify(rule), timezone, webhooks: [], emails: [], alertmanager: null },
      ...{ most: 100, allowPrivate: true, sendsMail: false },
    });
    // As old as the events of the test.
    await fields.sql`UPDATE alert_rules SET created_at = ${new Date(now)} WHERE name = ${name}`;
  };
  const said = async (name: string): Promise<string[]> => {
    const rows = await fields.sql<{ kind: string; series: string; at: Date }[]>`
      SELECT kind, series, window_to AS at FROM alert_transitions JOIN alert_rules ON alert_rules.id = rule_id
       WHERE name = ${name} ORDER BY window_to, series`;
    return rows.map(({ kind, series, at }) => `${at.toISOString()} ${kind} ${series}`);
  };
  const within = (until: number, host: string | null): readonly Written[] =>
    written.filter(
      (one) => one.at >= until - WINDOW * MINUTE_MS && one.at < until && (host === null || one.host === host),
    );

  test('each kind of rule says what is true at each minute, and nothing else', async () => {
    // Hosts that are known before the first minute.
    await write(HOSTS.flatMap((host) => [1, 2].map((typeId) => ({ at: START - 1, typeId, host, ms: 500 }))));
    for (const [name, { rule }] of Object.entries(RULES)) await add(name, { ...rule, for: `${HOLD}m` });
    for (let n = 1; n <= MINUTES; n += 1) {
      const begins = START + (n - 1) * MINUTE_MS;
      // Phases of many events, of slow ones and of none.
      const phase = Math.floor(n / 9) % 4;
      const count = phase === 3 ? 0 : random(4) + (phase === 1 ? 2 : 0);
      const events = Array.from({ length: count }, () => ({
        at: begins + random(MINUTE_MS),
        typeId: random(10) < 4 ? 1 : 2,
        host: HOSTS[phase === 2 || random(2) === 0 ? 0 : 1] ?? 'a',
        ms: phase === 2 && random(5) === 0 ? 2_000 : random(600),
      }));
      await write(events);
      // A process that has stopped for some minutes, and one that starts anew.
      if (n % 40 > 33) continue;
      if (n % 40 === 0) begin();
      await judge(begins + MINUTE_MS);
    }
    await judge(START + MINUTES * MINUTE_MS);
    for (const [name, { holds, isByHost }] of Object.entries(RULES)) {
      const expected: string[] = [];
      for (const host of isByHost ? HOSTS : [null]) {
        let held = 0;
        let isFiring = false;
        for (let n = 1; n <= MINUTES; n += 1) {
          const until = START + n * MINUTE_MS;
          held = holds(within(until, host)) ? held + 1 : 0;
          if (held > HOLD !== isFiring) {
            isFiring = !isFiring;
            const series = host === null ? '' : JSON.stringify(host);
            expected.push(`${new Date(until).toISOString()} ${isFiring ? 'firing' : 'resolved'} ${series}`);
          }
        }
      }
      expect(expected.length, name).toBeGreaterThan(1);
      expect(await said(name), name).toEqual(expected.sort());
    }
    await fields.sql`DELETE FROM alert_rules`;
  }, 90_000);

  test.each([
    // 10:00 in Berlin is an hour later in UTC since the change of autumn, and an hour earlier since that of spring.
    { season: 'winter', day: START, hour: 9, before: 8 },
    { season: 'summer', day: SPRING, hour: 8, before: 9 },
  ])(
    'unusual compares the clock on the wall across a change to $season time',
    async ({ day, hour, before }) => {
      const midnight = Math.floor(day / DAY_MS) * DAY_MS;
      const events: Written[] = [];
      const several = (at: number, count: number): void => {
        for (let n = 0; n < count; n += 1) events.push({ at: at + n * 1_000, typeId: 3, host: 'z', ms: 1 });
      };
      // Two hours later there are five times as many as usual.
      for (let week = 0; week <= 8; week += 1) {
        const start = midnight - week * 7 * DAY_MS + (week === 0 ? hour : before) * HOUR_MS;
        several(start, 20);
        several(start + 2 * HOUR_MS, week === 0 ? 100 : 20);
      }
      await fields.write(events.map(({ at }) => ({ id: fields.newId(at), at, typeId: 3, payload: '{}' })));
      await fields.upkeep.everySecond();
      await fields.settle();
      const trial = async (timezone: string): Promise<AlertTrial | null> =>
        await tryRule(
          { sql: fields.sql, events: storage.reader(fields.sql) },
          { rule: requireRule('{"unusual":true,"type":"type3"}'), appId: 2, timezone },
          { from: midnight + (hour - 0.5) * HOUR_MS, until: midnight + (hour + 4) * HOUR_MS },
        );
      const fires = (found: AlertTrial | null): unknown =>
        found?.firings.map(({ from, value, expected }) => [new Date(from).toISOString(), value, expected]);
      const quarter = (hours: number): string => new Date(midnight + (hours + 0.25) * HOUR_MS).toISOString();
      expect(fires(await trial(BERLIN))).toEqual([[quarter(hour + 2), 100, 20]]);
      // By the clock of UTC the same events come an hour late or early.
      expect(fires(await trial('UTC'))).toEqual(expect.arrayContaining([[quarter(hour), 20, 0]]));
    },
  );
}

describe.each(availableEngines())('alerts on %s', (engine) =>
  alertTruth((time) => fieldDatabase(engine, time)),
);
