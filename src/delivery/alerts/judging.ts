/**
 * Judges the rules of an app. Values are dropped before the next rule is read. What changes and the messages that tell of it are stored in
 * one transaction, with the minute that each rule has come to: after a crash, or beside another process that still believes that it does
 * the maintenance, nothing is lost and nothing is said twice.
 */
import { randomUUID } from 'node:crypto';
import { TimeSlice } from '../../base/time-slice.ts';
import { DAY_MS, MINUTE_MS } from '../../base/time-units.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { type ActiveRule, isAhead, RECHECKED_MINUTES } from './alert-rules.ts';
import { type Episode, reconcile, type SeriesValues, type Transition } from './judge.ts';
import type { Said } from './messages.ts';
import { firesBelow } from './rule.ts';
import { type AlertPlace, tell } from './telling.ts';
import { readValues, TOO_MANY_VALUES, testOf, type Wanted, windowsOf, withTypes } from './values.ts';

/** Minutes that one round judges of a rule that was not judged for a while. */
const MOST_MINUTES = 60;
/** A rule that was not judged for longer goes on here. */
const LONGEST_GAP_MS = DAY_MS;
/** Windows of statistics for all rules of an app in one round. */
export const MOST_WINDOWS_OF_APP = 1_500;
/** Transitions of a rule, and of all rules of an app, in one round. The others are said in the next ones. */
export const MOST_TRANSITIONS_OF_RULE = 500;
export const MOST_TRANSITIONS_OF_APP = 2_000;

const PROBLEMS = {
  'not counted':
    'The counts of a declared field do not answer the rule yet: see tidemark field list for whether it is declared and complete.',
  'too many values': `The rule ${TOO_MANY_VALUES}.`,
  'too many reads': `The rules on statistics of this app read more than ${MOST_WINDOWS_OF_APP} windows a minute, one for each minute of "for": this one is not judged.`,
  'too many transitions': `More than ${MOST_TRANSITIONS_OF_RULE} values change in one minute: the others follow in the next minutes.`,
} as const;

/** A rule with what is needed to judge it. */
interface Judging {
  readonly alert: ActiveRule;
  readonly wanted: Wanted;
  /** The first minute that is judged. */
  readonly from: number;
  readonly episodes: ReadonlyMap<string, Episode[]>;
}

interface Outcome {
  readonly judging: Judging;
  readonly said: readonly Said[];
  readonly problem: string | null;
  /** Whether the rule has come to the last minute; otherwise it is tried again with the next one. */
  readonly isJudged: boolean;
  /** Series → its open episode, of those that changed. */
  readonly open: ReadonlyMap<string, { readonly id: string; readonly since: number } | null>;
}

/**
 * Judges the rules of an app up to a minute.
 * @param options.alerts all of one app
 * @param count is called with what is said
 * @returns false if some of them have further minutes to go
 */
export async function judgeApp(
  options: AlertPlace,
  alerts: readonly ActiveRule[],
  minute: number,
  count: (said: readonly Said[]) => void,
): Promise<boolean> {
  const { sql, storage } = options;
  const judged = await prepare(sql, alerts, minute);
  const budget = { reads: MOST_WINDOWS_OF_APP, transitions: MOST_TRANSITIONS_OF_APP };
  // Counts of all events are read together; what has values or statistics is read alone, and dropped before the next.
  const isPlain = ({ wanted: { rule } }: Judging): boolean => rule.by === null && windowsOf(rule, 1) === 0;
  const parts = [judged.filter(isPlain), ...judged.filter((one) => !isPlain(one)).map((one) => [one])];
  for (const part of parts.filter(({ length }) => length > 0)) {
    const outcomes = await storage.inSnapshot(sql, (events) => judge(events, part, budget));
    count(await store(options, outcomes));
  }
  return judged.every(({ wanted: { rule, last } }) => last >= minute - rule.delayMs);
}

async function prepare(sql: Sql, alerts: readonly ActiveRule[], minute: number): Promise<readonly Judging[]> {
  const minutes = alerts.map((alert) => {
    const { from, last } = minutesOf(alert, minute - alert.parsed.delayMs);
    const { appId, timezone, parsed: rule } = alert;
    const first = Math.min(from, last - (RECHECKED_MINUTES - 1) * MINUTE_MS) - rule.forMs;
    return { alert, from, rule, appId, timezone, first, last };
  });
  const oldest = Math.min(...minutes.map(({ from }) => from));
  const [episodes, typed] = await Promise.all([episodesOf(sql, alerts, oldest), withTypes(sql, minutes)]);
  return typed.map(({ alert, from, ...wanted }) => {
    return { alert, wanted, from, episodes: episodes.get(alert.id) ?? new Map() };
  });
}

