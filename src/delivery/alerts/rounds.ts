/**
 * Rounds of the alerts of an installation: once a minute the process that does the maintenance judges all rules, app by app: those
 * that took least the last time first, so that no app waits for a costly one. Values are dropped before the next rule is read.
 * What changes and the messages that tell of it are stored in one transaction, with the minute that each rule has come to: after a
 * crash, or beside another process that still believes that it does the maintenance, nothing is lost and nothing is said twice.
 */
import { randomUUID } from 'node:crypto';
import type { Logger } from 'pino';
import { annotateFiring, endFiring } from '../../apps/annotations.ts';
import { Rounds } from '../../base/rounds.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import { DAY_MS, MINUTE_MS } from '../../base/time-units.ts';
import { errorCode, type Sql, type Transaction } from '../../storage/database/connect.ts';
import type { EventReader, Storage } from '../../storage/storage.ts';
import { areDeliveriesStopped } from '../restored.ts';
import { type ActiveRule, type AlertRule, activeAlerts, isAhead, RECHECKED_MINUTES } from './alert-rules.ts';
import { type Episode, firingMinutes, reconcile, type SeriesValues, type Transition } from './judge.ts';
import {
  alertmanagerMessages,
  annotationOf,
  type MessageContext,
  markOf,
  messagesOf,
  type Said,
  thresholdOf,
  type Waiting,
} from './messages.ts';
import { isRuleProblem, type Rule, ruleProblemText } from './rule.ts';
import { readValues, TOO_MANY_VALUES, testOf, type Values, type Wanted, windowsOf } from './values.ts';

export interface AlertRoundsOptions {
  /** A pool of upkeep. */
  readonly sql: Sql;
  readonly storage: Storage;
  /** Whether this process judges. */
  readonly isLeader: () => boolean;
  /** PUBLIC_URL */
  readonly publicUrl: string;
  readonly log: Logger;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

/** For metrics. */
export interface AlertStats {
  /** Rules that were judged, each time. */
  evaluations: number;
  /** Rounds that failed. */
  failures: number;
  /** Milliseconds of the last round. */
  roundMs: number;
  readonly transitions: { firing: number; resolved: number; corrected: number };
}

const LOOK_MS = 1_000;
/** A minute is judged so long after its end: most events are committed by then. */
export const SETTLE_MS = 5_000;
/** Minutes that one round judges of a rule that was not judged for a while. */
const MOST_MINUTES = 60;
/** A rule that was not judged for longer goes on here. */
const LONGEST_GAP_MS = DAY_MS;
/** Firings of the last days are looked at again, this often, so many at once. */
const CORRECTED_FOR_MS = 7 * DAY_MS;
const CORRECT_EVERY_MINUTES = 5;
const MOST_CORRECTED = 500;
/** Alertmanager is told of what still fires. */
const REFRESH_EVERY_MINUTES = 2;
/** Firings of one rule in one round that are marked on the chart. */
const MOST_ANNOTATED = 10;
/** Windows of statistics for all rules of an app in one round. */
export const MOST_WINDOWS_OF_APP = 1_500;
/** Transitions of a rule, and of all rules of an app, in one round. The others are said in the next ones. */
export const MOST_TRANSITIONS_OF_RULE = 500;
export const MOST_TRANSITIONS_OF_APP = 2_000;
/** Webhooks that are told what is current, at once. */
const MOST_RESUMED = 100;
/** Messages of an app that wait to be sent; beyond it none is made. */
export const MOST_WAITING_OF_APP = 10_000;

const PROBLEMS = {
  'not counted':
    'The counts of a declared field do not answer the rule yet: see tidemark field list for whether it is declared and complete.',
  'too many values': `The rule ${TOO_MANY_VALUES}.`,
  'too many reads': `The rules on statistics of this app read more than ${MOST_WINDOWS_OF_APP} windows a minute, one for each minute of "for": this one is not judged.`,
  'too many transitions': `More than ${MOST_TRANSITIONS_OF_RULE} values change in one minute: the others follow in the next minutes.`,
  'too many messages': `${MOST_WAITING_OF_APP} messages of this app wait to be sent: new ones are dropped until some have gone.`,
} as const;

/** A rule with what is needed to judge it. */
interface Judging {
  readonly alert: AlertRule;
  readonly rule: Rule;
  readonly wanted: Wanted;
  /** The first minute that is judged. */
  readonly from: number;
  readonly episodes: ReadonlyMap<string, Episode[]>;
  readonly app: AppNames;
}

interface AppNames {
  readonly appId: string;
  readonly name: string;
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

export class AlertRounds {
  readonly #options: AlertRoundsOptions;
  readonly stats: AlertStats = {
    evaluations: 0,
    failures: 0,
    roundMs: 0,
    transitions: { firing: 0, resolved: 0, corrected: 0 },
  };
  readonly #rounds: Rounds;
  #lastMinute = 0;
  #correctedUpTo = 0;
  /** App → milliseconds that its rules took the last time. */
  #took = new Map<number, number>();

