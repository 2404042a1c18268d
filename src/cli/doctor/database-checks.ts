/** Findings about the database: pure functions of the collected facts. */

import { DAY_MS, utcDay } from '../../base/time-units.ts';
import { withFirstHost } from '../../base/url-hosts.ts';
import { isLoopbackName } from '../../http/client-address.ts';
import { spellPath } from '../../read/fields/payload-paths.ts';
import { connectionsOf } from '../../service.ts';
import type { CountDifference } from '../../storage/counts/differences.ts';
import type { DatabaseFacts } from '../../storage/database-facts.ts';
import type { Facts } from './facts.ts';
import { type Finding, type Found, note, ok, problem, warning } from './finding.ts';
import { isFull } from './machine-facts.ts';

/** In order of importance. A check that does not apply returns no finding. */
export const DATABASE_CHECKS: readonly ((database: DatabaseFacts, facts: Facts) => Found)[] = [
  schema,
  hidden,
  durability,
  role,
  connections,
  locks,
  transactions,
  clock,
  retention,
  compression,
  disk,
  maintenance,
  counts,
];

const GIBIBYTE = 1_073_741_824;

function schema(database: DatabaseFacts): Found {
  if (database.isReadOnly)
    return problem('database', 'it is read-only', 'Point DATABASE_URL to the primary server.');
  if (database.pendingMigrations > 0)
    return warning(
      'database',
      `${database.description}, ${database.pendingMigrations} migrations behind this release`,
      'Run "tidemark migrate", or start the service.',
    );
  return ok('database', `${database.description}, with the schema of this release`);
}

/** Events of earlier releases, which wrote to a database without the library of its engine. */
function hidden({ strayRows }: DatabaseFacts): Found {
  return (strayRows ?? []).map(({ server, rows }) =>
    problem(
      'events',
      `${rows} acknowledged events lie where nobody reads them${server === null ? '' : `, on ${server}`}: they were written while ` +
        'the library of TimescaleDB or Citus was not loaded, or while the database was left restoring',
      'Run "tidemark recover-rows".',
    ),
  );
}

/** Each of these settings, if off, can lose acknowledged events (PostgreSQL documentation, 19.5). */
const NEEDED_ON: Readonly<Record<string, string>> = {
  fsync: 'a crash of the machine can destroy the database',
  full_page_writes: 'a crash of the machine can destroy pages',
  synchronous_commit: 'a crash of PostgreSQL can lose acknowledged events',
};

function durability({ settings }: DatabaseFacts): Found {
  const wrong = Object.entries(NEEDED_ON)
    // remote_apply and remote_write also wait for a standby; "local" waits for the disk, like "on" without a standby.
    .filter(
      ([name]) => settings[name] === 'off' || (name !== 'synchronous_commit' && settings[name] !== 'on'),
    )
    .map(([name, risk]) =>
      problem(
        'durability',
        `${name} is ${settings[name]}: ${risk}`,
        name === 'synchronous_commit'
          ? 'A pooler drops the session settings of the service: let it pass them, or connect without it.'
          : `Set ${name} = on in postgresql.conf and reload.`,
      ),
    );
  const checksums =
    settings.data_checksums === 'off'
      ? [
          note(
            'durability',
            'data checksums are off: corruption of the disk goes unnoticed',
            'Stop PostgreSQL and run pg_checksums --enable.',
          ),
        ]
      : [];
  const vacuum =
    settings.autovacuum === 'off'
      ? [warning('durability', 'autovacuum is off: tables grow and statistics age', 'Set autovacuum = on.')]
      : [];
  const found = [...wrong, ...checksums, ...vacuum];
  return wrong.length > 0
    ? found
    : [ok('durability', 'fsync, full_page_writes and synchronous_commit are on'), ...found];
}

function role({ isSuperuser, isEncrypted }: DatabaseFacts, { config, machine }: Facts): Found {
  if (config.DATABASE_URL === '') return [];
  const found: Finding[] = [];
  if (isSuperuser)
    found.push(
      warning(
        'role',
        'the service connects as a superuser of the database',
        'Give it a role that only owns its database: see docs/deployment.md.',
      ),
    );
  const { hostname } = new URL(withFirstHost(config.DATABASE_URL));
  // In a container, a name without a dot is a service in the network of Compose or Kubernetes.
  const isNeighbor = machine.inImage && !hostname.includes('.') && !hostname.includes(':');
  if (!isEncrypted && hostname !== '' && !isLoopbackName(hostname))
    found.push(
      (isNeighbor ? note : warning)(
        'role',
        `the connection to the database on ${hostname} is not encrypted`,
        'Add ?sslmode=verify-full to DATABASE_URL, unless the network between is private.',
      ),
    );
  return found;
}

/** Connections that must stay free for an operator and a command. */
const SPARE_CONNECTIONS = 5;