/** What was said of each rule and series that reaches into the minutes from the oldest one on. */
async function episodesOf(
  sql: Sql,
  alerts: readonly ActiveRule[],
  oldest: number,
): Promise<ReadonlyMap<number, ReadonlyMap<string, Episode[]>>> {
  const ids = alerts.map(({ id }) => id);
  const all = new Map<number, Map<string, Episode[]>>();
  const listOf = (rule: number, series: string): Episode[] => {
    const ofRule = all.get(rule) ?? new Map<string, Episode[]>();
    all.set(rule, ofRule);
    const list = ofRule.get(series) ?? [];
    ofRule.set(series, list);
    return list;
  };
  const open = await sql<Began[]>`
    SELECT state.rule_id AS rule, state.series, since AS from, NULL AS to, transition AS id, value
      FROM alert_states AS state LEFT JOIN alert_transitions AS began ON began.public_id = transition
     WHERE state.rule_id = ANY(${ids})`;
  const ended = await sql<Began[]>`
    SELECT ended.rule_id AS rule, ended.series, began.window_to AS from, ended.window_to AS to, ended.of_transition AS id, began.value
      FROM alert_transitions AS ended LEFT JOIN alert_transitions AS began ON began.public_id = ended.of_transition
     WHERE ended.rule_id = ANY(${ids}) AND ended.kind = 'resolved' AND ended.corrected_at IS NULL
       AND ended.at >= ${new Date(oldest)} ORDER BY ended.id`;
  for (const { rule, series, from, to, id, value } of [...open, ...ended])
    listOf(rule, series).push({ id, from: from?.getTime() ?? 0, to: to?.getTime() ?? null, value });
  for (const ofRule of all.values()) for (const list of ofRule.values()) list.sort((a, b) => a.from - b.from);
  return all;
}

/** What was said of a series, with its end where that was said. */
interface Began {
  readonly rule: number;
  readonly series: string;
  readonly from: Date | null;
  readonly to: Date | null;
  readonly id: string;
  readonly value: number | null;
}

/** Stores what changed, of the rules that no other process has judged meanwhile. @returns what is said */
async function store(
  { sql, now }: Pick<AlertPlace, 'sql' | 'now'>,
  outcomes: readonly Outcome[],
): Promise<readonly Said[]> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const mine = await advance(tx, outcomes);
    const changed = outcomes.filter(({ judging, said }) => said.length > 0 && mine.has(judging.alert.id));
    if (changed.length === 0) return [];
    await storeStates(tx, changed);
    const told = changed.map(({ judging, said }) => ({ alert: judging.alert, said }));
    await tell(tx, told, now());
    return told.flatMap(({ said }) => said);
  });
}

async function storeStates(tx: Transaction, outcomes: readonly Outcome[]): Promise<void> {
  const rows = outcomes.flatMap(({ judging, open }) =>
    [...open].map(([series, state]) => ({ rule: judging.alert.id, series, state })),
  );
  const of = <T>(pick: (row: (typeof rows)[number]) => T): T[] => rows.map(pick);
  const given = tx`
    unnest(${of(({ rule }) => rule)}::integer[], ${of(({ series }) => series)}::text[],
           ${of(({ state }) => state && new Date(state.since).toISOString())}::timestamptz[], ${of(({ state }) => state?.id ?? null)}::text[])
      AS given (rule_id, series, since, transition)`;
  await tx`
    DELETE FROM alert_states USING ${given}
     WHERE alert_states.rule_id = given.rule_id AND alert_states.series = given.series AND given.since IS NULL`;
  await tx`
    INSERT INTO alert_states (rule_id, series, state, since, transition)
    SELECT rule_id, series, 'firing', since, transition FROM ${given} WHERE since IS NOT NULL
    ON CONFLICT (rule_id, series) DO UPDATE SET since = EXCLUDED.since, transition = EXCLUDED.transition`;
}

/** The minutes of a rule that are due: those that are new, and some before them. */
function minutesOf(
  { evaluatedAt: judgedAt, since }: ActiveRule,
  minute: number,
): { readonly from: number; readonly last: number } {
  const evaluatedAt = isAhead(judgedAt, minute) ? null : judgedAt;
  const begins = Math.ceil(since.getTime() / MINUTE_MS) * MINUTE_MS;
  const before = Math.max(evaluatedAt?.getTime() ?? minute - MINUTE_MS, minute - LONGEST_GAP_MS);
  const last = Math.min(minute, before + MOST_MINUTES * MINUTE_MS);
  const again = evaluatedAt === null ? before + MINUTE_MS : before - (RECHECKED_MINUTES - 2) * MINUTE_MS;
  return { from: Math.min(Math.max(again, Math.min(begins, before + MINUTE_MS)), last), last };
}

