/** The dashboard's side of the service: everything under /api and the pages, put together from its parts. */

import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { AuthLog } from '../accounts/log/auth-log.ts';
import { Background } from '../accounts/mail/background.ts';
import { Mailer } from '../accounts/mail/mail.ts';
import { Notices } from '../accounts/mail/notices.ts';
import { OidcIssuer, oidcSettings } from '../accounts/oidc/issuer.ts';
import { OidcSignIn } from '../accounts/oidc/sign-in.ts';
import { Setup } from '../accounts/people/setup.ts';
import { SignUp } from '../accounts/people/sign-up.ts';
import { Api } from '../accounts/routes/api.ts';
import { memberRoutes } from '../accounts/routes/members.ts';
import { oidcRoutes } from '../accounts/routes/oidc.ts';
import { peopleRoutes } from '../accounts/routes/people.ts';
import { secondFactorRoutes } from '../accounts/routes/second-factor.ts';
import { sessionRoutes } from '../accounts/routes/sessions.ts';
import { KnownDevices } from '../accounts/sessions/known-devices.ts';
import { Sessions } from '../accounts/sessions/sessions.ts';
import { CodeChecks } from '../accounts/sign-in/code-checks.ts';
import { PasswordChange } from '../accounts/sign-in/password-change.ts';
import { PasswordReset } from '../accounts/sign-in/password-reset.ts';
import { Passwords } from '../accounts/sign-in/passwords.ts';
import { SecondFactorChange } from '../accounts/sign-in/second-factor-change.ts';
import { SecondFactors } from '../accounts/sign-in/second-factors.ts';
import { SignIn } from '../accounts/sign-in/sign-in.ts';
import { SignInChallenges } from '../accounts/sign-in/sign-in-challenge.ts';
import { SharedSignInLimits, SignInLimits } from '../accounts/sign-in/sign-in-limits.ts';
import type { OidcShown } from '../api-types/answers.ts';
import { applyGroups, endReading, suspendGroups } from '../apps/groups.ts';
import { appRoutes } from '../apps/routes/apps.ts';
import { boardRoutes } from '../apps/routes/boards.ts';
import { retentionRoutes } from '../apps/routes/retention.ts';
import { tokenRoutes } from '../apps/routes/tokens.ts';
import { typeSchemaRoutes } from '../apps/routes/type-schemas.ts';
import { usageRoutes } from '../apps/routes/usage.ts';
import type { Secret } from '../apps/secret.ts';
import type { Shares } from '../apps/shares.ts';
import { rolesThat } from '../base/roles.ts';
import { DAY_MS, HOUR_MS, SECOND_MS } from '../base/time-units.ts';
import type { Config } from '../config.ts';
import { digestRoutes } from '../delivery/digest/routes.ts';
import { deliveryRoutes } from '../delivery/routes.ts';
import { erasureRoutes } from '../erasure/routes.ts';
import { type Assets, readAssets } from '../http/assets.ts';
import type { ReadSlots } from '../http/read-slots.ts';
import type { Route } from '../http/route.ts';
import type { ShareRecords } from '../limits/shared-records.ts';
import { readVersion } from '../process/version.ts';
import { annotationRoutes } from '../read/annotations/annotation-routes.ts';
import { annotationsRead } from '../read/annotations/annotations-read.ts';
import type { ReadCall } from '../read/app-read.ts';
import { producerSeriesRoute } from '../read/charts/producer-series.ts';
import { dashboardReadRoutes } from '../read/dashboard-routes.ts';
import { eventRead, eventsRead } from '../read/events/events-read.ts';
import { auditExportRoute } from '../read/export/audit-export-route.ts';
import { exportRead } from '../read/export/export-read.ts';
import type { Exports } from '../read/export/exports.ts';
import { fieldRoutes } from '../read/fields/field-routes.ts';
import { fieldsRead } from '../read/fields/fields-read.ts';
import { valuesRead } from '../read/fields/values-read.ts';
import { LiveFeeds } from '../read/live/live-feeds.ts';
import { liveRead } from '../read/live/live-read.ts';
import { type QueryReadOptions, queryRead } from '../read/query/query-read.ts';
import { shareRoutes } from '../read/sharing/share-admin.ts';
import { embeddersOf, sharedRoutes } from '../read/sharing/share-link.ts';
import { typedRoutes } from '../read/typed/typed-routes.ts';
import { typesRead } from '../read/types-read.ts';
import { SchemaProver } from '../schema/schema-text.ts';
import { connect, endPool, type Sql } from '../storage/database/connect.ts';
import type { Database } from '../storage/database/database.ts';
import type { Storage } from '../storage/storage.ts';
import type { Opened } from './opened.ts';
import type { SignInStats } from './service-metrics.ts';

