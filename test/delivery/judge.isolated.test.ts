/** Rules against a known truth: late events, restarts, and what was said before. */
import { expect, test } from 'vitest';
import { activeAlerts, listAlerts } from '../../src/delivery/alerts/alert-rules.ts';
import { type Episode, firingMinutes, reconcile } from '../../src/delivery/alerts/judge.ts';
import {
  isRuleProblem,
  parseRule,
  partsOf,
  ruleOfSeries,
  ruleProblemText,
} from '../../src/delivery/alerts/rule.ts';
import { tryRule } from '../../src/delivery/alerts/trial.ts';
import { sameLocalTime } from '../../src/storage/counts/timezone.ts';
import type { WindowRequest } from '../../src/storage/counts/windows.ts';
import type { Sql } from '../../src/storage/database/connect.ts';
import type { EventReader } from '../../src/storage/read/event-reader.ts';

const MINUTE = 60_000;
const RECHECKED = 5;

/** Numbers from 0 to 1 that are the same in each run (mulberry32). */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

interface Simulated {
  readonly missed: number;
  readonly wrong: number;
  readonly doubled: number;
  readonly firings: number;
  readonly corrected: number;
}

/** Minutes whose counts grow for up to four minutes, judged each minute but for restarts. */
function simulate(seed: number, minutes: number): Simulated {
  const random = randomOf(seed);
  const counts = new Float64Array(minutes + 1);
  const side = random() < 0.5 ? 'above' : 'below';
  const threshold = 1 + Math.floor(random() * 4);
  const window = 1 + Math.floor(random() * 3);
  const forMinutes = Math.floor(random() * 3);
  const test = (value: number | null): boolean =>
    value !== null && (side === 'above' ? value > threshold : value < threshold);
  const valueAt = (end: number): number => {
    let sum = 0;
    for (let minute = Math.max(0, end - window); minute < end; minute += 1) sum += counts[minute] ?? 0;
    return sum;
  };
  const start = window + forMinutes + RECHECKED;
  const episodes: Episode[] = [];
  const said: { kind: string; at: number; id: string }[] = [];
  const corrected = new Set<string>();
  let judgedTo = start - 1;
  let back = 0;
  for (let clock = 0; clock <= minutes; clock += 1) {
    // Bursts and silence, and events that are up to three minutes late.
    const load = random() < 0.15 ? 8 : random() < 0.3 ? 0 : 2;
    for (let n = 0; n < load; n += 1) {
      const minute = clock - 1 - Math.floor(random() * 4);
      if (minute >= 0) counts[minute] = (counts[minute] ?? 0) + 1;
    }
    // A process that is away, and clocks that go back for some minutes or are a minute ahead.
    if (random() < 0.01) back = 1 + Math.floor(random() * 4);
    const now = clock + (random() < 0.02 ? 1 : 0);
    back -= 1;
    if (now < start || now <= judgedTo || now > minutes || back >= 0 || random() < 0.1) continue;
    const from = Math.max(start, judgedTo - (RECHECKED - 2));
    const first = from - forMinutes;
    const values = Array.from({ length: now - first + 1 }, (_, index) => valueAt(first + index));
    const judged = { series: '', values, first: first * MINUTE };
    const options = { test, forMs: forMinutes * MINUTE, from: from * MINUTE };
    const reaching = episodes.filter(({ to }) => to === null || to > from * MINUTE);
    const before = [...reaching];
    for (const { kind, at, of } of reconcile(judged, options, reaching)) {
      const id = kind === 'firing' ? `${said.length}` : (of?.id ?? '');
      if (kind === 'firing' && of !== null) of.id = id;
      if (kind === 'corrected') corrected.add(id);
      said.push({ kind, at, id });
    }
    for (const one of before) if (!reaching.includes(one)) episodes.splice(episodes.indexOf(one), 1);
    for (const one of reaching) if (!episodes.includes(one)) episodes.push(one);
    judgedTo = now;
  }
  const last = judgedTo - RECHECKED;
  const all = Array.from({ length: judgedTo + 1 }, (_, end) =>
    end < start - forMinutes ? null : valueAt(end),
  );
  const truth = firingMinutes({ series: '', values: all }, test, forMinutes * MINUTE);
  const firings = said.filter(({ kind, id }) => kind === 'firing' && !corrected.has(id));
  let missed = 0;
  for (let end = start; end <= last; end += 1) {
    if (truth[end] !== 1 || truth[end - 1] === 1) continue;
    let stop = end;
    while (truth[stop + 1] === 1) stop += 1;
    const isSaid = episodes.some(
      ({ from, to }) => from <= stop * MINUTE && (to ?? Number.POSITIVE_INFINITY) > end * MINUTE,
    );
    if (!isSaid) missed += 1;
  }
  const wrong = firings.filter(({ at }) => at / MINUTE <= last && truth[at / MINUTE] !== 1).length;
  const doubled = firings.length - new Set(firings.map(({ at }) => at)).size;
  return { missed, wrong, doubled, firings: firings.length, corrected: corrected.size };
}

