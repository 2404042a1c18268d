import { describe, expect, test } from 'vitest';
import { findings } from '../../../src/cli/doctor/checks.ts';
import type { Facts } from '../../../src/cli/doctor/facts.ts';
import type { MachineFacts } from '../../../src/cli/doctor/machine-facts.ts';
import type { OidcFacts } from '../../../src/cli/doctor/oidc-facts.ts';
import type { RedisFacts } from '../../../src/cli/doctor/redis-facts.ts';
import type { OneAddress, ServiceFacts } from '../../../src/cli/doctor/service-facts.ts';
import { readConfig, type SettingName } from '../../../src/config.ts';
import type { DatabaseFacts } from '../../../src/storage/database-facts.ts';

const DAY_MS = 86_400_000;
const GIBIBYTE = 1_073_741_824;
const NOW = Date.parse('2026-11-20T12:00:00Z');

const MACHINE: MachineFacts = {
  inImage: false,
  nodeVersion: 'v20.20.2',
  hasUws: true,
  dataDirMode: 0o700,
  secretFile: { mode: 0o600, characters: 43 },
  disk: { freeBytes: 80 * GIBIBYTE, totalBytes: 200 * GIBIBYTE },
  journalDisk: { freeBytes: 80 * GIBIBYTE, totalBytes: 200 * GIBIBYTE },
  quarantinedEvents: 0,
  openFiles: 65_536,
};

const DATABASE: DatabaseFacts = {
  description: 'PostgreSQL 18.4',
  engine: 'postgres',
  pendingMigrations: 0,
  settings: {
    fsync: 'on',
    full_page_writes: 'on',
    synchronous_commit: 'on',
    data_checksums: 'on',
    autovacuum: 'on',
    max_connections: '100',
    max_locks_per_transaction: '64',
    max_prepared_transactions: '0',
    superuser_reserved_connections: '3',
  },
  isSuperuser: false,
  isEncrypted: true,
  isReadOnly: false,
  connections: 12,
  partitions: 40,
  oldestSnapshot: { id: '7', name: 'process 7 (pg_dump)', seconds: 0.1, transactions: 3 },
  idleSlots: [],
  clockAheadMs: 4,
  clockErrorMs: 5,
  clockStoodMs: 0,
  secretFingerprint: 'a1',
  accounts: 3,
  bytes: GIBIBYTE,
  events: 7_000_000,
  eventsOfWeek: 700_000,
  eventsInFuture: 0,
  pendingCounts: 900,
  strayRows: [],
  compression: null,
  expiredApps: [],
  retentionBoundary: NOW - 90 * DAY_MS,
  counts: { days: [{ day: Date.parse('2026-11-20'), differing: 0, examples: [] }], unfinished: [] },
};

const READY: ServiceFacts = {
  readyStatus: 200,
  publicUrl: { status: 200, failure: '', hasStrictTransport: true, certificateDays: 60 },
};

const SETTINGS: Partial<Record<SettingName, string>> = {
  PUBLIC_URL: 'https://events.example.com',
  TRUST_PROXY: '1',
  RETENTION_DAYS: '90',
  JOURNAL_DIR: '/var/lib/tidemark/journal',
  REDIS_URL: 'redis://127.0.0.1',
};

const OIDC: OidcFacts = {
  issuer: 'https://login.example.com',
  redirectUri: 'https://events.example.com/sign-in/oidc/callback',
  problem: null,
};

interface Changes {
  readonly settings?: Partial<Record<SettingName, string>>;
  readonly machine?: Partial<MachineFacts>;
  readonly service?: Partial<ServiceFacts>;
  readonly database?: Partial<DatabaseFacts>;
  readonly redis?: Partial<RedisFacts>;
  readonly oidc?: Partial<OidcFacts>;
  readonly fingerprint?: string | null;
  readonly oneAddress?: OneAddress;
}

