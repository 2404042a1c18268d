/** How late the events of an app arrive, and which alert rules are judged before theirs are there. */
import { type LateEvents, lateEvents } from '../../apps/usage-store.ts';
import { mapInSlices, TimeSlice } from '../../base/time-slice.ts';
import { MINUTE_MS } from '../../base/time-units.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { RECHECKED_MINUTES } from './alert-rules.ts';
import { isRuleProblem, partsOf, type Rule, type RuleProblem, spellDuration } from './rule.ts';

/** The share of its events that a rule waits for; of one that waits for any event, half. */
const USUAL = 0.95;
const USUAL_OF_ANY = 0.5;
/** The share of a window whose events may be missing when it is judged. */
const MISSING = 0.1;
/** Events that are so late in fewer minutes of a day were sent afterwards, as history is, and say nothing of those that are to come. */
const STEADY_MINUTES = 10;

/**
 * What is wrong with rules of an app whose events usually arrive later than they are judged, with the delay that would do.
 * @returns for each rule a sentence, or null
 */
export async function latenessWarnings(
  { sql, events }: { readonly sql: Sql; readonly events: Pick<EventReader, 'typeActivity'> },
  appId: number,
  rules: readonly (Rule | RuleProblem)[],
  now: number,
  slices = new TimeSlice(),
): Promise<readonly (string | null)[]> {
  const late = rules.length === 0 ? [] : await lateEvents(sql, appId, now);
  if (late.length === 0) return rules.map(() => null);
  const activity = await events.typeActivity(appId, now);
  const types = await sql<{ typeId: string; name: string }[]>`
    SELECT public_id AS "typeId", name FROM event_types WHERE app_id = ${appId} AND public_id = ANY(${[...activity.keys()]})`;
  const totals = types.map(({ typeId, name }) => ({
    name,
    events: (activity.get(typeId) ?? []).reduce((sum, count) => sum + count, 0),
  }));
  return await mapInSlices(rules, slices, (rule) => {
    if (isRuleProblem(rule)) return null;
    const lateness = partsOf(rule).map(({ type }) => {
      const isOfRule = ({ name }: { readonly name: string }): boolean => type === null || name === type;
      const total = totals.filter(isOfRule).reduce((sum, one) => sum + one.events, 0);
      return usualLateness(late.filter(isOfRule), total, rule.kind === 'absent' ? USUAL_OF_ANY : USUAL);
    });
    return warningOf(rule, Math.max(...lateness));
  });
}

/**
 * @param late in the order of their lateness
 * @param total events of the last day, by their own time
 * @returns how late a share of all events is at most, in milliseconds; 0: less than a minute
 */
function usualLateness(late: readonly LateEvents[], total: number, share: number): number {
  const eventsOf = (some: readonly LateEvents[]): number => some.reduce((sum, { events }) => sum + events, 0);
  const steady = late.filter(({ minutes }) => minutes >= STEADY_MINUTES);
  let inTime = Math.max(total - eventsOf(late), 0);
  const wanted = share * (inTime + eventsOf(steady));
  let lateness = 0;
  for (const { upTo, events } of steady) {
    if (inTime >= wanted) break;
    inTime += events;
    lateness = upTo * MINUTE_MS;
  }
  return lateness;
}

function warningOf(rule: Rule, lateness: number): string | null {
  if (lateness <= rule.delayMs + toleranceOf(rule)) return null;
  const usual = spellDuration(lateness);
  return `In the last day its events arrived up to ${usual} after their own time: the rule is judged before they are there. Give it "delay":"${usual}".`;
}

/** How much later than they are judged the events of a rule may come. */
function toleranceOf(rule: Rule): number {
  if (rule.kind === 'absent') return rule.windowMs;
  // A minute is judged again, and fires then.
  const isMetLater = rule.kind === 'threshold' && rule.side === 'above';
  return Math.max(MISSING * rule.windowMs, isMetLater ? (RECHECKED_MINUTES - 1) * MINUTE_MS : 0);
}