/** What is left of the reads and transitions of an app in a round. */
interface Budget {
  reads: number;
  transitions: number;
}

async function judge(
  events: EventReader,
  judged: readonly Judging[],
  budget: Budget,
): Promise<readonly Outcome[]> {
  const readable = judged.filter(({ wanted: { rule, first, last } }) => {
    const reads = windowsOf(rule, (last - first) / MINUTE_MS + 1);
    if (reads > budget.reads) return false;
    budget.reads -= reads;
    return true;
  });
  const values = await readValues(
    events,
    readable.map(({ wanted }) => wanted),
  );
  const outcomes: Outcome[] = [];
  for (const judging of judged) {
    const index = readable.indexOf(judging);
    const own = index < 0 ? 'too many reads' : (values[index] ?? 'not counted');
    if (typeof own === 'string') {
      const nothing = { said: [], open: new Map(), isJudged: false };
      outcomes.push({ judging, problem: PROBLEMS[own], ...nothing });
      continue;
    }
    const most = Math.min(MOST_TRANSITIONS_OF_RULE, budget.transitions);
    const found = await judgeRule(judging, own, most);
    budget.transitions -= found.said.length;
    outcomes.push({ judging, isJudged: true, ...found });
  }
  return outcomes;
}

/** @param most transitions that are said now; the series beyond stay as they were, and are judged again with the next minute */
async function judgeRule(
  judging: Judging,
  values: readonly SeriesValues[],
  most: number,
): Promise<Pick<Outcome, 'said' | 'open' | 'problem'>> {
  const { alert, wanted, from, episodes } = judging;
  const { rule } = wanted;
  // A value of a field that is new was not absent before. Late events begin no absence: no minute that was judged has a new one.
  const firesFrom =
    rule.by !== null &&
    firesBelow(rule) &&
    alert.evaluatedAt !== null &&
    !isAhead(alert.evaluatedAt, wanted.last)
      ? alert.evaluatedAt.getTime() + MINUTE_MS
      : from;
  const said: Said[] = [];
  const open = new Map<string, { id: string; since: number } | null>();
  const known = new Set(values.map(({ series }) => series));
  // A series that has no values any more fires no more.
  const length = (wanted.last - wanted.first) / MINUTE_MS + 1;
  const gone = [...episodes.keys()].filter((series) => !known.has(series));
  const nothing = gone.map((series) => ({ series, values: new Array<null>(length).fill(null) }));
  const slices = new TimeSlice();
  for (const own of [...values, ...nothing]) {
    if (slices.isOverAfterStep) await slices.next();
    const before = [...(episodes.get(own.series) ?? [])];
    const options = { test: testOf(rule), forMs: rule.forMs, from, firesFrom };
    const transitions = reconcile({ ...own, first: wanted.first }, options, before);
    if (transitions.length === 0) continue;
    if (said.length + transitions.length > most)
      return { said, open, problem: PROBLEMS['too many transitions'] };
    for (const one of transitions) said.push(sayingOf(one));
    const now = before.find(({ to }) => to === null);
    open.set(own.series, now === undefined || now.id === null ? null : { id: now.id, since: now.from });
  }
  return { said, open, problem: null };
}

/** Gives a transition its id, and an episode that begins the same. */
function sayingOf({ kind, series, at, value, limits, of }: Transition): Said {
  const id = randomUUID();
  if (kind === 'firing' && of !== null) of.id = id;
  return {
    ...{ id, kind, series, at, value, limits },
    since: of?.from ?? at,
    earlierValue: of?.value ?? null,
    of: kind === 'firing' ? null : (of?.id ?? null),
  };
}

/** Moves rules on to the minute that they were judged to. @returns those that nobody else has judged since they were read */
async function advance(tx: Transaction, outcomes: readonly Outcome[]): Promise<ReadonlySet<number>> {
  const of = <T>(pick: (outcome: Outcome) => T): T[] => outcomes.map(pick);
  const rows = await tx<{ id: number }[]>`
    UPDATE alert_rules SET evaluated_at = coalesce(given.minute, evaluated_at), problem = given.problem
      FROM unnest(${of(({ judging }) => judging.alert.id)}::integer[],
                  ${of(({ judging }) => judging.alert.evaluatedAt?.toISOString() ?? null)}::timestamptz[],
                  ${of(({ judging, isJudged }) => (isJudged ? new Date(judging.wanted.last).toISOString() : null))}::timestamptz[],
                  ${of(({ problem }) => problem)}::text[]) AS given (id, before, minute, problem)
     WHERE alert_rules.id = given.id AND evaluated_at IS NOT DISTINCT FROM given.before AND NOT is_paused
    RETURNING alert_rules.id`;
  return new Set(rows.map(({ id }) => id));
}
