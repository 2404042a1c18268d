/** Looks again at firings of the last days, whose windows may have got events since. */
import { randomUUID } from 'node:crypto';
import { grouped } from '../../base/grouped.ts';
import { DAY_MS, MINUTE_MS } from '../../base/time-units.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { type ActiveRule, activeAlerts, RECHECKED_MINUTES } from './alert-rules.ts';
import { firingMinutes } from './judge.ts';
import { MOST_WINDOWS_OF_APP } from './judging.ts';
import type { Said } from './messages.ts';
import { firesBelow } from './rule.ts';
import { type AlertPlace, tell } from './telling.ts';
import { readValues, testOf, type Values, type Wanted, windowsOf, withTypes } from './values.ts';

const CORRECTED_FOR_MS = 7 * DAY_MS;
/** Firings that are looked at in one round. */
const MOST_CORRECTED = 500;

interface Firing {
  readonly id: string;
  readonly rule: number;
  readonly message: string;
  readonly series: string;
  readonly to: Date;
  readonly value: number | null;
}

/** A firing with the values that tell whether it was due. */
interface Look {
  readonly firing: Firing;
  readonly alert: ActiveRule;
  readonly wanted: Wanted;
}

/**
 * Corrects what was not due.
 * @param after firings up to this one were looked at before
 * @param count is called with what is said
 * @returns the last firing that was looked at; 0: all were
 */
export async function correctFirings(
  options: AlertPlace,
  minute: number,
  after: number,
  count: (said: readonly Said[]) => void,
): Promise<number> {
  const { sql, storage, now } = options;
  const firings = await sql<Firing[]>`
    SELECT id, rule_id AS rule, public_id AS message, series, window_to AS to, value
      FROM alert_transitions
     WHERE kind = 'firing' AND corrected_at IS NULL AND at >= ${new Date(now() - CORRECTED_FOR_MS)} AND id > ${after}
       AND window_to <= ${new Date(minute - RECHECKED_MINUTES * MINUTE_MS)}
       AND EXISTS (SELECT FROM alert_rules AS rule
                    WHERE rule.id = rule_id AND NOT is_paused AND window_to >= coalesce(changed_at, created_at))
     ORDER BY id LIMIT ${MOST_CORRECTED}`;
  const last = firings.at(-1);
  if (last === undefined) return 0;
  const alerts = new Map((await activeAlerts(sql)).alerts.map((alert) => [alert.id, alert]));
  const looks = firings.flatMap((firing) => {
    const alert = alerts.get(firing.rule);
    if (alert === undefined) return [];
    const { parsed: rule, appId, timezone } = alert;
    const at = firing.to.getTime();
    return [{ firing, alert, rule, appId, timezone, first: at - rule.forMs, last: at }];
  });
  // Firings of one rule at one minute are read together, and dropped before the next.
  const groups = grouped(
    (await withTypes(sql, looks)).map(({ firing, alert, ...wanted }): Look => ({ firing, alert, wanted })),
    ({ alert, wanted }) => `${alert.id} ${wanted.last}`,
  );
  let reads = 0;
  for (const group of groups.values()) {
    const [{ wanted, firing }] = group as [Look];
    reads += windowsOf(wanted.rule, wanted.rule.forMs / MINUTE_MS + 1);
    if (reads > MOST_WINDOWS_OF_APP) return Number(firing.id) - 1;
    const wrong = await storage.inSnapshot(sql, async (events) => {
      if (!(await areMinutesKept(events, wanted))) return [];
      const [values = 'not counted'] = await readValues(events, [wanted]);
      return group.flatMap((look) => disprove(look, values));
    });
    for (const one of wrong) if (await storeCorrection(options, one)) count([one.said]);
  }
  return firings.length === MOST_CORRECTED ? Number(last.id) : 0;
}

interface Wrong extends Look {
  readonly said: Said;
}

/** @returns false where it was corrected before */
async function storeCorrection(
  { sql, now }: Pick<AlertPlace, 'sql' | 'now'>,
  { firing, alert, said }: Wrong,
): Promise<boolean> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const { count } = await tx`
      UPDATE alert_transitions SET corrected_at = ${new Date(now())}
       WHERE public_id = ${firing.message} AND corrected_at IS NULL AND series = ${firing.series}`;
    if (count === 0) return false;
    await tx`DELETE FROM alert_states WHERE rule_id = ${alert.id} AND transition = ${firing.message}`;
    await tell(tx, [{ alert, said: [said] }], now());
    return true;
  });
}

/** Before the retention boundary the counts of minutes are gone: nothing is disproved there. */
async function areMinutesKept(events: EventReader, { appId, rule, first }: Wanted): Promise<boolean> {
  return (await events.firstWindow(appId, rule.windowMs)) <= first;
}

/** The correction of a firing that the values do not bear out. */
function disprove(look: Look, values: Values): readonly Wrong[] {
  const { firing, wanted } = look;
  const { rule } = wanted;
  if (typeof values === 'string') return [];
  const own = values.find(({ series }) => series === firing.series);
  // A value that nobody has sent for a week tells nothing of what it was.
  if (own === undefined && rule.by !== null && firesBelow(rule)) return [];
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
