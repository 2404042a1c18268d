/** What goes out of an installation, for the doctor. */
import { grouped } from '../../base/grouped.ts';
import {
  activeAlerts,
  aheadText,
  correctedOf,
  FLAPPING_AFTER,
  RECHECKED_MINUTES,
} from '../../delivery/alerts/alert-rules.ts';
import { latenessWarnings } from '../../delivery/alerts/lateness.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import { type Finding, ok, problem, warning } from './finding.ts';

export interface DeliveryFacts {
  /** Whether the installation was restored, and nobody has said yet that it sends. */
  readonly isStopped: boolean;
  /** Webhooks whose endpoint fails, or that were disabled. */
  readonly stuck: readonly StuckWebhook[];
  /** Consumers that have lost their place, with the public ids of their apps. */
  readonly lost: readonly { readonly appId: string; readonly name: string }[];
  /** Rules of alerts that cannot be judged, or were by a clock that was ahead. */
  readonly problems: readonly {
    readonly alertId: string;
    readonly name: string;
    readonly problem: string | null;
    readonly evaluatedAt: Date | null;
    /** Firings of the last day that late events have corrected. */
    readonly corrected?: number;
  }[];
  /** Alerts whose events come later than they are judged. */
  readonly late?: readonly { readonly alertId: string; readonly name: string; readonly warning: string }[];
  /** Age of the oldest message that has failed at least once; 0: there is none. */
  readonly oldestMessageSeconds: number;
  /** Webhooks and rules. */
  readonly total: number;
}

export interface StuckWebhook {
  readonly webhookId: string;
  readonly state: 'active' | 'disabled';
  readonly reason: string | null;
  readonly failingSince: Date | null;
  readonly problem: string | null;
}

/** A webhook that fails for less than this may be restarting. */
const STUCK_AFTER_MINUTES = 10;

/** Apps whose alerts are compared with how late their events are. */
const MOST_LATE_APPS = 100;

export async function deliveryFacts(
  sql: Sql,
  events: Pick<EventReader, 'typeActivity'>,
  now = Date.now(),
): Promise<DeliveryFacts> {
  const stuck = await sql<StuckWebhook[]>`
    SELECT public_id AS "webhookId", state, reason, failing_since AS "failingSince",
           (SELECT problem FROM webhook_tries WHERE webhook_id = webhooks.id ORDER BY id DESC LIMIT 1) AS problem
      FROM webhooks
     WHERE state = 'disabled' OR (state = 'active' AND failing_since < now() - make_interval(mins => ${STUCK_AFTER_MINUTES}))
     ORDER BY id LIMIT 20`;
  const behind = await sql<{ app: number; name: string }[]>`
    SELECT app_id AS app, name FROM consumers WHERE kind = 'consumer' AND lost_at IS NOT NULL ORDER BY app_id, name LIMIT 20`;
  const apps = await sql<{ id: number; appId: string }[]>`
    SELECT id, public_id AS "appId" FROM apps WHERE removed_at IS NULL AND id = ANY(${behind.map(({ app }) => app)}::integer[])`;
  const lost = behind.flatMap(({ app, name }) =>
    apps.filter(({ id }) => id === app).map(({ appId }) => ({ appId, name })),
  );
  const problems = await sql<DeliveryFacts['problems'][number][]>`
    SELECT public_id AS "alertId", name, problem, evaluated_at AS "evaluatedAt", ${correctedOf(sql)} AS corrected FROM alert_rules
     WHERE (problem IS NOT NULL OR evaluated_at > now() + make_interval(mins => ${RECHECKED_MINUTES})
            OR ${correctedOf(sql)} >= ${FLAPPING_AFTER}) AND NOT is_paused
     ORDER BY id LIMIT 20`;
  const rules = grouped((await activeAlerts(sql)).alerts, ({ appId }) => appId);
  const late: { alertId: string; name: string; warning: string }[] = [];
  for (const [appId, alerts] of [...rules].slice(0, MOST_LATE_APPS)) {
    const parsed = alerts.map((alert) => alert.parsed);
    const warnings = await latenessWarnings({ sql, events }, appId, parsed, now);
    for (const [index, { alertId, name }] of alerts.entries()) {
      const warning = warnings[index] ?? null;
      if (warning !== null) late.push({ alertId, name, warning });
    }
  }
  const [row] = await sql<{ isStopped: boolean; oldest: number; total: number }[]>`
    SELECT EXISTS (SELECT FROM installation WHERE name = 'deliveries' AND value = 'stopped') AS "isStopped",
           coalesce((SELECT extract(epoch FROM now() - min(created_at)) FROM delivery_messages WHERE tries > 0), 0)::float8 AS oldest,
           ((SELECT count(*) FROM webhooks) + (SELECT count(*) FROM alert_rules))::float8 AS total`;
  return {
    isStopped: row?.isStopped === true,
    ...{ stuck, lost, problems, late, oldestMessageSeconds: row?.oldest ?? 0, total: row?.total ?? 0 },
  };
}