test('in a million minutes with late events, restarts and steps of the clock nothing is missed, wrong and left so, or said twice', () => {
  const sum = { missed: 0, wrong: 0, doubled: 0, firings: 0, corrected: 0 };
  for (let seed = 1; seed <= 1_000; seed += 1) {
    const one = simulate(seed, 1_000);
    for (const key of Object.keys(sum) as (keyof typeof sum)[]) sum[key] += one[key];
  }
  expect({ ...sum, firings: 0, corrected: 0 }).toEqual({
    missed: 0,
    wrong: 0,
    doubled: 0,
    firings: 0,
    corrected: 0,
  });
  expect(sum.firings).toBeGreaterThan(10_000);
  expect(sum.corrected).toBeGreaterThan(100);
});

test('a local time that daylight saving time skips is left out, one that comes twice is the earlier', () => {
  const zone = 'Europe/Berlin';
  const at = (text: string): number => Date.parse(text);
  // 2026-03-29 has no 02:30 in Berlin; 2026-10-25 has two.
  expect(sameLocalTime(zone, at('2026-04-05T00:30:00Z'), 7)).toBeNull();
  expect(sameLocalTime(zone, at('2026-04-05T06:00:00Z'), 7)).toBe(at('2026-03-29T06:00:00Z'));
  expect(sameLocalTime(zone, at('2026-04-05T06:00:00Z'), 14)).toBe(at('2026-03-22T07:00:00Z'));
  expect(sameLocalTime(zone, at('2026-11-01T01:30:00Z'), 7)).toBe(at('2026-10-25T00:30:00Z'));
  expect(sameLocalTime('UTC', at('2026-11-01T01:30:00Z'), 7)).toBe(at('2026-10-25T01:30:00Z'));
});

test.each([
  ['{"of":"cuont","window":"5m","above":1}', 'did you mean "count"'],
  ['{"of":"count","windw":"5m","above":1}', 'did you mean "window"'],
  ['{"of":"count","window":"5 minutes","above":1}', '"5m"'],
  ['{"of":"count","window":"5m"}', 'above'],
  ['{"of":"count","window":"5m","above":1,"below":2}', 'below'],
  ['{"of":"count","window":"5m","above":"1"}', 'must be a number'],
  ['{"of":"sum","window":"5m","above":1}', '"field"'],
  ['{"of":"count","window":"30d","above":1}', 'at most 7 days'],
  ['{"of":"count","window":"5m","above":1,"filter":"status>=500"}', 'one of some values'],
  ['{"of":"count","window":"5m","above":1,"filter":"status"}', 'column'],
  ['{"absent":1,"window":"5m"}', 'must be true'],
  ['{"ratio":{"typ":"a"},"to":{},"window":"5m","above":1}', 'did you mean "type"'],
  ['{"unusual":true,"window":"1h"}', '"15m"'],
  ['{"of":"count"', 'must be JSON'],
  ['[]', 'must be an object'],
])('the rule %s is refused with what was expected', (text, expected) => {
  const rule = parseRule(text);
  expect(isRuleProblem(rule) ? ruleProblemText(rule) : '').toContain(expected);
});