  constructor(options: AlertRoundsOptions) {
    this.#options = options;
    this.#rounds = new Rounds({
      work: () => this.#look(),
      pauseMs: () => LOOK_MS,
      onFailure: (error, isFirst) => {
        this.stats.failures += 1;
        const code = errorCode(error);
        if (isFirst) options.log.warn({ code, err: error }, 'alert: rules could not be judged, retrying');
      },
    });
  }

  start(): void {
    this.#rounds.start();
  }

  /** Waits for the current round; no other begins. */
  async stop(): Promise<void> {
    await this.#rounds.stop();
  }

  async #look(): Promise<void> {
    const { isLeader, now } = this.#options;
    const minute = Math.floor((now() - SETTLE_MS) / MINUTE_MS) * MINUTE_MS;
    if (!isLeader()) return;
    try {
      if (minute === this.#lastMinute) return;
      const startedAt = performance.now();
      const isDone = await this.round(minute);
      this.stats.roundMs = performance.now() - startedAt;
      if (isDone) this.#lastMinute = minute;
    } finally {
      await this.#tellResumed();
    }
  }

  /**
   * Judges all rules up to a minute.
   * @returns false if some rules have further minutes to go
   */
  async round(minute: number): Promise<boolean> {
    const { sql } = this.#options;
    const due = (await activeAlerts(sql)).filter(
      ({ evaluatedAt, parsed }) =>
        evaluatedAt === null ||
        evaluatedAt.getTime() < lastMinute(parsed, minute) ||
        isAhead(evaluatedAt, minute),
    );
    if (due.length === 0 || (await areDeliveriesStopped(sql))) return true;
    const apps = new Map<number, ActiveRule[]>();
    for (const alert of due) apps.set(alert.appId, [...(apps.get(alert.appId) ?? []), alert]);
    const took = new Map<number, number>();
    let isDone = true;
    let failure: unknown = null;
    for (const [appId, alerts] of [...apps].sort(([a], [b]) => this.#tookOf(a) - this.#tookOf(b))) {
      const startedAt = performance.now();
      try {
        isDone = (await this.#roundOfApp(alerts, minute)) && isDone;
      } catch (error) {
        failure ??= error;
      }
      took.set(appId, performance.now() - startedAt);
    }
    this.#took = took;
    if (failure !== null) throw failure;
    if (!isDone) return false;
    const minutes = minute / MINUTE_MS;
    if (minutes % CORRECT_EVERY_MINUTES === 0) await this.#correct(minute);
    if (minutes % REFRESH_EVERY_MINUTES === 0) await this.#refresh(minute);
    return true;
  }

  #tookOf(appId: number): number {
    return this.#took.get(appId) ?? 0;
  }

  /** Judges the rules of an app. @returns false if some of them have further minutes to go */
  async #roundOfApp(alerts: readonly ActiveRule[], minute: number): Promise<boolean> {
    const { storage } = this.#options;
    const judged = await this.#prepare(alerts, minute);
    const budget = { reads: MOST_WINDOWS_OF_APP, transitions: MOST_TRANSITIONS_OF_APP };
    // Counts of all events are read together; what has values or statistics is read alone, and dropped before the next.
    const isPlain = ({ rule }: Judging): boolean => rule.by === null && windowsOf(rule, 1) === 0;
    const parts = [judged.filter(isPlain), ...judged.filter((one) => !isPlain(one)).map((one) => [one])];
    for (const part of parts.filter(({ length }) => length > 0))
      await this.#commit(
        await storage.inSnapshot(this.#options.sql, (events) => judge(events, part, budget)),
      );
    this.stats.evaluations += judged.length;
    return judged.every(({ rule, wanted }) => wanted.last >= lastMinute(rule, minute));
  }