export interface DashboardOptions {
  readonly config: Config;
  readonly database: Database;
  readonly storage: Storage;
  readonly secret: Secret;
  /** Generation of the database: what was signed for another one is not valid. */
  readonly generation: string;
  readonly log: Logger;
  readonly wall: () => number;
  /** Milliseconds since 1970, by which time passes for what is destroyed or hidden. */
  readonly judged?: () => number;
  readonly monotonic: () => number;
  /** Called after every change, before its answer: what the process remembers of tokens and apps is out of date. */
  readonly onChange: () => void;
  /** Brings to the database what this process has counted of the usage of apps. */
  readonly writeUsage: () => Promise<void>;
  /** Whether to make the link to the first account. */
  readonly offersSetup: boolean;
  /** Exports of the whole process, also those of tokens: they have a common limit. */
  readonly exports: Exports;
  /** What queries share with those of tokens. */
  readonly queries: Omit<QueryReadOptions, 'mayRead'>;
  /** Records that processes have in common. */
  readonly share: ShareRecords;
  /** The turns of all reads of the process. */
  readonly slots: ReadSlots;
  /** Finds the shares of links. */
  readonly shares: Shares;
  /** Folder of the built dashboard. */
  readonly assets?: string;
}

export interface Dashboard {
  readonly routes: readonly Route[];
  /** The page for a browser at an address where nothing is. */
  readonly notFoundPage: Assets['notFound'];
  readonly feeds: LiveFeeds;
  /** The path of the one-time link to the first account; null where there is an account, or none may be made so. */
  readonly setupPath: string | null;
  /** For metrics. */
  signIns(): SignInStats;
}

/**
 * Connections for sign-ins, sessions, and the roles of members. The parts that know them are made by {@link createAccounts}, and no
 * route of an app is one of them: whatever such a route waits for, it must not delay a sign-in.
 */
const ACCOUNT_CONNECTIONS = 2;
/** Connections for what routes of apps change and list: one account has a share of them. Reads of events have others. */
const CONNECTIONS = 2;
/** Connections of the live feeds: their polls must not wait for charts, nor charts for them. */
const LIVE_CONNECTIONS = 2;
/** Connections of the dashboard: those above, and one for the access checks of live feeds. */
export const DASHBOARD_CONNECTIONS = ACCOUNT_CONNECTIONS + CONNECTIONS + LIVE_CONNECTIONS + 1;

/** The built pages, in dist/ also when this file runs from src/. */
const BUILT = fileURLToPath(new URL('../../dist/dashboard', import.meta.url));

/** @param opened takes the ways to close its parts: background work is waited for before the connections to the database close */
export async function createDashboard(options: DashboardOptions, opened: Opened): Promise<Dashboard> {
  const {
    config,
    database,
    secret,
    wall,
    judged = wall,
    monotonic,
    exports,
    slots,
    shares,
    assets = BUILT,
  } = options;
  const accountSql = connect(database, {
    connections: ACCOUNT_CONNECTIONS,
    ...{ name: 'tidemark accounts', kind: 'dashboard' },
  });
  const sql = connect(database, { connections: CONNECTIONS, name: 'tidemark dashboard', kind: 'dashboard' });
  opened.push(() => Promise.all([accountSql, sql].map(endPool)));
  const prover = new SchemaProver();
  opened.push(() => prover.close());
  const accounts = createAccounts(options, accountSql, opened);
  const { api, mailer, passwords, setup } = accounts;
  const feeds = openFeeds(options, accounts.sessions, opened);
  const allowed = signUpOf(config);

  const mayRead = (call: ReadCall): Promise<boolean> => isStillMember(accountSql, accounts.sessions, call);

  const routes: Route[] = [
    ...accounts.routes,
    ...appRoutes({
      api,
      sql,
      secret,
      maxTypesPerApp: config.MAX_EVENT_TYPES_PER_APP,
      maxAppsPerAccount: config.ALLOW_SIGNUP === 'open' ? config.MAX_APPS_PER_ACCOUNT : 0,
      now: wall,
      monotonic,
    }),
    ...tokenRoutes({
      api,
      sql,
      secret,
      maxTokensPerAccount: config.MAX_TOKENS_PER_ACCOUNT,
      writeUsage: options.writeUsage,
      now: wall,
    }),
    ...fieldRoutes({ api, sql }),
    ...boardRoutes({ api, sql }),
    ...shareRoutes({ api, sql, passwords, now: wall }),
    ...sharedRoutes({
      ...{ api, shares, passwords, slots, now: wall, monotonic },
      limits: accounts.attempts,
      keys: accounts.shareKeys,
      timeoutMs: config.REQUEST_TIMEOUT_SECONDS * SECOND_MS,
    }),
    ...deliveryRoutes({ api, sql, secret, config, engine: options.storage.engine, now: wall }),
    ...digestRoutes({ api, sql, sendsMail: config.SMTP_URL !== '', now: judged }),
    ...annotationRoutes({ api, sql, now: wall }),
    ...typedRoutes({ api, now: wall }),
    ...typeSchemaRoutes({ api, sql, prover }),
    ...memberRoutes({ api, sql, mailer, wall, monotonic }),
    ...erasureRoutes({
      ...{ api, sql, storage: options.storage, secret, signIn: accounts.signIn },
      ...{ now: wall, monotonic },
    }),
    auditExportRoute({ api, sql, sessions: accounts.sessions, exports, slots }),
    ...retentionRoutes({ api, sql, settings: config, now: judged }),
    ...usageRoutes({
      api,
      sql,
      writeUsage: options.writeUsage,
      settings: config,
      now: wall,
    }),
    producerSeriesRoute({ api, now: wall, writeUsage: options.writeUsage }),
    ...dashboardReadRoutes({ api, slots, now: wall, monotonic }, [
      eventsRead({ maxPageBytes: config.MAX_PAGE_BYTES, now: wall, monotonic }),
      eventRead(),
      typesRead(),
      annotationsRead(),
      exportRead({ exports, mayRead }),
      fieldsRead({ sql, monotonic }),
      valuesRead({ now: wall, monotonic }),
      queryRead({ ...options.queries, mayRead }),
      liveRead(feeds),
    ]),
  ];
  const pages = await readAssets(assets, (token) => embeddersOf(shares, token));
  routes.push(...pages.routes);
  await passwords.prepare();
  const setupPath = allowed === 'first' && options.offersSetup ? await setup.createPath() : null;
  if (setupPath !== null) accounts.authLog.write('link.create', null, { purpose: 'setup' });
  return { routes, notFoundPage: pages.notFound, feeds, setupPath, signIns: accounts.signIns };
}