function installation({
  settings,
  machine,
  service,
  redis,
  oidc,
  database,
  fingerprint = 'a1',
  oneAddress,
}: Changes): Facts {
  return {
    config: readConfig({ ...SETTINGS, ...settings }),
    machine: { ...MACHINE, ...machine },
    service: { ...READY, ...service },
    redis: { failure: '', evictionPolicy: 'noeviction', ...redis },
    oidc: oidc === undefined ? null : { ...OIDC, ...oidc },
    secretFingerprint: fingerprint,
    database: { ...DATABASE, ...database },
    ...(oneAddress !== undefined && { oneAddress }),
    now: NOW,
  };
}

/** What is said beyond ok, as "level check: found". */
function complaints(facts: Facts): string[] {
  return findings(facts)
    .filter(({ level }) => level !== 'ok')
    .map(({ level, check, found }) => `${level} ${check}: ${found}`);
}

test('a sound installation has nothing to change', () => {
  expect(complaints(installation({}))).toEqual([]);
});

const off = (name: string): Changes => ({ database: { settings: { ...DATABASE.settings, [name]: 'off' } } });
const remote = { DATABASE_URL: 'postgres://tidemark:x@db.example.com/tidemark' };

const CASES: readonly [changes: Changes, said: RegExp][] = [
  [off('fsync'), /^problem durability: fsync is off/],
  [off('full_page_writes'), /^problem durability: full_page_writes is off/],
  [off('synchronous_commit'), /^problem durability: synchronous_commit is off/],
  [off('data_checksums'), /^note durability: data checksums are off/],
  [off('autovacuum'), /^warning durability: autovacuum is off/],
  [{ database: { isReadOnly: true } }, /^problem database: it is read-only/],
  [{ database: { pendingMigrations: 2 } }, /^warning database: .*2 migrations behind/],
  [{ settings: remote, database: { isSuperuser: true } }, /^warning role: .*superuser/],
  [
    { settings: remote, database: { isEncrypted: false } },
    /^warning role: .*on db\.example\.com is not encrypted/,
  ],
  [{ database: { connections: 95 } }, /^warning connections: 95 of 97/],
  [{ database: { partitions: 3_000 } }, /^warning locks: 3000 partitions need 6000 of 6400 locks/],
  [
    { database: { oldestSnapshot: { id: '7', name: 'process 7 (psql)', seconds: 7_200, transactions: 3 } } },
    /^warning transactions: process 7 \(psql\) has a snapshot in use for 120 minutes/,
  ],
  [
    {
      database: {
        oldestSnapshot: { id: '7', name: 'process 7 (psql)', seconds: null, transactions: 2_000_000 },
      },
    },
    /^warning transactions: .*in use since 2000000 transactions/,
  ],
  [{ database: { idleSlots: ['old'] } }, /^warning transactions: .*slots old are inactive/],
  [{ database: { clockAheadMs: -2_500 } }, /^warning clock: .*2\.5 s behind/],
  [{ database: { clockAheadMs: 90_000 } }, /^problem clock: .*90\.0 s ahead of/],
  [{ database: { eventsInFuture: 5 } }, /^warning clock: 5 events are dated/],
  [{ settings: { RETENTION_DAYS: '0' } }, /^note retention: .*kept forever/],
  [{ settings: { RETENTION_DAYS: '30' } }, /^warning retention: .*still readable/],
  [
    { database: { expiredApps: ['app_1', 'app_2', 'app_3', 'app_4'] } },
    /^warning retention of apps: .*app_3 and 1 more hide/,
  ],
  [
    { machine: { disk: { freeBytes: 0.3 * GIBIBYTE * 20, totalBytes: 200 * GIBIBYTE } } },
    /^warning disk: .*free/,
  ],
  [
    { database: { strayRows: [{ server: 'db-1:5432', rows: 50 }] } },
    /^problem events: 50 acknowledged events lie where nobody reads them, on db-1:5432/,
  ],
  [
    { database: { compression: { policies: ['job 1007 (policy_compression of events)'], chunks: [] } } },
    /^warning compression: job 1007 .* compresses events beside the service/,
  ],
  [
    { database: { compression: { policies: [], chunks: [{ name: '_hyper_1_7_chunk', end: NOW }] } } },
    /^warning compression: _hyper_1_7_chunk was compressed by hand/,
  ],
  [
    { machine: { disk: { freeBytes: 4096, totalBytes: GIBIBYTE } } },
    /^problem disk: the disk of DATA_DIR .* is full: 0 MiB are free/,
  ],
  [
    { machine: { disk: { freeBytes: GIBIBYTE / 2, totalBytes: 200 * GIBIBYTE } } },
    /^problem disk: .*0\.5 GiB of 200 GiB are free/,
  ],
  [{ database: { eventsOfWeek: 7_000_000, bytes: 300 * GIBIBYTE } }, /^problem disk: .*full in 1 days/],
  [{ database: { pendingCounts: 1e6 } }, /^warning maintenance: .*1000000 count changes/],
  [{ fingerprint: 'b2' }, /^problem secret: .*differs from the original one/],
  [{ machine: { secretFile: 'absent' }, fingerprint: null }, /^problem secret: .*missing from DATA_DIR/],
  [{ machine: { secretFile: 'unreadable' }, fingerprint: null }, /^problem secret: .*cannot be read/],
  [
    { machine: { secretFile: { mode: 0o600, characters: 3 } }, fingerprint: null },
    /^problem secret: .*damaged/,
  ],
  [{ machine: { secretFile: { mode: 0o644, characters: 43 } } }, /^problem secret: .*mode 644/],
  [{ machine: { dataDirMode: 0o755 } }, /^warning folder: .*mode 755/],
  [{ machine: { openFiles: 1_024 } }, /^warning files: .*1024/],
  [{ machine: { hasUws: false } }, /^note node: .*node:http/],
  [{ settings: { ALLOW_SIGNUP: 'open' } }, /^warning sign-up: .*anyone/],
  [{ database: { accounts: 0 } }, /^note sign-up: .*no account/],
  [{ settings: { CREATE_LIMIT_PER_MINUTE: '0' } }, /^warning limits: CREATE_LIMIT_PER_MINUTE lifted/],
  [
    { settings: { PUBLIC_URL: '', TRUST_PROXY: '0', HOST: '0.0.0.0' }, service: { publicUrl: null } },
    /^problem tls: .*unencrypted/,
  ],
  [{ settings: { PUBLIC_URL: 'http://events.example.com' } }, /^problem tls: PUBLIC_URL is http/],
  [{ settings: { TRUST_PROXY: '0' } }, /^warning proxy: .*share its address/],
  [
    { oneAddress: { address: '10.0.0.9', accounts: 2 } },
    /^warning proxy: all 2 accounts of the last hour have one private address, 10\.0\.0\.9: .* TRUST_PROXY=1 does not count/,
  ],
  [
    { oneAddress: { address: '10.0.0.9', accounts: 1 } },
    /^note proxy: the one account of the last hour has a private address, 10\.0\.0\.9: it may be that of a proxy/,
  ],
  [{ settings: { HOST: '0.0.0.0' } }, /^warning proxy: .*bypass the proxy/],
  [
    {
      service: {
        publicUrl: { status: null, failure: 'ENOTFOUND', hasStrictTransport: false, certificateDays: null },
      },
    },
    /^warning tls: .*ENOTFOUND/,
  ],
  [
    { service: { publicUrl: { status: 200, failure: '', hasStrictTransport: true, certificateDays: 3.6 } } },
    /^warning tls: .*expires in 3 days/,
  ],
  [
    { service: { publicUrl: { status: 200, failure: '', hasStrictTransport: false, certificateDays: 60 } } },
    /^warning tls: .*no Strict-Transport-Security/,
  ],
  [
    { service: { publicUrl: { status: 404, failure: '', hasStrictTransport: false, certificateDays: 60 } } },
    /^warning tls: .*answers 404/,
  ],
  [{ service: { readyStatus: 503 } }, /^problem service: .*not ready \(503\)/],
  [{ oidc: { problem: 'fetch failed' } }, /^warning oidc: .*fetch failed/],
  [{ redis: { failure: 'ECONNREFUSED' } }, /^warning redis: .*ECONNREFUSED/],
  [{ redis: { evictionPolicy: 'allkeys-lru' } }, /^warning redis: .*allkeys-lru/],
  [{ settings: { REDIS_URL: 'redis://cache.example.com' } }, /^note redis: .*not encrypted/],
  [{ machine: { quarantinedEvents: 7 } }, /^warning quarantine: 7 events .* not be stored$/],
  [
    {
      database: {
        counts: {
          days: [
            { day: Date.parse('2026-11-18'), differing: 0, examples: [] },
            {
              day: Date.parse('2026-11-19'),
              differing: 3,
              examples: [
                {
                  level: 'quarter_hour',
                  app: 'app_1',
                  type: 'typ_1',
                  bucket: Date.parse('2026-11-19T08:15Z'),
                  counted: 7,
                  expected: 9,
                },
              ],
            },
          ],
          unfinished: [],
        },
      },
    },
    /^problem counts: 3 of 2026-11-19 differ from the rows, such as typ_1 of app_1, quarter-hour 2026-11-19T08:15:00.000Z: 7 instead of 9$/,
  ],
  [
    { database: { counts: { days: [], unfinished: [Date.parse('2026-11-19')] } } },
    /^note counts: 2026-11-19 could not be compared with the rows in time$/,
  ],
  [{ settings: { JOURNAL_DIR: '' } }, /^note journal: .*producers get 503/],
  [
    { machine: { journalDisk: { freeBytes: GIBIBYTE / 2, totalBytes: GIBIBYTE } } },
    /^warning journal: .*less space/,
  ],
  [
    {
      settings: { PUBLIC_URL: '', TRUST_PROXY: '0', HOST: '0.0.0.0' },
      machine: { inImage: true },
      service: { publicUrl: null },
    },
    /^warning tls: .*cannot be seen in a container/,
  ],
  [
    {
      settings: { DATABASE_URL: 'postgres://tidemark@database/tidemark' },
      machine: { inImage: true },
      database: { isEncrypted: false },
    },
    /^note role: .*on database is not encrypted/,
  ],
  [
    { settings: { DATABASE_URL: 'postgres://tidemark@database/tidemark' }, database: { isEncrypted: false } },
    /^warning role: .*on database is not encrypted/,
  ],
  [{ service: { readyStatus: null } }, /^note service: .*not running here/],
];