function connections({ settings, connections: used }: DatabaseFacts, { config, service }: Facts): Found {
  const most = Number(settings.max_connections) - Number(settings.superuser_reserved_connections);
  const needed = config.WORKERS * connectionsOf(config);
  const free = most - used;
  if (service.readyStatus === null ? free >= needed : free >= SPARE_CONNECTIONS) return [];
  return warning(
    'connections',
    `${used} of ${most} connections of the database are in use; the service takes up to ${needed}`,
    'Raise max_connections, or use fewer.',
  );
}

/** A backup and a retention run lock every partition and its index. */
function locks({ settings, partitions }: DatabaseFacts): Found {
  const table =
    Number(settings.max_locks_per_transaction) *
    (Number(settings.max_connections) + Number(settings.max_prepared_transactions));
  if (partitions * 2 < table * 0.8) return [];
  return warning(
    'locks',
    `${partitions} partitions need ${partitions * 2} of ${table} locks: backups will soon fail`,
    'Raise max_locks_per_transaction and restart PostgreSQL, or set RETENTION_DAYS.',
  );
}

const LONG_SNAPSHOT_SECONDS = 900;
/** Where PostgreSQL does not tell a snapshot's age: so many transactions are not begun within minutes. */
const LONG_SNAPSHOT_TRANSACTIONS = 1_000_000;

function transactions({ oldestSnapshot, idleSlots }: DatabaseFacts): Found {
  const found: Finding[] = [];
  const { name, seconds, transactions: since } = oldestSnapshot ?? { name: '', seconds: 0, transactions: 0 };
  const isLong = seconds === null ? since > LONG_SNAPSHOT_TRANSACTIONS : seconds > LONG_SNAPSHOT_SECONDS;
  if (isLong)
    found.push(
      warning(
        'transactions',
        `${name} has a snapshot in use${seconds === null ? ` since ${since} transactions` : ` for ${Math.round(seconds / 60)} minutes`}: rows deleted since cannot be vacuumed`,
        'End it: pg_terminate_backend for a process. Set idle_in_transaction_session_timeout.',
      ),
    );
  if (idleSlots.length > 0)
    found.push(
      warning(
        'transactions',
        `the replication slots ${idleSlots.join(', ')} are inactive: the write-ahead log grows until the disk is full`,
        'Drop them, or set max_slot_wal_keep_size.',
      ),
    );
  return found;
}

const CLOCK_WARNING_MS = 1_000;
const CLOCK_PROBLEM_MS = 60_000;

function clock({ clockAheadMs, clockErrorMs, clockStoodMs, eventsInFuture }: DatabaseFacts): Found {
  const off = Math.max(0, Math.abs(clockAheadMs) - clockErrorMs);
  const text = `the database's clock is ${(off / 1_000).toFixed(1)} s ${clockAheadMs > 0 ? 'ahead of' : 'behind'} this machine's`;
  const advice = 'Run NTP (chrony or systemd-timesyncd) on both.';
  const found: Finding[] = [];
  if (off >= CLOCK_PROBLEM_MS) found.push(problem('clock', text, advice));
  else if (off >= CLOCK_WARNING_MS) found.push(warning('clock', text, advice));
  if (clockStoodMs > 0)
    found.push(
      problem(
        'clock',
        'the clocks have jumped by more than an hour, or by days since the service ran: what is deleted by time waits',
        'Correct them. If they are right, do nothing: the service believes them after a day of running.',
      ),
    );
  if (eventsInFuture > 0)
    found.push(
      warning(
        'clock',
        `${eventsInFuture} events are dated more than a day in the future`,
        'A producer or server clock was wrong; retention will keep these events longer.',
      ),
    );
  return found.length > 0 ? found : ok('clock', 'the clocks of the database and this machine agree');
}

function retention(database: DatabaseFacts, facts: Facts): Found {
  const { expiredApps } = database;
  if (expiredApps === null || expiredApps.length === 0) return retentionOfAll(database, facts);
  return [
    ...[retentionOfAll(database, facts)].flat(),
    warning(
      'retention of apps',
      `rows that the retention of ${expiredApps.slice(0, 3).join(', ')}${expiredApps.length > 3 ? ` and ${expiredApps.length - 3} more` : ''} hides are not removed after more than a day`,
      'The running service removes them: check that it runs, that no "tidemark copy" is in progress, and its log for failures of "expired rows".',
    ),
  ];
}

function retentionOfAll(database: DatabaseFacts, { config, now }: Facts): Found {
  if (config.RETENTION_DAYS === 0)
    return note(
      'retention',
      'events are kept forever',
      'Set RETENTION_DAYS if a law or the disk requires it.',
    );
  const due = now - (config.RETENTION_DAYS + 2) * DAY_MS;
  if (database.events > 0 && (database.retentionBoundary ?? Number.NEGATIVE_INFINITY) < due)
    return warning(
      'retention',
      `RETENTION_DAYS=${config.RETENTION_DAYS}, and older events are still readable`,
      'The running service applies it every ten minutes: check that it runs with this setting.',
    );
  return ok('retention', `${config.RETENTION_DAYS} days`);
}