/** Whether a session is valid, and its user a member who may read the app. Does not count as a use of the session. */
async function isStillMember(sql: Sql, sessions: Sessions, { holder, app }: ReadCall): Promise<boolean> {
  if (holder.kind !== 'session') return false;
  const [valid, members] = await Promise.all([
    sessions.findValid(sql, [holder.session]),
    sql`
      SELECT FROM app_members JOIN apps ON apps.id = app_id
       WHERE app_id = ${app.id} AND user_id = ${holder.userId} AND suspended_at IS NULL AND role = ANY(${rolesThat('read')})`,
  ]);
  return valid.size > 0 && members.length > 0;
}

/** Sign-up, sign-in and sessions, and the routes of users. */
function createAccounts(options: DashboardOptions, sql: Sql, opened: Opened) {
  const { config, log, wall, judged = wall, monotonic } = options;
  const { accounts: keys } = options.secret;
  const publicUrl = config.PUBLIC_URL;
  const allowed = signUpOf(config);
  const passwords = new Passwords({ now: monotonic, log });
  const background = new Background(log);
  const authLog = new AuthLog({ log, now: monotonic });
  const mailer =
    config.SMTP_URL === '' ? null : new Mailer({ url: config.SMTP_URL, from: config.MAIL_FROM, log });
  opened.push(() => mailer?.close());
  opened.push(() => background.idle());
  const sessions = new Sessions({
    sql,
    secure: publicUrl.startsWith('https:'),
    idleMs: config.SESSION_IDLE_HOURS * HOUR_MS,
    maxMs: config.SESSION_MAX_DAYS * DAY_MS,
    devices: new KnownDevices(keys.devices),
    now: wall,
    judged,
  });
  const setup = new Setup({ sql, host: config.HOST, publicUrl, now: wall });
  const onlyBreakGlass = config.OIDC_ONLY;
  const { signIn, codes, secondFactors, limits, attempts, shareKeys } = createSignIn(options, {
    sql,
    sessions,
    passwords,
  });
  const addresses = config.SESSION_ADDRESSES;
  const common = { sql, publicUrl, passwords, mailer, background, wall, monotonic };
  const api = new Api({
    sql,
    slots: options.slots,
    sessions,
    authLog,
    notices: new Notices({ ...common, addresses, log }),
    addresses,
    publicUrl,
    trustedProxies: config.TRUST_PROXY,
    onChange: options.onChange,
    wall,
    monotonic,
  });
  const oidc = createOidc(options, { api, sql, sessions, passwords, authLog });
  const routes = [
    ...sessionRoutes({
      api,
      sql,
      sessions,
      signIn,
      setup,
      mailer,
      allowed,
      oidc: oidc.shown,
      version: readVersion(),
    }),
    ...oidc.routes,
    ...peopleRoutes({
      api,
      sessions,
      signIn,
      signUp: new SignUp({ ...common, allowed, setup, mailsPerHour: config.MAX_SIGN_UP_MAILS_PER_HOUR }),
      passwordChange: new PasswordChange({ sql, passwords, sessions, signIn, now: monotonic }),
      passwordReset: new PasswordReset({ ...common, onlyBreakGlass, endReading }),
      mailer,
    }),
    ...secondFactorRoutes({
      api,
      sql,
      secondFactors,
      change: new SecondFactorChange({ sql, sessions, secondFactors, codes, signIn }),
    }),
  ];
  const signIns = (): SignInStats => ({ passwords: passwords.stats, throttled: limits.throttled });
  return { api, attempts, authLog, mailer, passwords, routes, sessions, setup, shareKeys, signIn, signIns };
}