export function deliveryFindings({
  deliveries = null,
}: {
  readonly deliveries?: DeliveryFacts | null | undefined;
}): readonly Finding[] {
  if (deliveries === null || (deliveries.total === 0 && deliveries.lost.length === 0)) return [];
  const { isStopped, stuck, lost, problems, late = [], oldestMessageSeconds } = deliveries;
  const found: Finding[] = [];
  if (isStopped)
    found.push(
      warning(
        'deliveries',
        'nothing is sent: the installation was restored',
        'Run "tidemark deliveries resume" once the original is gone.',
      ),
    );
  for (const { webhookId, state, reason, failingSince, problem: last } of stuck)
    found.push(
      state === 'disabled'
        ? warning(
            'deliveries',
            `webhook ${webhookId} is disabled: ${reason ?? 'no reason is known'}`,
            `Fix its endpoint, then run "tidemark webhook resume ${webhookId}".`,
          )
        : problem(
            'deliveries',
            `webhook ${webhookId} is stuck: its endpoint has failed since ${failingSince?.toISOString() ?? '?'}${last === null ? '' : ` (${last})`}`,
            `Fix the endpoint, or leave the event out with "tidemark webhook skip ${webhookId}".`,
          ),
    );
  for (const { appId, name } of lost)
    found.push(
      problem(
        'deliveries',
        `consumer ${JSON.stringify(name)} of ${appId} is lost: its events have waited for longer than CONSUMER_REACH_HOURS`,
        'Tell it where to go on, by "tidemark consumer seek".',
      ),
    );
  for (const { alertId, name, warning: why } of late)
    found.push(
      warning(
        'deliveries',
        `alert ${alertId} ${JSON.stringify(name)} is judged before its late events are there`,
        why,
      ),
    );
  for (const { alertId, name, problem: why, evaluatedAt, corrected = 0 } of problems) {
    const alert = `alert ${alertId} ${JSON.stringify(name)}`;
    if (why === null && late.some((one) => one.alertId === alertId)) continue;
    if (why === null && corrected >= FLAPPING_AFTER) {
      const advice = 'Give its rule a "delay", such as "10m": docs/delivery.md has it.';
      found.push(
        warning('deliveries', `${alert} is corrected by late events: ${corrected} times in a day`, advice),
      );
      continue;
    }
    found.push(
      warning(
        'deliveries',
        `${alert} cannot be judged: ${why ?? aheadText(evaluatedAt ?? new Date(0))}`,
        why === null
          ? 'Correct the clocks of the service and of the database.'
          : 'Run "tidemark field list".',
      ),
    );
  }
  if (oldestMessageSeconds > STUCK_AFTER_MINUTES * 60)
    found.push(
      warning(
        'deliveries',
        `a message has waited for ${Math.round(oldestMessageSeconds / 60)} minutes after a failure`,
        'See the log for "delivery: failed": a mail server, an Alertmanager or a webhook does not take it.',
      ),
    );
  return found.length > 0 ? found : [ok('deliveries', 'no webhook or alert is stuck')];
}