/** Whoever else compresses does it without regard to older snapshots: reads miss late rows for a moment. */
function compression({ compression: facts }: DatabaseFacts, { config, now }: Facts): Found {
  if (facts === null) return [];
  const found = facts.policies.map((job) =>
    warning(
      'compression',
      `${job} compresses events beside the service: reads may miss late events at that moment`,
      'The service compresses by itself and removes such policies within ten minutes: do not add them. See docs/deployment.md.',
    ),
  );
  const due = now - config.COMPRESS_AFTER_DAYS * DAY_MS;
  const early = config.COMPRESS_AFTER_DAYS === 0 ? [] : facts.chunks.filter(({ end }) => end > due);
  if (early.length > 0)
    found.push(
      warning(
        'compression',
        `${early.map(({ name }) => name).join(', ')} was compressed by hand or by another program, before COMPRESS_AFTER_DAYS=${config.COMPRESS_AFTER_DAYS}`,
        'Lower COMPRESS_AFTER_DAYS rather than call compress_chunk or convert_to_columnstore. See docs/deployment.md.',
      ),
    );
  return found;
}

/** Days until the disk is full at the rate of the last seven days. */
function daysUntilFull({ bytes, events, eventsOfWeek }: DatabaseFacts, freeBytes: number): number {
  return events === 0 || eventsOfWeek === 0
    ? Number.POSITIVE_INFINITY
    : freeBytes / ((bytes / events) * (eventsOfWeek / 7));
}

function disk(database: DatabaseFacts, { config, machine }: Facts): Found {
  const size = `the database takes ${gibibytes(database.bytes)}`;
  if (config.DATABASE_URL !== '' || machine.disk === null) return ok('disk', size);
  // A full disk was reported first.
  if (isFull(machine.disk)) return [];
  const { freeBytes, totalBytes } = machine.disk;
  const days = daysUntilFull(database, freeBytes);
  const pace = Number.isFinite(days) ? `; at last week's rate it is full in ${Math.floor(days)} days` : '';
  const found = `${size}; ${gibibytes(freeBytes)} of ${gibibytes(totalBytes)} are free${pace}`;
  const advice = 'Add disk space, set RETENTION_DAYS, or migrate to TimescaleDB, which compresses events.';
  if (freeBytes < GIBIBYTE || days < 3) return problem('disk', found, advice);
  if (freeBytes < totalBytes * 0.1 || days < 30) return warning('disk', found, advice);
  return ok('disk', found);
}

function gibibytes(bytes: number): string {
  return `${(bytes / GIBIBYTE).toFixed(bytes < 10 * GIBIBYTE ? 1 : 0)} GiB`;
}

/** At full load a second's counts are some 25,000 rows. */
const MAINTENANCE_BEHIND = 200_000;

function maintenance({ pendingCounts }: DatabaseFacts, { service: { readyStatus } }: Facts): Found {
  if (pendingCounts < MAINTENANCE_BEHIND) return ok('maintenance', 'counts are up to date');
  return warning(
    'maintenance',
    `${pendingCounts} count changes are not added up yet: totals stay exact, but reads get slower`,
    readyStatus === 200
      ? 'See the log of the service for failures of its maintenance.'
      : 'Start the service: it does this every second.',
  );
}

/** Counts that differ are reported by day, for "tidemark recount". */
function counts({ counts: check }: DatabaseFacts): Found {
  if (check === null) return [];
  const { days, unfinished } = check;
  const wrong = days.filter(({ differing }) => differing > 0);
  const found = wrong.map(({ day, differing, examples: [first] }) =>
    problem(
      'counts',
      `${differing} of ${utcDay(day)} differ from the rows${first === undefined ? '' : `, such as ${describe(first)}`}`,
      `Run "tidemark recount --from ${utcDay(day)}", and please report this as a bug.`,
    ),
  );
  if (unfinished.length > 0)
    found.push(
      note('counts', `${unfinished.map(utcDay).join(', ')} could not be compared with the rows in time`),
    );
  if (wrong.length > 0 || days.length === 0) return found;
  return [
    ok('counts', `they agree with the rows of ${days.map(({ day }) => utcDay(day)).join(', ')}`),
    ...found,
  ];
}

function describe({ level, app, type, field, bucket, counted, expected }: CountDifference): string {
  const ofType = type === null ? app : `${type} of ${app}`;
  const whose = field === undefined ? ofType : `${spellPath(field.path)} ${field.value} of ${ofType}`;
  return `${whose}, ${level.replace('_', '-')} ${new Date(bucket).toISOString()}: ${counted} instead of ${expected}`;
}