  async #prepare(alerts: readonly ActiveRule[], minute: number): Promise<readonly Judging[]> {
    const { sql } = this.#options;
    const [episodes, types, apps] = await Promise.all([
      this.#episodes(alerts, minute),
      typesOf(sql, alerts),
      namesOf(sql, alerts),
    ]);
    // Rules of an earlier release that are not accepted any more.
    const wrong = alerts.flatMap(({ id, problem, parsed }) => {
      const text = isRuleProblem(parsed) ? ruleProblemText(parsed) : problem;
      return text === problem || text === null ? [] : [{ id, problem: text }];
    });
    if (wrong.length > 0) await noteProblems(sql, wrong);
    return alerts.flatMap((alert): Judging[] => {
      const { parsed: rule } = alert;
      const app = apps.get(alert.appId);
      if (isRuleProblem(rule) || app === undefined) return [];
      const { from, last } = minutesOf(alert, lastMinute(rule, minute));
      const first = Math.min(from, last - (RECHECKED_MINUTES - 1) * MINUTE_MS) - rule.forMs;
      const { appId, timezone } = alert;
      const wanted = { rule, appId, timezone, first, last, types: types.get(appId) ?? new Map() };
      return [{ alert, rule, wanted, from, app, episodes: episodes.get(alert.id) ?? new Map() }];
    });
  }

  /** What was said of each rule and series that reaches into the minutes that are judged. */
  async #episodes(
    alerts: readonly ActiveRule[],
    minute: number,
  ): Promise<ReadonlyMap<number, ReadonlyMap<string, Episode[]>>> {
    const { sql } = this.#options;
    const ids = alerts.map(({ id }) => id);
    const oldest = Math.min(
      ...alerts.map((alert) => minutesOf(alert, lastMinute(alert.parsed, minute)).from),
    );
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
    for (const ofRule of all.values())
      for (const list of ofRule.values()) list.sort((a, b) => a.from - b.from);
    return all;
  }

  /** Stores what changed, of the rules that no other process has judged meanwhile. */
  async #commit(outcomes: readonly Outcome[]): Promise<void> {
    const { sql, now } = this.#options;
    const at = now();
    const stored = await sql.begin('isolation level read committed', async (tx) => {
      const mine = await advance(tx, outcomes);
      const changed = outcomes.filter(({ judging, said }) => said.length > 0 && mine.has(judging.alert.id));
      if (changed.length > 0) await this.#store(tx, changed, at);
      return { changed };
    });
    for (const { said } of stored.changed) for (const { kind } of said) this.stats.transitions[kind] += 1;
  }

  /** Stores what is said of rules of one app. */
  async #store(tx: Transaction, outcomes: readonly Outcome[], at: number): Promise<void> {
    const states = outcomes.flatMap(({ judging, open }) =>
      [...open].map(([series, state]) => ({ rule: judging.alert.id, series, state })),
    );
    const rows = states.map(({ rule, series, state }) => {
      return {
        rule,
        series,
        since: state && new Date(state.since).toISOString(),
        transition: state?.id ?? null,
      };
    });
    const given = tx`
      unnest(${rows.map(({ rule }) => rule)}::integer[], ${rows.map(({ series }) => series)}::text[],
             ${rows.map(({ since }) => since)}::timestamptz[], ${rows.map(({ transition }) => transition)}::text[])
        AS given (rule_id, series, since, transition)`;
    await tx`
      DELETE FROM alert_states USING ${given}
       WHERE alert_states.rule_id = given.rule_id AND alert_states.series = given.series AND given.since IS NULL`;
    await tx`
      INSERT INTO alert_states (rule_id, series, state, since, transition)
      SELECT rule_id, series, 'firing', since, transition FROM ${given} WHERE since IS NOT NULL
      ON CONFLICT (rule_id, series) DO UPDATE SET since = EXCLUDED.since, transition = EXCLUDED.transition`;
    await this.#tell(
      tx,
      outcomes.map(({ judging, said }) => ({ ...judging, said })),
      at,
    );
  }

  /** Stores transitions of rules of one app, their marks on the chart and their messages. */
  async #tell(tx: Transaction, told: readonly Told[], at: number): Promise<void> {
    await insertTransitions(tx, told, at);
    for (const { alert, rule, said } of told) await annotate(tx, { alert, rule }, said);
    const active = await activeWebhooks(tx, [...new Set(told.flatMap(({ alert }) => alert.webhooks))]);
    const messages = told.map((one): OfRule => {
      const webhooks = one.alert.webhooks.filter((webhook) => active.has(webhook));
      const context = this.#contextOf({ ...one, alert: { ...one.alert, webhooks } }, at);
      return { alert: one.alert, messages: messagesOf(context, one.said) };
    });
    await insertMessages(tx, messages, at);
  }

  /** Tells webhooks that go on what is current: what still fires, and the end of what they were told of before they stopped. */
  async #tellResumed(): Promise<void> {
    const { sql } = this.#options;
    const resumed = await sql<(Resumed & { readonly appId: number })[]>`
      SELECT webhooks.id, app_id AS "appId", webhooks.public_id AS "webhookId", stopped_after AS after
        FROM webhooks JOIN apps ON apps.id = app_id
       WHERE state = 'active' AND stopped_after IS NOT NULL AND removed_at IS NULL AND suspended_at IS NULL
       ORDER BY webhooks.id LIMIT ${MOST_RESUMED}`;
    if (resumed.length === 0 || (await areDeliveriesStopped(sql))) return;
    const alerts = await activeAlerts(sql);
    const apps = await namesOf(sql, alerts);
    let failure: unknown = null;
    for (const { id, appId, webhookId, after } of resumed) {
      const own = alerts.filter((one) => one.appId === appId && one.webhooks.includes(webhookId));
      try {
        await this.#tellCurrent({ id, webhookId, after, app: apps.get(appId) }, own);
      } catch (error) {
        failure ??= error;
      }
    }
    if (failure !== null) throw failure;
  }

  async #tellCurrent(
    { id, webhookId, after, app }: Resumed & { readonly app: Judging['app'] | undefined },
    alerts: readonly ActiveRule[],
  ): Promise<void> {
    const { sql, now } = this.#options;
    await sql.begin('isolation level read committed', async (tx) => {
      const { count } = await tx`
        UPDATE webhooks SET stopped_after = NULL
         WHERE id = ${id} AND state = 'active' AND stopped_after = ${after}::bigint`;
      if (count === 0) return;
      const said = await currentSince(tx, alerts, after);
      const messages = alerts.flatMap((alert): OfRule[] => {
        const { parsed: rule } = alert;
        if (isRuleProblem(rule) || app === undefined) return [];
        const only = { ...alert, webhooks: [webhookId], emails: [], alertmanager: null };
        const context = this.#contextOf({ alert: only, rule, app }, now());
        const all = said.get(alert.id) ?? [];
        // Ends come first: a value may fire again.
        const parts = [
          all.filter(({ kind }) => kind !== 'firing'),
          all.filter(({ kind }) => kind === 'firing'),
        ];
        return [{ alert, messages: parts.flatMap((part) => messagesOf(context, part)) }];
      });
      await insertMessages(tx, messages, now());
    });
  }

  #contextOf({ alert, rule, app }: Pick<Judging, 'alert' | 'rule' | 'app'>, now: number): MessageContext {
    return { alert, rule, appId: app.appId, appName: app.name, publicUrl: this.#options.publicUrl, now };
  }

  /** Looks again at firings of the last days, whose windows may have got events since. */
  async #correct(minute: number): Promise<void> {
    const { sql, storage, now } = this.#options;
    const firings = await sql<Firing[]>`
      SELECT id, rule_id AS rule, public_id AS message, series, window_to AS to, value
        FROM alert_transitions
       WHERE kind = 'firing' AND corrected_at IS NULL AND at >= ${new Date(now() - CORRECTED_FOR_MS)} AND id > ${this.#correctedUpTo}
         AND window_to <= ${new Date(minute - RECHECKED_MINUTES * MINUTE_MS)}
         AND EXISTS (SELECT FROM alert_rules AS rule
                      WHERE rule.id = rule_id AND NOT is_paused AND window_to >= coalesce(changed_at, created_at))
       ORDER BY id LIMIT ${MOST_CORRECTED}`;
    const last = firings.at(-1);
    this.#correctedUpTo = firings.length === MOST_CORRECTED && last !== undefined ? Number(last.id) : 0;
    if (firings.length === 0) return;
    const ruleIds = new Set(firings.map(({ rule }) => rule));
    const alerts = (await activeAlerts(sql)).filter(({ id }) => ruleIds.has(id));
    const [types, apps] = await Promise.all([typesOf(sql, alerts), namesOf(sql, alerts)]);
    const alertOf = new Map(alerts.map((alert) => [alert.id, alert]));
    const looks = firings.flatMap((firing) => {
      const alert = alertOf.get(firing.rule);
      const app = apps.get(alert?.appId ?? 0);
      if (alert === undefined || isRuleProblem(alert.parsed) || app === undefined) return [];
      const { parsed: rule } = alert;
      const { appId, timezone } = alert;
      const at = firing.to.getTime();
      const wanted = {
        rule,
        appId,
        timezone,
        first: at - rule.forMs,
        last: at,
        types: types.get(appId) ?? new Map(),
      };
      return [{ firing, alert, rule, app, wanted }];
    });
    // Firings of one rule at one minute are read together, and dropped before the next.
    const groups = new Map<string, (typeof looks)[number][]>();
    for (const look of looks) {
      const key = `${look.alert.id} ${look.wanted.last}`;
      groups.set(key, [...(groups.get(key) ?? []), look]);
    }
    let reads = 0;
    for (const group of groups.values()) {
      const [{ wanted, rule, firing }] = group as [(typeof looks)[number]];
      reads += windowsOf(rule, rule.forMs / MINUTE_MS + 1);
      if (reads > MOST_WINDOWS_OF_APP) {
        this.#correctedUpTo = Number(firing.id) - 1;
        return;
      }
      const wrong = await storage.inSnapshot(sql, async (events) => {
        if (!(await areMinutesKept(events, wanted))) return [];
        const [values = 'not counted'] = await readValues(events, [wanted]);
        return group.flatMap((look) => disprove(look, values));
      });
      for (const one of wrong) await this.#storeCorrection(one);
    }
  }

  async #storeCorrection({ firing, alert, rule, app, said }: Wrong): Promise<void> {
    const { sql, now } = this.#options;
    const isNew = await sql.begin('isolation level read committed', async (tx) => {
      const { count } = await tx`
        UPDATE alert_transitions SET corrected_at = ${new Date(now())}
         WHERE public_id = ${firing.message} AND corrected_at IS NULL AND series = ${firing.series}`;
      if (count === 0) return false;
      await tx`DELETE FROM alert_states WHERE rule_id = ${alert.id} AND transition = ${firing.message}`;
      await this.#tell(tx, [{ alert, rule, app, said: [said] }], now());
      return true;
    });
    if (isNew) this.stats.transitions.corrected += 1;
  }

  /** Alertmanager forgets alerts that it is not told of again. */
  async #refresh(minute: number): Promise<void> {
    const { sql, now } = this.#options;
    const firing = await sql<
      { rule: number; series: string; since: Date; id: string; value: number | null }[]
    >`
      SELECT state.rule_id AS rule, state.series, since, transition AS id, value
        FROM alert_states AS state JOIN alert_rules AS rule ON rule.id = state.rule_id
        LEFT JOIN alert_transitions AS began ON began.public_id = transition
       WHERE alertmanager IS NOT NULL AND NOT is_paused
         AND NOT EXISTS (SELECT FROM delivery_messages WHERE channel = 'alertmanager' AND target = alertmanager)
       ORDER BY state.rule_id`;
    if (firing.length === 0) return;
    const firingOf = new Map<number, Said[]>();
    for (const { rule, series, since, value, id } of firing) {
      const times = { at: minute, since: since.getTime() };
      const said = firingOf.get(rule) ?? [];
      firingOf.set(rule, said);
      said.push({ id, kind: 'firing', series, ...times, value, limits: null, earlierValue: null, of: null });
    }
    const alerts = (await activeAlerts(sql)).filter(({ id }) => firingOf.has(id));
    const apps = await namesOf(sql, alerts);
    const messages = new Map<number, OfRule[]>();
    const slices = new TimeSlice();
    for (const alert of alerts) {
      if (slices.isOver) await slices.next();
      const app = apps.get(alert.appId);
      const { parsed: rule, alertmanager } = alert;
      if (isRuleProblem(rule) || app === undefined || alertmanager === null) continue;
      const context = this.#contextOf({ alert, rule, app }, now());
      const own = alertmanagerMessages(context, alertmanager, firingOf.get(alert.id) ?? []);
      messages.set(alert.appId, [...(messages.get(alert.appId) ?? []), { alert, messages: own }]);
    }
    for (const ofApp of messages.values()) await sql.begin((tx) => insertMessages(tx, ofApp, now()));
  }
}