describe('what is wrong is found, alone, and comes with advice', () => {
  test.each(CASES)('%j: %s', (changes, said) => {
    const told = findings(installation(changes)).filter(({ level }) => level !== 'ok');
    expect(told.map(({ level, check, found }) => `${level} ${check}: ${found}`)).toEqual([
      expect.stringMatching(said),
    ]);
    if (!said.source.startsWith('^note')) expect(told[0]?.advice).toMatch(/\w/);
  });
});

test('the folder of an embedded PostgreSQL that root started lets its group pass, and that of a server does not', () => {
  const machine = { dataDirMode: 0o710 };
  expect(complaints(installation({ machine }))).toEqual([]);
  expect(complaints(installation({ machine, settings: remote }))).toContainEqual(
    expect.stringMatching(/^warning folder: .*mode 710/),
  );
  expect(complaints(installation({ machine: { dataDirMode: 0o750 } }))).toContainEqual(
    expect.stringMatching(/^warning folder: .*mode 750/),
  );
});

test('a container behind a proxy has nothing to change: its network decides who reaches it', () => {
  expect(complaints(installation({ settings: { HOST: '0.0.0.0' }, machine: { inImage: true } }))).toEqual([]);
});

test('an address that cannot be asked hides nothing else', () => {
  const facts = {
    ...installation({ settings: { ALLOW_SIGNUP: 'open' } }),
    database: { unreachable: 'it is away' },
  };
  expect(complaints(facts)).toEqual([
    'warning sign-up: ALLOW_SIGNUP=open: anyone can create an account',
    'problem database: it is away',
  ]);
});

test('the transport is said, and why it is node:http behind a proxy', () => {
  const said = (settings: NonNullable<Changes['settings']>): string[] =>
    findings(installation({ settings }))
      .filter(({ check }) => check === 'node')
      .map(({ found }) => found);
  expect(said({})).toEqual([expect.stringMatching(/node:http, whose idle connections outlast/)]);
  expect(said({ HTTP_TRANSPORT: 'uws' })).toEqual([expect.stringMatching(/with uWebSockets.js/)]);
});
