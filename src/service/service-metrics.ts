/** Defines the service's own metrics: names, help texts and sources. */

import { existsSync, statfsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import type { AuditOutputStats } from '../accounts/log/audit-output.ts';
import type { PasswordStats } from '../accounts/sign-in/passwords.ts';
import type { ThrottledBy } from '../accounts/sign-in/sign-in-limits.ts';
import type { Usage } from '../apps/usage.ts';
import type { ArchivedGroups, ArchivedGroupsStats } from '../archive/archived-groups.ts';
import type { ArchiveStats } from '../archive/rounds.ts';
import { sum } from '../base/sum.ts';
import type { LookupQueue } from '../cache/batched-lookup.ts';
import type { CacheStats } from '../cache/lookup-cache.ts';
import type { AlertStats } from '../delivery/alerts/rounds.ts';
import type { ConsumerRouteStats } from '../delivery/consumer-routes.ts';
import type { OutboxStats } from '../delivery/outbox.ts';
import type { WebhookStats } from '../delivery/webhook-worker.ts';
import type { ReadKind, ReadStats } from '../http/read-slots.ts';
import type { HttpServer } from '../http/server.ts';
import { spooledBytes } from '../http/spool.ts';
import type { FirstTimes } from '../ingest/first-times.ts';
import type { Journal, JournalStats } from '../ingest/journal/journal.ts';
import type { WritePath } from '../ingest/write-path.ts';
import type { SharedLimitsStats } from '../limits/redis-sliding-log.ts';
import type { Metrics, Read, ReadHistograms, Sample } from '../metrics/metrics.ts';
import { SAMPLED_ONE_IN } from '../metrics/sampling.ts';
import { readVersion } from '../process/version.ts';
import type { Exports } from '../read/export/exports.ts';
import type { QueryReadOptions } from '../read/query/query-read.ts';
import type { Nodes } from '../storage/database/nodes.ts';
import type { ServerWatch } from '../storage/database/server-watch.ts';
import type { MaintenanceLoop } from '../storage/maintenance/loop.ts';
import type { TimeJudge } from '../storage/maintenance/time-judge.ts';

export interface ServiceParts {
  readonly server: HttpServer;
  readonly writePath: WritePath;
  /** Null if there is none. */
  readonly journal: Journal | null;
  /** Folders whose disk may become full, by the settings that name them. */
  readonly folders: Readonly<Record<string, string>>;
  readonly watch: ServerWatch;
  /** State of the limits with Redis. */
  readonly limits: () => SharedLimitsStats;
  readonly maintenance: MaintenanceLoop;
  readonly consumers: ConsumerRouteStats;
  readonly webhooks: WebhookStats;
  readonly alerts: AlertStats;
  readonly outbox: OutboxStats;
  readonly audit: AuditOutputStats;
  readonly archive: ArchiveStats;
  /** Null if there is no archive. */
  readonly archived: Pick<ArchivedGroups, 'stats' | 'waiting'> | null;
  readonly exports: Exports;
  readonly queries: Pick<QueryReadOptions, 'queries' | 'budget' | 'stats'>;
  readonly reads: Readonly<Record<ReadKind, ReadStats>>;
  readonly usage: Usage;
  /** Stats of password checks. */
  readonly signIns: () => SignInStats;
  /** Caches by the value of their `cache` label. */
  readonly caches: Readonly<Record<string, { readonly caches: readonly CacheStats[] }>>;
  /** Queues of lookups by the value of their `queue` label. */
  readonly lookups: Readonly<Record<string, readonly LookupQueue[]>>;
  readonly firstTimes: Pick<FirstTimes, 'size'>;
  /** Name and version of the database engine. */
  readonly engine: string;
  readonly nodes: Nodes;
  readonly judge: Pick<TimeJudge, 'doubt'>;
}

/** Stats of sign-ins, including refused ones. */
export interface SignInStats {
  readonly passwords: PasswordStats;
  /** Throttled sign-ins, by the limit that refused them. */
  readonly throttled: Readonly<Record<ThrottledBy, number>>;
}

const MEASURED = `Measured on one request in ${SAMPLED_ONE_IN}; _count counts those.`;

/** The texts of all metrics, as a scrape shows them. */
const HELP = {
  tidemark_info: 'Always 1; see the labels.',
  tidemark_database_node_up:
    '1 while a node of the database cluster takes events, 0 while it does not; absent without a cluster.',
  tidemark_database_node_batches_total:
    'Batches by the node of the database cluster that they were sent to; coordinator: it holds their apps itself, or the ' +
    'node is not known. Absent without a cluster.',
  tidemark_usage_write_failures_total:
    'Writes of the usage of apps that failed; what they had is tried again.',
  tidemark_usage_buckets_lost_total:
    'Minutes whose usage was given up: the database took none for two hours.',
  tidemark_requests_total: 'Answered requests by the path of their route; other: no route.',
  tidemark_request_seconds: `From the head of a request to its answer. ${MEASURED}`,
  tidemark_requests_aborted_total:
    'Requests whose client disconnected before the answer; not counted in other request metrics.',
  tidemark_refusals_total: 'Error responses, by the code in their body.',
  tidemark_request_body_bytes: 'Request bodies in memory now; the limit is MAX_BODIES_BYTES.',
  tidemark_request_spooled_bytes: 'Bytes of bodies with more lines than a batch that wait in files.',
  tidemark_request_bodies_cut_total:
    'Requests that were ended before their body had arrived: to make room for other bodies, or because it arrived too slowly.',
  tidemark_request_bodies_refused_total:
    'Requests refused because there was no room for their body, and nothing to cut off for it.',
  tidemark_stage_seconds: `Time of a create request in a stage once its body is there, refused or not. ${MEASURED}`,
  tidemark_events_stored_total: 'Events that were acknowledged: committed, or in the journal.',
  tidemark_events_refused_total:
    'Events that were refused one by one while their request was answered, by the path of its route and the code.',
  tidemark_events_repeated_total:
    'Events that were acknowledged because an event with their key was stored before.',
  tidemark_commit_buffer_events:
    'Events waiting for their commit or in it, in all queues; each queue has the limit COMMIT_BUFFER_EVENTS.',
  tidemark_batch_events: 'Events of a written batch.',
  tidemark_batch_seconds: 'Writing of a batch, retries included, whatever its outcome.',
  tidemark_commit_phase_seconds:
    'Phases of batches of the current day: queue (of single events), connection, rows, commit (counts, and the sync of the log), answer.',
  tidemark_write_retries_total: 'Tries of a batch after its first one.',
  tidemark_schema_checks_total:
    'Payloads of types with a schema, by outcome: passed, warned (stored), refused, unchecked (stored).',
  tidemark_schema_checks_waiting: 'Payloads that wait for the check of their schema or are being checked.',
  tidemark_schema_suspensions_total: 'Schemas that were suspended because their checks took too long.',
  tidemark_schema_threads_ended_total:
    'Threads that were ended because a check took too long, by kind: quick for accounts within their budget, slow for others.',
  tidemark_past_events:
    'Events of past days (UTC) waiting for their commit or in it, without those of idempotent requests; a part of tidemark_commit_buffer_events.',
  tidemark_past_dates_closed:
    'Past days (UTC) whose events are refused now: blocked (another session has locked them), no-partition (none can be made).',
  tidemark_past_events_refused_total: 'Events refused because of their day.',
  tidemark_cache_hits_total: 'Lookups answered from memory.',
  tidemark_cache_misses_total: 'Lookups that waited for the database.',
  tidemark_first_times:
    'Times of the first reception of events with keys that are remembered, of clocks that are wrong.',
  tidemark_lookups_waiting: 'Lookups that wait for their statement.',
  tidemark_lookups_refused_total:
    'Lookups refused because too many waited, or because they had waited too long.',
  tidemark_limits_shared: 'Whether limits are shared by all processes through Redis now: 1 or 0.',
  tidemark_limits_fallbacks_total: 'Times that Redis became unavailable or too slow.',
  tidemark_limits_own_decisions_total:
    'Requests decided by the limits of the process while REDIS_URL is set.',
  tidemark_password_hashes_waiting: 'Password hashes waiting for their turn.',
  tidemark_password_hashes_total:
    'Password hashes by outcome: done; or not computed: crowded (the network had its share of the places), full (all places ' +
    'taken), late (waited too long), left (the client was gone).',
  tidemark_sign_ins_slowed_down_total:
    'Throttled sign-ins, by the limit that refused them: account_and_client, client, account.',
  tidemark_disk_free_bytes:
    'Free bytes of the disk of a folder, for a user who is not root, by the setting that names it: DATA_DIR, JOURNAL_DIR.',
  tidemark_journal_takes_events: 'Whether there is a journal and its last write succeeded: 1 or 0.',
  tidemark_journal_waiting_events: 'Acknowledged events in the journal that are not in the database yet.',
  tidemark_journal_waiting_bytes: 'Size of the journal; the limit is JOURNAL_MAX_BYTES.',
  tidemark_journal_appended_events_total: 'Events that were acknowledged from the journal.',
  tidemark_journal_replayed_events_total: 'Events of the journal that are in the database now.',
  tidemark_journal_quarantined_events_total:
    'Events of the journal that could not be stored at their replay and went to quarantine.',
  tidemark_journal_quarantine_events:
    'Events in quarantine now, of all processes that share JOURNAL_DIR; "tidemark journal list" shows them.',
  tidemark_journal_wrong_database:
    'Whether the database belongs to another installation, so that the journal waits: 1 or 0.',
  tidemark_journal_failures_total: 'Writes to the journal that failed or found it full.',
  tidemark_journal_damaged_segments_total: 'Journal files that were set aside as damaged.',
  tidemark_database_connections_replaced_total:
    'Connections that were given up, by pool and reason: silent (the server owes them nothing, and nothing comes), deadline ' +
    '(no answer for as long as the pool waits), moved (the address leads to another server).',
  tidemark_database_server_changes_total:
    'Times that the address of the database led to another server than before: a failover, or a restore.',
  tidemark_database_server_refused:
    '1 for each server that answers and is not used, by the reason: read-only, recovery (a standby), older (replaced by a promoted ' +
    'standby), behind (it has lost commits), foreign (of another installation), forbidden (a privilege is missing), moved (its data ' +
    'is elsewhere), unfit (it would lose what is written).',
  tidemark_database_up: 'Whether the database answered the last probe, at most a second ago: 1 or 0.',
  tidemark_oldest_snapshot_seconds:
    'Age of the oldest snapshot of the database in use, by the process that does its maintenance.',
  tidemark_clock_difference_seconds:
    "The database's clock less this process's where they differ by more than a minute, else 0; meanwhile what is deleted by time waits.",
  tidemark_clock_jump_seconds:
    'How far the clocks have jumped ahead, else 0; meanwhile, and for a day at most, what is deleted by time waits.',
  tidemark_database_takes_events: 'Whether the database takes events of today, as far as is known: 1 or 0.',
  tidemark_database_accepts_idempotency_keys:
    'Whether the table of idempotency keys takes rows, as far as is known: 1 or 0.',
  tidemark_upkeep_failures_total: 'Maintenance runs that failed.',
  tidemark_audit_log_entries_total: 'Entries of the audit log that this process has written to AUDIT_LOG.',
  tidemark_audit_log_failures_total: 'Attempts to write to AUDIT_LOG that failed, and are made again.',
  tidemark_archive_successes_total: 'Days of apps that were archived.',
  tidemark_archive_events_total: 'Events of these days.',
  tidemark_archive_bytes_total: 'Bytes of their files.',
  tidemark_archive_failures_total:
    'Days that could not be archived, and runs that failed; both are tried again.',
  tidemark_archive_reads_total:
    'Groups of some thousand events that reads of archived days needed, by outcome: read from the archive, cached (they were in memory), ' +
    'failed (the archive is away or slow, or has something else), refused (too many were waiting).',
  tidemark_archive_read_bytes_total: 'Bytes of groups that were read.',
  tidemark_archive_reads_waiting: 'Reads that wait for their turn in the archive.',
  tidemark_consumers:
    'Consumers and webhooks by state (ok, lagging, lost), by the process that does the maintenance.',
  tidemark_consumer_lag_seconds:
    'Age of the oldest events that a consumer or a webhook has not acknowledged, by the process that does the maintenance.',
  tidemark_consumer_leased_events_total: 'Events that were leased to clients of consumers.',
  tidemark_consumer_acknowledgments_total: 'Batches that clients of consumers acknowledged.',
  tidemark_webhook_delivered_total: 'Events that receivers of webhooks took.',
  tidemark_webhook_failures_total: 'Tries of webhooks that failed.',
  tidemark_webhook_disabled_total:
    'Webhooks that were disabled, after an answer of 410 or 72 hours of failures.',
  tidemark_alert_evaluations_total: 'Alert rules that this process has judged, once a minute each.',
  tidemark_alert_failures_total: 'Rounds of alerts that failed, and are tried again.',
  tidemark_alert_round_seconds: 'How long the last round of alerts of this process took.',
  tidemark_alert_transitions_total: 'Transitions of alerts by kind (firing, resolved, corrected).',
  tidemark_messages_total:
    'Messages of alerts and to owners by channel (webhook, mail, alertmanager) and result (sent, failed, dropped).',
  tidemark_field_other_events_total:
    'Events that the maintenance of this process has counted as "other": their value is too long, or one of too many.',
  tidemark_field_deltas_waiting_seconds:
    'How long changed minutes could not be counted by declared fields, by the process that does the maintenance.',
  tidemark_field_uncounted_buckets:
    'Minutes of apps whose declared fields are counted from rows at each read, at most 10,000, by the process that does the maintenance.',
  tidemark_reads_waiting:
    'Reads that wait for their turn, by kind: get_events, token (of /v1), dashboard, share, export and query (parts of these).',
  tidemark_reads_running: 'Reads that have their turn, by kind; at most READ_CONNECTIONS.',
  tidemark_reads_refused_total:
    'Reads that were refused with 503 because too many were waiting, most of them of the same account; by kind.',
  tidemark_exports_running: 'Exports that are being sent.',
  tidemark_exported_events_total: 'Events read for exports.',
  tidemark_exports_total: 'Exports that have ended, by how.',
  tidemark_queries_running: 'Queries that are being answered.',
  tidemark_queries_total: 'Queries that have ended, by how.',
  tidemark_queries_answered_total: 'Queries by what answered them: counts, or events that were read.',
  tidemark_query_events_total: 'Events that queries have looked at.',
  tidemark_query_seconds_total: 'Seconds that queries have read for, of their budgets.',
  tidemark_query_budget_spent_total:
    'Queries whose token or account had no budget left: refused, or cut before their end.',
  tidemark_queries_truncated_total: 'Queries that had more groups than their memory holds.',
};

/** Metrics by their names: the texts are in {@link HELP}. */
class Described {
  readonly #metrics: Metrics;

  constructor(metrics: Metrics) {
    this.#metrics = metrics;
  }

  gauge(name: keyof typeof HELP, read: Read): void {
    this.#metrics.gauge(name, HELP[name], read);
  }

  counter(name: keyof typeof HELP, read: Read): void {
    this.#metrics.counter(name, HELP[name], read);
  }

  histogram(name: keyof typeof HELP, read: ReadHistograms): void {
    this.#metrics.histogram(name, HELP[name], read);
  }
}

export function registerServiceMetrics(registry: Metrics, parts: ServiceParts): void {
  const metrics = new Described(registry);
  const { server, engine } = parts;
  const info = { version: readVersion(), engine, transport: server.transport };
  metrics.gauge('tidemark_info', () => [{ labels: info, value: 1 }]);
  registerRequests(metrics, server);
  registerWrites(metrics, parts.writePath);
  registerSchemas(metrics, parts.writePath);
  registerCaches(metrics, parts.caches);
  metrics.gauge('tidemark_first_times', () => parts.firstTimes.size);
  registerLookups(metrics, parts.lookups);
  registerDatabase(metrics, parts);
  registerNodes(metrics, parts);
  registerLimits(metrics, parts.limits);
  registerJournal(metrics, parts.journal);
  registerDisks(metrics, parts.folders);
  registerSignIns(metrics, parts.signIns);
  registerReads(metrics, parts.reads);
  registerExports(metrics, parts.exports);
  registerQueries(metrics, parts.queries);
  registerUsage(metrics, parts.usage);
}

function registerNodes(metrics: Described, { nodes, writePath }: ServiceParts): void {
  metrics.gauge('tidemark_database_node_up', () => {
    const unreachable = new Set(nodes.unreachable);
    return map(nodes.names, (node) => sample({ node }, unreachable.has(node) ? 0 : 1));
  });
  metrics.counter('tidemark_database_node_batches_total', () =>
    map(writePath.store.groupsByNode, ([node, count]) => sample({ node }, count)),
  );
}

function registerUsage(metrics: Described, usage: Usage): void {
  metrics.counter('tidemark_usage_write_failures_total', () => usage.failures);
  metrics.counter('tidemark_usage_buckets_lost_total', () => usage.lost);
}

function registerRequests(metrics: Described, server: HttpServer): void {
  const { counts } = server;
  metrics.counter('tidemark_requests_total', () =>
    map(counts.answers(), ({ route, status, count }) => sample({ route, status: String(status) }, count)),
  );
  metrics.histogram('tidemark_request_seconds', () =>
    map(counts.seconds(), ({ route, histogram }) => ({ labels: { route }, histogram })),
  );
  metrics.counter('tidemark_requests_aborted_total', () => counts.aborted);
  metrics.counter('tidemark_refusals_total', () =>
    map(counts.refusals, ([code, count]) => sample({ code }, count)),
  );
  metrics.gauge('tidemark_request_body_bytes', () => server.bodiesBytes);
  metrics.gauge('tidemark_request_spooled_bytes', spooledBytes);
  metrics.counter('tidemark_request_bodies_cut_total', () =>
    by('reason', { room: server.bodyStats.cutForRoom, pace: server.bodyStats.cutForPace }),
  );
  metrics.counter('tidemark_request_bodies_refused_total', () => server.bodyStats.refused);
}

function registerWrites(metrics: Described, writePath: WritePath): void {
  const { stageTimes, store } = writePath;
  metrics.histogram('tidemark_stage_seconds', () =>
    map(stageTimes.histograms, ([stage, histogram]) => ({ labels: { stage }, histogram })),
  );
  metrics.counter('tidemark_events_stored_total', () => writePath.queues.stored);
  metrics.counter('tidemark_events_refused_total', () =>
    map(writePath.refusedEvents.counts(), ({ route, code, count }) => sample({ route, code }, count)),
  );
  metrics.counter('tidemark_events_repeated_total', () => writePath.queues.repeated);
  metrics.gauge('tidemark_commit_buffer_events', () => writePath.queues.depth);
  registerPast(metrics, writePath);
  metrics.histogram('tidemark_batch_events', () => store.counts.groupEvents);
  metrics.histogram('tidemark_batch_seconds', () => store.counts.groupSeconds);
  metrics.histogram('tidemark_commit_phase_seconds', () =>
    map(store.counts.phases.histograms, ([phase, histogram]) => ({ labels: { phase }, histogram })),
  );
  metrics.counter('tidemark_write_retries_total', () => store.retries);
}

/** Checks of payloads against the schemas of their types. */
function registerSchemas(metrics: Described, { payloadChecks }: WritePath): void {
  metrics.counter('tidemark_schema_checks_total', () => by('outcome', payloadChecks.outcomes));
  metrics.gauge('tidemark_schema_checks_waiting', () => payloadChecks.waiting);
  metrics.counter('tidemark_schema_suspensions_total', () => payloadChecks.suspensions);
  metrics.counter('tidemark_schema_threads_ended_total', () => by('thread', payloadChecks.endedThreads));
}

/** Events of past days wait apart from the others. */
function registerPast(metrics: Described, { queues, store }: WritePath): void {
  const { past } = store;
  metrics.gauge('tidemark_past_events', () => queues.pastDepth);
  metrics.gauge('tidemark_past_dates_closed', () => [
    sample({ reason: 'blocked' }, past.closedDays('blocked')),
    sample({ reason: 'no-partition' }, past.closedDays('no-partition')),
  ]);
  metrics.counter('tidemark_past_events_refused_total', () => by('reason', past.refused));
}

function registerCaches(metrics: Described, caches: ServiceParts['caches']): void {
  const sums = (stat: 'hits' | 'misses') => () =>
    map(Object.entries(caches), ([cache, of]) => sample({ cache }, sum(of.caches.map((one) => one[stat]))));
  metrics.counter('tidemark_cache_hits_total', sums('hits'));
  metrics.counter('tidemark_cache_misses_total', sums('misses'));
}

function registerLookups(metrics: Described, lookups: ServiceParts['lookups']): void {
  const sums = (stat: keyof LookupQueue) => () =>
    map(Object.entries(lookups), ([queue, all]) => sample({ queue }, sum(all.map((one) => one[stat]))));
  metrics.gauge('tidemark_lookups_waiting', sums('waiting'));
  metrics.counter('tidemark_lookups_refused_total', sums('refused'));
}

function registerLimits(metrics: Described, stats: () => SharedLimitsStats): void {
  metrics.gauge('tidemark_limits_shared', () => (stats().shared ? 1 : 0));
  metrics.counter('tidemark_limits_fallbacks_total', () => stats().fallbacks);
  metrics.counter('tidemark_limits_own_decisions_total', () => stats().ownDecisions);
}

function registerSignIns(metrics: Described, stats: () => SignInStats): void {
  metrics.gauge('tidemark_password_hashes_waiting', () => stats().passwords.waiting);
  metrics.counter('tidemark_password_hashes_total', () => by('outcome', stats().passwords.outcomes));
  metrics.counter('tidemark_sign_ins_slowed_down_total', () => by('by', stats().throttled));
}

/** @param folders by the settings that name them */
function registerDisks(metrics: Described, folders: ServiceParts['folders']): void {
  metrics.gauge('tidemark_disk_free_bytes', () =>
    Object.entries(folders).flatMap(([setting, folder]) => {
      try {
        // One that is not there yet will be on the disk of the folder above.
        const { bavail, bsize } = statfsSync(existsSync(folder) ? folder : dirname(resolve(folder)));
        return [sample({ setting }, bavail * bsize)];
      } catch {
        return []; // It cannot be reached: the checks of the start say so.
      }
    }),
  );
}

/** @param journal null if there is none: its metrics are then 0 */
function registerJournal(metrics: Described, journal: Journal | null): void {
  const stat = (name: Exclude<keyof JournalStats, 'wrongDatabase'>) => () => journal?.stats[name] ?? 0;
  metrics.gauge('tidemark_journal_takes_events', () => (journal?.takesEvents === true ? 1 : 0));
  metrics.gauge('tidemark_journal_waiting_events', stat('waitingEvents'));
  metrics.gauge('tidemark_journal_waiting_bytes', stat('waitingBytes'));
  metrics.counter('tidemark_journal_appended_events_total', stat('appendedEvents'));
  metrics.counter('tidemark_journal_replayed_events_total', stat('replayedEvents'));
  metrics.counter('tidemark_journal_quarantined_events_total', stat('quarantinedEvents'));
  metrics.gauge('tidemark_journal_quarantine_events', stat('quarantineEvents'));
  metrics.gauge('tidemark_journal_wrong_database', () => (journal?.wrongDatabase === true ? 1 : 0));
  metrics.counter('tidemark_journal_failures_total', stat('failures'));
  metrics.counter('tidemark_journal_damaged_segments_total', stat('damagedSegments'));
}

function registerDatabase(
  metrics: Described,
  {
    judge,
    maintenance,
    writePath,
    watch,
    consumers,
    webhooks,
    alerts,
    outbox,
    audit,
    archive,
    archived,
  }: ServiceParts,
): void {
  metrics.counter('tidemark_database_connections_replaced_total', () =>
    map(watch.replaced, ({ pool, reason, count }) => sample({ pool, reason }, count)),
  );
  metrics.counter('tidemark_database_server_changes_total', () => watch.epoch - 1);
  metrics.gauge('tidemark_database_server_refused', () =>
    map(watch.problems, ({ server, problem }) => sample({ server, reason: problem }, 1)),
  );
  metrics.gauge('tidemark_database_up', () => (writePath.availability.reachable ? 1 : 0));
  metrics.gauge('tidemark_oldest_snapshot_seconds', () => maintenance.oldestSnapshotSeconds);
  metrics.gauge('tidemark_clock_difference_seconds', () => judge.doubt?.databaseSeconds ?? 0);
  metrics.gauge('tidemark_clock_jump_seconds', () => judge.doubt?.jumpSeconds ?? 0);
  metrics.gauge('tidemark_database_takes_events', () => (writePath.store.takesEvents ? 1 : 0));
  metrics.gauge('tidemark_database_accepts_idempotency_keys', () =>
    writePath.acceptsIdempotencyKeys ? 1 : 0,
  );
  metrics.counter('tidemark_upkeep_failures_total', () => maintenance.failures);
  registerFields(metrics, maintenance);
  registerConsumers(metrics, maintenance, consumers);
  registerWebhooks(metrics, webhooks);
  registerAlerts(metrics, alerts, outbox);
  metrics.counter('tidemark_audit_log_entries_total', () => audit.written);
  metrics.counter('tidemark_audit_log_failures_total', () => audit.failures);
  metrics.counter('tidemark_archive_successes_total', () => archive.days);
  metrics.counter('tidemark_archive_events_total', () => archive.events);
  metrics.counter('tidemark_archive_bytes_total', () => archive.bytes);
  metrics.counter('tidemark_archive_failures_total', () => archive.failures);
  registerArchived(metrics, archived);
}

const ARCHIVE_READS = ['read', 'cached', 'failed', 'refused'] as const;

/** Metrics of reads of archived days. */
function registerArchived(metrics: Described, archived: ServiceParts['archived']): void {
  const stat = (name: keyof ArchivedGroupsStats): number => archived?.stats[name] ?? 0;
  metrics.counter('tidemark_archive_reads_total', () =>
    map(ARCHIVE_READS, (outcome) => sample({ outcome }, stat(outcome))),
  );
  metrics.counter('tidemark_archive_read_bytes_total', () => stat('bytes'));
  metrics.gauge('tidemark_archive_reads_waiting', () => archived?.waiting ?? 0);
}

/** Metrics of consumers and webhooks. */
function registerConsumers(
  metrics: Described,
  maintenance: MaintenanceLoop,
  consumers: ConsumerRouteStats,
): void {
  metrics.gauge('tidemark_consumers', () => by('state', maintenance.consumers.states));
  metrics.gauge('tidemark_consumer_lag_seconds', () => maintenance.consumers.lagSeconds);
  metrics.counter('tidemark_consumer_leased_events_total', () => consumers.leasedEvents);
  metrics.counter('tidemark_consumer_acknowledgments_total', () => consumers.acknowledgments);
}

/** Metrics of the tries of webhooks in this process. */
function registerWebhooks(metrics: Described, webhooks: WebhookStats): void {
  metrics.counter('tidemark_webhook_delivered_total', () => webhooks.delivered);
  metrics.counter('tidemark_webhook_failures_total', () => webhooks.failed);
  metrics.counter('tidemark_webhook_disabled_total', () => webhooks.disabled);
}

/** Metrics of the rounds of alerts, and of the messages that this process has sent. */
function registerAlerts(metrics: Described, alerts: AlertStats, outbox: OutboxStats): void {
  metrics.counter('tidemark_alert_evaluations_total', () => alerts.evaluations);
  metrics.counter('tidemark_alert_failures_total', () => alerts.failures);
  metrics.gauge('tidemark_alert_round_seconds', () => alerts.roundMs / 1_000);
  metrics.counter('tidemark_alert_transitions_total', () => by('kind', alerts.transitions));
  metrics.counter('tidemark_messages_total', () =>
    Object.entries(outbox).flatMap(([channel, results]) =>
      Object.entries(results).map(([result, count]) => sample({ channel, result }, count)),
    ),
  );
}

/** Metrics of declared fields. */
function registerFields(metrics: Described, maintenance: MaintenanceLoop): void {
  metrics.counter('tidemark_field_other_events_total', () => maintenance.fields.others);
  metrics.gauge('tidemark_field_deltas_waiting_seconds', () => maintenance.fields.waitingSeconds);
  metrics.gauge('tidemark_field_uncounted_buckets', () => maintenance.fields.uncountedMinutes);
}

function sample(labels: Sample['labels'], value: number): Sample {
  return { labels, value };
}

/** Numbers whose names are values of a label. */
function by(label: string, counts: Readonly<Record<string, number>>): Sample[] {
  return Object.entries(counts).map(([name, count]) => sample({ [label]: name }, count));
}

function* map<T, R>(values: Iterable<T>, change: (value: T) => R): Iterable<R> {
  for (const value of values) yield change(value);
}

function registerReads(metrics: Described, reads: Readonly<Record<ReadKind, ReadStats>>): void {
  const each = (of: keyof ReadStats) => () =>
    map(Object.entries(reads), ([kind, stats]) => sample({ kind }, stats[of]));
  metrics.gauge('tidemark_reads_waiting', each('waiting'));
  metrics.gauge('tidemark_reads_running', each('running'));
  metrics.counter('tidemark_reads_refused_total', each('refused'));
}

function registerExports(metrics: Described, exports: Exports): void {
  metrics.gauge('tidemark_exports_running', () => exports.running);
  metrics.counter('tidemark_exported_events_total', () => exports.events);
  metrics.counter('tidemark_exports_total', () => by('outcome', exports.ended));
}

function registerQueries(metrics: Described, { queries, budget, stats }: ServiceParts['queries']): void {
  metrics.gauge('tidemark_queries_running', () => queries.running);
  metrics.counter('tidemark_queries_total', () => by('outcome', queries.ended));
  metrics.counter('tidemark_queries_answered_total', () =>
    by('from', { counts: stats.counted, events: stats.scanned }),
  );
  metrics.counter('tidemark_query_events_total', () => stats.events);
  metrics.counter('tidemark_query_seconds_total', () => budget.stats.spentMs / 1_000);
  metrics.counter('tidemark_query_budget_spent_total', () =>
    by('outcome', { refused: budget.stats.refused, cut: budget.stats.cut }),
  );
  metrics.counter('tidemark_queries_truncated_total', () => stats.truncated);
}