/** What is said of a rule. */
interface Told extends Pick<Judging, 'alert' | 'rule' | 'app'> {
  readonly said: readonly Said[];
}

/** A webhook that goes on, and the last transition before it was stopped. */
interface Resumed {
  readonly id: number;
  readonly webhookId: string;
  readonly after: string;
}

interface OfRule {
  readonly alert: AlertRule;
  readonly messages: readonly Waiting[];
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

interface Firing {
  readonly id: string;
  readonly rule: number;
  readonly message: string;
  readonly series: string;
  readonly to: Date;
  readonly value: number | null;
}

interface Wrong {
  readonly firing: Firing;
  readonly alert: AlertRule;
  readonly rule: Rule;
  readonly app: AppNames;
  readonly said: Said;
}

/** Before the retention boundary the counts of minutes are gone: nothing is disproved there. */
async function areMinutesKept(events: EventReader, { appId, rule, first }: Wanted): Promise<boolean> {
  return (await events.firstWindow(appId, rule.windowMs)) <= first;
}

/** The correction of a firing that the values do not bear out. */
function disprove(look: Omit<Wrong, 'said'> & { readonly wanted: Wanted }, values: Values): readonly Wrong[] {
  const { firing, rule, wanted } = look;
  if (typeof values === 'string') return [];
  const own = values.find(({ series }) => series === firing.series);
  // A value that nobody has sent for a week tells nothing of what it was.
  if (
    own === undefined &&
    rule.by !== null &&
    (rule.kind === 'absent' || ('side' in rule && rule.side === 'below'))
  )
    return [];
  const index = (wanted.last - wanted.first) / MINUTE_MS;
  if (own !== undefined && firingMinutes(own, testOf(rule), rule.forMs)[index] === 1) return [];
  const at = firing.to.getTime();
  const seen = own?.values[index] ?? (rule.measured.of === 'count' && rule.kind === 'threshold' ? 0 : null);
  const limits = own?.limits?.[index] ?? null;
  const said: Said = {
    ...{ id: randomUUID(), kind: 'corrected', series: firing.series, at, since: at, of: firing.message },
    ...{ value: seen, limits, earlierValue: firing.value },
  };
  return [{ ...look, said }];
}

/** The last minute that a rule is judged for in the round of a minute. */
function lastMinute(rule: ActiveRule['parsed'], minute: number): number {
  return isRuleProblem(rule) ? minute : minute - rule.delayMs;
}

/** The minutes of a rule that are due: those that are new, and some before them. */
function minutesOf(
  { evaluatedAt: judgedAt, since }: AlertRule,
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
  const readable = judged.filter(({ rule, wanted }) => {
    const reads = windowsOf(rule, (wanted.last - wanted.first) / MINUTE_MS + 1);
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
  const { alert, rule, wanted, from, episodes } = judging;
  // A value of a field that is new was not absent before. Late events begin no absence: no minute that was judged has a new one.
  const isOfRecent =
    rule.by !== null && (rule.kind === 'absent' || ('side' in rule && rule.side === 'below'));
  const firesFrom =
    isOfRecent && alert.evaluatedAt !== null && !isAhead(alert.evaluatedAt, wanted.last)
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

async function insertTransitions(tx: Transaction, told: readonly Told[], at: number): Promise<void> {
  const all = told.flatMap(({ alert, rule, said }) => said.map((one) => ({ ...one, alert, rule })));
  const of = <T>(pick: (one: (typeof all)[number]) => T): T[] => all.map(pick);
  const iso = (ms: number): string => new Date(ms).toISOString();
  await tx`
    INSERT INTO alert_transitions (public_id, rule_id, series, kind, at, window_from, window_to, value, threshold, expected, of_transition)
    SELECT id, rule, series, kind, ${new Date(at)}, minute - make_interval(secs => seconds), minute, value, threshold, expected, of_transition
      FROM unnest(${of(({ id }) => id)}::text[], ${of(({ alert }) => alert.id)}::integer[], ${of(({ series }) => series)}::text[],
                  ${of(({ kind }) => kind)}::text[], ${of((one) => iso(one.at))}::timestamptz[],
                  ${of(({ rule }) => rule.windowMs / 1_000)}::float8[], ${of(({ value }) => value)}::float8[],
                  ${of((one) => thresholdOf(one.rule, one))}::float8[], ${of(({ limits }) => limits?.expected ?? null)}::float8[],
                  ${of((one) => one.of)}::text[])
             AS given (id, rule, series, kind, minute, seconds, value, threshold, expected, of_transition)`;
  const corrected = all.flatMap((one) => (one.kind === 'corrected' && one.of !== null ? [one.of] : []));
  if (corrected.length > 0)
    await tx`
      UPDATE alert_transitions SET corrected_at = ${new Date(at)}
       WHERE rule_id = ANY(${told.map(({ alert }) => alert.id)}) AND (public_id = ANY(${corrected}) OR (kind = 'resolved' AND of_transition = ANY(${corrected})))`;
}

/** Of some webhooks those that messages are made for: others are told what is current once they go on. */
async function activeWebhooks(tx: Transaction, webhooks: readonly string[]): Promise<ReadonlySet<string>> {
  if (webhooks.length === 0) return new Set();
  const rows = await tx<{ id: string }[]>`
    SELECT public_id AS id FROM webhooks
     WHERE public_id = ANY(${[...webhooks]}) AND state = 'active' AND stopped_after IS NULL ORDER BY id FOR SHARE`;
  return new Set(rows.map(({ id }) => id));
}

/** What rules have said since a transition that is of use now: firings that have not ended, and ends of earlier ones. */
async function currentSince(
  tx: Transaction,
  alerts: readonly AlertRule[],
  after: string,
): Promise<ReadonlyMap<number, readonly Said[]>> {
  const rows = await tx<(Omit<Said, 'at' | 'since' | 'limits'> & CurrentRow)[]>`
    SELECT said.rule_id AS rule, said.public_id AS id, said.kind, said.series, said.window_to AS at, said.value, said.of_transition AS of,
           coalesce(state.since, began.window_to, said.window_to) AS since, began.value AS "earlierValue", said.expected, said.threshold
      FROM alert_transitions AS said LEFT JOIN alert_states AS state ON state.rule_id = said.rule_id AND state.transition = said.public_id
      LEFT JOIN alert_transitions AS began ON began.public_id = said.of_transition
     WHERE said.rule_id = ANY(${alerts.map(({ id }) => id)}) AND said.id > ${after}::bigint
       AND CASE said.kind WHEN 'firing' THEN state.transition IS NOT NULL ELSE coalesce(began.id <= ${after}::bigint, true) END
     ORDER BY said.id`;
  const all = new Map<number, Said[]>();
  for (const { rule, expected, threshold: bound, at, since, ...said } of rows) {
    const limits = expected === null || bound === null ? null : { expected, low: bound, high: bound };
    const own = all.get(rule) ?? [];
    all.set(rule, own);
    own.push({ ...said, at: at.getTime(), since: since.getTime(), limits });
  }
  return all;
}

interface CurrentRow {
  readonly rule: number;
  readonly at: Date;
  readonly since: Date;
  readonly expected: number | null;
  readonly threshold: number | null;
}

async function noteProblems(
  sql: Sql | Transaction,
  problems: readonly { readonly id: number; readonly problem: string }[],
): Promise<void> {
  await sql`
    UPDATE alert_rules SET problem = given.problem
      FROM unnest(${problems.map(({ id }) => id)}::integer[], ${problems.map((one) => one.problem)}::text[]) AS given (id, problem)
     WHERE alert_rules.id = given.id`;
}

/** Stores messages of rules of one app to be sent. Of a rule whose messages are too many beside those that wait none is stored. */
async function insertMessages(tx: Transaction, rules: readonly OfRule[], at: number): Promise<void> {
  const [appId] = rules.flatMap(({ alert, messages }) => (messages.length > 0 ? [alert.appId] : []));
  if (appId === undefined) return;
  const [row] = await tx<{ waiting: number }[]>`
    SELECT count(*)::integer AS waiting
      FROM (SELECT FROM delivery_messages WHERE app_id = ${appId} LIMIT ${MOST_WAITING_OF_APP}) AS waiting`;
  let waiting = row?.waiting ?? 0;
  const kept: Waiting[] = [];
  const full: { id: number; problem: string }[] = [];
  for (const { alert, messages } of rules) {
    if (messages.length === 0) continue;
    if (waiting + messages.length > MOST_WAITING_OF_APP)
      full.push({ id: alert.id, problem: PROBLEMS['too many messages'] });
    else {
      waiting += messages.length;
      kept.push(...messages);
    }
  }
  if (full.length > 0) await noteProblems(tx, full);
  const of = <T>(pick: (one: Waiting) => T): T[] => kept.map(pick);
  await tx`
    INSERT INTO delivery_messages (app_id, channel, target, message_id, type, body, created_at, next_try_at)
    SELECT ${appId}, channel, target, message_id, type, body, ${new Date(at)}, ${new Date(at)}
      FROM unnest(${of(({ channel }) => channel)}::text[], ${of(({ target }) => target)}::text[],
                  ${of(({ messageId }) => messageId)}::text[], ${of(({ type }) => type)}::text[],
                  ${of(({ body }) => body)}::text[]) AS given (channel, target, message_id, type, body)`;
}

/** Marks firings on the chart of the app. */
async function annotate(
  tx: Transaction,
  { alert, rule }: Pick<Judging, 'alert' | 'rule'>,
  said: readonly Said[],
): Promise<void> {
  if (said.length > MOST_ANNOTATED) return;
  for (const { kind, id, of, at, series } of said) {
    const text = markOf(alert.name, rule, series);
    if (kind === 'firing')
      await annotateFiring(tx, alert.appId, { annotationId: annotationOf(id), at: new Date(at), text });
    else if (of !== null) await endFiring(tx, annotationOf(of), kind === 'resolved' ? new Date(at) : null);
  }
}

async function typesOf(
  sql: Sql,
  alerts: readonly ActiveRule[],
): Promise<ReadonlyMap<number, ReadonlyMap<string, number>>> {
  const apps = [...new Set(alerts.map(({ appId }) => appId))];
  const names = new Set<string>();
  for (const { parsed } of alerts) {
    if (isRuleProblem(parsed)) continue;
    const parts = parsed.kind === 'ratio' ? [parsed.measured, parsed.to] : [parsed.measured];
    for (const { type } of parts) if (type !== null) names.add(type);
  }
  const all = new Map<number, Map<string, number>>();
  if (names.size === 0) return all;
  const rows = await sql<{ appId: number; name: string; id: number }[]>`
    SELECT app_id AS "appId", name, id FROM event_types WHERE app_id = ANY(${apps}) AND name = ANY(${[...names]})`;
  for (const { appId, name, id } of rows) all.set(appId, (all.get(appId) ?? new Map()).set(name, id));
  return all;
}

async function namesOf(sql: Sql, alerts: readonly AlertRule[]): Promise<ReadonlyMap<number, AppNames>> {
  const apps = [...new Set(alerts.map(({ appId }) => appId))];
  const rows = await sql<{ id: number; appId: string; name: string }[]>`
    SELECT id, public_id AS "appId", name FROM apps WHERE id = ANY(${apps})`;
  return new Map(rows.map(({ id, appId, name }) => [id, { appId, name }]));
}