/** The two steps of a sign-in, and what limits them. */
function createSignIn(
  { config, secret, generation, share, log, wall, monotonic }: DashboardOptions,
  parts: { readonly sql: Sql; readonly sessions: Sessions; readonly passwords: Passwords },
) {
  const { PUBLIC_URL: publicUrl, OIDC_ONLY: onlyBreakGlass } = config;
  const { secondFactors: key, challenges: challengesKey, attempts, shares } = secret.accounts;
  const limits = new SignInLimits(monotonic);
  const shared = new SharedSignInLimits(limits, share, attempts);
  const secondFactors = new SecondFactors({
    key,
    issuer: publicUrl === '' ? 'Tidemark' : `Tidemark ${new URL(publicUrl).hostname}`,
    now: wall,
    log,
  });
  const challenges = new SignInChallenges({ key: challengesKey, generation, now: wall });
  const codes = new CodeChecks({ sql: parts.sql, limits: shared, secondFactors });
  const signIn = new SignIn({ ...parts, limits: shared, secondFactors, codes, challenges, onlyBreakGlass });
  const shareKeys = new SignInChallenges({ key: shares, generation, now: wall, kind: 'shr' });
  return { signIn, codes, secondFactors, limits, attempts: shared, shareKeys };
}

/** Who can create an account with a password. */
function signUpOf(config: Config): Config['ALLOW_SIGNUP'] {
  return config.OIDC_ONLY ? 'closed' : config.ALLOW_SIGNUP;
}

/** Sign-in at the issuer; without one, or with settings that contradict each other, no routes. */
function createOidc(
  { config, secret, generation, log, wall, monotonic, onChange }: DashboardOptions,
  parts: { api: Api; sql: Sql; sessions: Sessions; passwords: Passwords; authLog: AuthLog },
): { readonly routes: readonly Route[]; readonly shown: () => OidcShown | null } {
  const settings = oidcSettings(config);
  if (typeof settings === 'string') log.warn(`oidc: sign-in at the issuer is off: ${settings}`);
  if (settings === null || typeof settings === 'string') return { routes: [], shown: () => null };
  const issuer = new OidcIssuer({ ...settings, log, now: wall });
  // The start does not wait: what is wrong is logged, and the button says so.
  issuer.check().catch(() => undefined);
  const signIn = new OidcSignIn({
    ...parts,
    issuer,
    key: secret.accounts.oidc,
    generation,
    secure: config.PUBLIC_URL.startsWith('https:'),
    createsAccounts: config.ALLOW_SIGNUP !== 'closed',
    trustsEmail: config.OIDC_TRUST_EMAIL,
    applyGroups,
    suspendGroups,
    now: wall,
  });
  const routes = oidcRoutes({
    ...parts,
    issuer,
    signIn,
    trustedProxies: config.TRUST_PROXY,
    onChange,
    monotonic,
  });
  const { OIDC_NAME: name, OIDC_ONLY: only } = config;
  return { routes, shown: () => ({ name, only, available: issuer.isAvailable }) };
}

/** The live feeds with their connections. */
function openFeeds(
  { config, database, storage, log, wall, monotonic }: DashboardOptions,
  sessions: Sessions,
  opened: Opened,
): LiveFeeds {
  const liveSql = connect(database, { connections: LIVE_CONNECTIONS, name: 'tidemark live', kind: 'live' });
  const accessSql = connect(database, { connections: 1, name: 'tidemark live access', kind: 'live' });
  opened.push(() => Promise.all([liveSql, accessSql].map(endPool)));
  const feeds = new LiveFeeds({
    events: storage.reader(liveSql),
    accessSql,
    validSessions: (digests) => sessions.findValid(accessSql, digests),
    most: {
      all: config.MAX_LIVE_FEEDS,
      ofApp: config.MAX_LIVE_FEEDS_PER_APP,
      ofAccount: config.MAX_LIVE_FEEDS_PER_ACCOUNT,
    },
    log,
    wall,
    monotonic,
  });
  opened.push(() => feeds.close());
  return feeds;
}