test('of many firings a trial counts and draws all, and keeps the last ones', async () => {
  const rule = parseRule('{"of":"count","window":"1m","above":0}');
  if (isRuleProblem(rule)) throw new Error(rule.problem);
  const events = {
    firstWindow: async () => 0,
    // Every other minute has an event.
    windows: async (requests: readonly WindowRequest[]) =>
      requests.map(({ first, last, stepMs }) => {
        const values = Float64Array.from({ length: (last - first) / stepMs + 1 }, (_, at) => at % 2);
        return new Map([['', values]]);
      }),
  };
  const until = Date.parse('2026-04-01T00:00:00Z');
  const interval = { from: until - 10_000 * MINUTE, until };
  const place = { sql: null as unknown as Sql, events: events as unknown as EventReader };
  const trial = await tryRule(place, { rule, appId: 1, timezone: 'UTC' }, interval);
  expect(trial?.total).toBe(5_000);
  const begun = trial?.firings.map(({ from }) => from) ?? [];
  expect(begun).toEqual(Array.from({ length: 1_000 }, (_, at) => until - (1_999 - 2 * at) * MINUTE));
  expect(trial?.fires.every((fires) => fires)).toBe(true);
});

test('a trial of what is unusual in a month lets others have the event loop in between', async () => {
  const rule = parseRule('{"unusual":true}');
  if (isRuleProblem(rule)) throw new Error(rule.problem);
  // What it reads, at once: whoever has turns meanwhile has them of the computation.
  const events = {
    firstWindow: async () => 0,
    appSpan: async () => ({ firstEventAt: new Date(0), lastEventAt: null }),
    windows: async (requests: readonly WindowRequest[]) =>
      requests.map(
        ({ first, last, stepMs }) => new Map([['', new Float64Array((last - first) / stepMs + 1)]]),
      ),
  };
  const until = Date.parse('2026-04-01T00:00:00Z');
  const interval = { from: until - 30 * 1_440 * MINUTE, until };
  // A rule on counts that names no type asks for nothing else.
  const place = { sql: null as unknown as Sql, events: events as unknown as EventReader };
  const [trial, turns] = await countTurns(() =>
    tryRule(place, { rule, appId: 1, timezone: 'Europe/Berlin' }, interval),
  );
  expect(trial?.total).toBe(0);
  expect(turns).toBeGreaterThan(10);
});

test.each([
  ['that are judged', async (sql: Sql): Promise<readonly unknown[]> => (await activeAlerts(sql)).alerts],
  ['of a list', async (sql: Sql): Promise<readonly unknown[]> => await listAlerts(sql, 1)],
])('thousands of rules %s are read in slices, and others have the event loop in between', async (_, read) => {
  const rule = '{"of":"count","window":"5m","above":1,"for":"10m"}';
  const rows = Array.from({ length: 4_000 }, (__, id) => ({ id, rule, evaluatedAt: null, problem: null }));
  // It answers at once, whatever it is asked: whoever has turns meanwhile has them of the reading.
  const sql = (async () => rows) as unknown as Sql;
  const [found, turns] = await countTurns(() => read(sql));
  expect(found).toHaveLength(4_000);
  expect(turns).toBeGreaterThan(5);
});

/** Does something, and counts the turns of the event loop that others have meanwhile. */
async function countTurns<T>(work: () => Promise<T>): Promise<readonly [T, number]> {
  let [turns, isOver] = [0, false];
  const others = (): void => {
    turns += 1;
    if (!isOver) setImmediate(others);
  };
  setImmediate(others);
  const outcome = await work();
  isOver = true;
  return [outcome, turns];
}

test.each([
  [{ of: 'count', by: 'a.b', window: '5m', above: 1 }, ['a', 'b'], '"x,y"'],
  [{ of: 'p99', field: 'ms', type: 't', by: 'n', window: '5m', above: 1 }, ['n'], '5'],
  [{ absent: true, by: '-a', window: '1m' }, ['-a'], 'null'],
  [{ ratio: { type: 't' }, to: {}, by: 'a', window: '1h', below: 2 }, ['a'], 'true'],
])('the rule %j of one value of %j is that of the events with it', (fields, path, series) => {
  const rule = parseRule(JSON.stringify(fields));
  if (isRuleProblem(rule)) throw new Error(ruleProblemText(rule));
  const own = ruleOfSeries(rule, series);
  for (const { filter } of partsOf(own)) expect(filter).toMatchObject({ path, values: [series] });
  expect({ ...own, source: 0, measured: 0, to: 0 }).toEqual({
    ...rule,
    by: null,
    source: 0,
    measured: 0,
    to: 0,
  });
  expect(ruleOfSeries(rule, '')).toBe(rule);
});
