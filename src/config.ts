/** The single table of settings. docs/settings.md and `tidemark serve --help` are generated from it. */
import { readFileSync } from 'node:fs';
import { totalmem } from 'node:os';
import { hostsOf, withFirstHost, withHosts } from './base/url-hosts.ts';
import { OperatorError } from './errors.ts';

/** Parses the environment's text; throws an Error whose message completes "NAME: ". */
type Parse<T> = ((text: string) => T) & { readonly unit?: string };

interface Setting<T> {
  readonly default: string;
  /** Unit of the value, for the table; empty if it has none. */
  readonly unit: string;
  readonly meaning: string;
  readonly parse: Parse<T>;
}

/** @param unit shown in the table */
function integer(min: number, max: number, unit = ''): Parse<number> {
  const parse = (text: string): number => {
    const value = Number(text);
    if (!/^\d+$/.test(text) || value < min || value > max) {
      throw new Error(`must be a whole number from ${min} to ${max}, not "${text}"`);
    }
    return value;
  };
  return Object.assign(parse, { unit });
}

const MIB = 1_048_576;

/**
 * A share of the memory of this process: one part in 64, from 16 to 64 MiB.
 * @param memory what the machine has, or the limit of the container; in bytes
 */
export function roomForBodies(memory: number): number {
  return Math.round(Math.min(Math.max(memory / 64, 16 * MIB), 64 * MIB));
}

/** 0 and more than the machine has both say that there is no limit. */
function availableMemory(): number {
  const limit = process.constrainedMemory();
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem();
}

const bodiesBytes: Parse<number> = Object.assign(
  (text: string) =>
    text === 'auto' ? roomForBodies(availableMemory()) : integer(65_536, 4_294_967_296)(text),
  { unit: 'bytes' },
);

function oneOf<const T extends string>(...choices: readonly T[]): (text: string) => T {
  return (text) => {
    const found = choices.find((choice) => choice === text);
    if (found === undefined) throw new Error(`must be one of ${choices.join(', ')}, not "${text}"`);
    return found;
  };
}

const text = (value: string): string => value;
const flag = (value: string): boolean => oneOf('true', 'false')(value) === 'true';

function secret(value: string): string {
  if (value !== '' && value.length < 32) throw new Error('must have at least 32 characters');
  return value;
}

/** A token that is valid after "Bearer " in a header. */
function bearerToken(value: string): string {
  if (value !== '' && value.length < 16) throw new Error('must have at least 16 characters');
  if (!/^[\x21-\x7e]*$/.test(value))
    throw new Error('must consist of visible ASCII characters, without spaces');
  return value;
}

/** A setting that is an address, or empty. What uses it decodes it: a password with a bare % would fail there. */
function address(parse: (value: string) => string): (value: string) => string {
  return (value) => {
    if (value === '') return '';
    try {
      if (decodeURIComponent(value).includes('\0')) throw new URIError();
    } catch {
      // It may contain a password, so it is not quoted.
      throw new Error(
        'has a % that does not begin an encoded character: write %25 for a % of a user name, a password or a path',
      );
    }
    return parse(value);
  };
}

/** The parts of an address of HTTP without a user; null: it is none. */
function httpUrl(value: string): URL | null {
  const url = URL.canParse(value) ? new URL(value) : null;
  const hasMore = url !== null && url.search + url.hash + url.username + url.password !== '';
  return url === null || !/^https?:$/.test(url.protocol) || hasMore ? null : url;
}

/** An address as a message may show it: without what may be a password. */
function withoutUser(value: string): string {
  const at = value.lastIndexOf('@');
  return at < 0 ? value : `…${value.slice(at)}`;
}

/** Also of `copy --from` and `--to`. */
export const databaseUrl = address((value) => {
  if (!/^postgres(ql)?:\/\//.test(value)) throw new Error('must start with postgres:// or postgresql://');
  if (!URL.canParse(withFirstHost(value)))
    throw new Error(
      'is no valid URL: write postgres://user:password@host:5432/database, with special characters in the password percent-encoded',
    );
  return value;
});

/** The address of an OIDC issuer, with a slash at its end where it has one, and in other ways as all write it. */
const issuerUrl = address((value) => {
  const url = httpUrl(value);
  if (url === null)
    throw new Error(
      `must be an address like https://login.example.com/realms/staff, not "${withoutUser(value)}"`,
    );
  return url.pathname === '/' && !value.trimEnd().endsWith('/') ? url.origin : url.origin + url.pathname;
});

/** Scopes of OAuth, separated by spaces (RFC 6749, 3.3). */
function scopes(value: string): string {
  if (
    !/^[\x21\x23-\x5b\x5d-\x7e]+( [\x21\x23-\x5b\x5d-\x7e]+)*$/.test(value) ||
    !value.split(' ').includes('openid')
  )
    throw new Error(`must be scopes separated by single spaces, "openid" among them, not "${value}"`);
  return value;
}

function buttonText(value: string): string {
  if (value.length > 60) throw new Error('must have at most 60 characters');
  return value;
}

/** An origin; a trailing slash is removed. */
const publicUrl = address((value) => {
  const url = httpUrl(value);
  if (url === null || url.pathname !== '/')
    throw new Error(
      `must be an address without a path and a user, such as https://events.example.com, not "${withoutUser(value)}": the service needs a host of its own`,
    );
  return url.origin;
});

/** Where archives lie: a folder, or a bucket. Credentials are in the variables of AWS. */
const archiveUrl = address((value) => {
  const url = URL.canParse(value) ? new URL(value) : null;
  const isFolder = url?.protocol === 'file:' && url.host === '' && url.pathname.length > 1;
  const isBucket = url?.protocol === 's3:' && /^[a-z0-9][a-z0-9.-]{1,62}$/.test(url.host);
  if (url === null || !(isFolder || isBucket) || url.search + url.hash + url.username + url.port !== '')
    throw new Error(
      'must be like file:///var/lib/tidemark-archive or s3://bucket/prefix, without credentials',
    );
  return value;
});

/** The address of a server, without what would be lost or shown. */
const serverUrl = address((value) => {
  if (httpUrl(value) === null)
    throw new Error(`must be like https://s3.example.com, not "${withoutUser(value)}"`);
  return value.endsWith('/') ? value.slice(0, -1) : value;
});

const smtpUrl = address((value) => {
  // The value contains a password, so it is not quoted.
  if (!(URL.canParse(value) && /^smtps?:\/\//.test(value)))
    throw new Error('must be like smtps://user:password@mail.example.com:465');
  return value;
});

const redisUrl = address((value) => {
  // The value may contain a password, so it is not quoted.
  const isRedis = (url: string): boolean => URL.canParse(url) && /^rediss?:\/\/[^/]/.test(url);
  if (!value.split(',').every(isRedis)) {
    throw new Error(
      'must be like redis://user:password@host:6379/0 or rediss://…, or several of those for a Redis Cluster, ' +
        'separated by commas, with special characters in the password percent-encoded',
    );
  }
  return value;
});

function keyPrefix(value: string): string {
  if (!/^[\w:.-]{1,64}$/.test(value)) throw new Error(`must be letters, digits and : . _ -, not "${value}"`);
  return value;
}

function row<T>(value: string, meaning: string, parse: Parse<T>): Setting<T> {
  return { default: value, unit: parse.unit ?? '', meaning, parse };
}

/** Every setting: environment variable → default, meaning, parser with its unit. */
export const SETTINGS = {
  HOST: row('127.0.0.1', 'Address to listen on.', text),
  PORT: row('8080', 'Port to listen on. 0 takes a free port.', integer(0, 65_535)),
  DATA_DIR: row('.tidemark', 'Folder of the embedded PostgreSQL and of the generated secret.', text),
  DATABASE_URL: row('', 'PostgreSQL 15 or newer to use instead of the embedded one.', databaseUrl),
  PGPASSWORD_FILE: row('', 'File with the password for DATABASE_URL, for a URL that has none.', text),
  SECRET: row(
    '',
    'Seals logging tokens at rest, at least 32 characters. Empty: one is generated into DATA_DIR.',
    secret,
  ),
  PUBLIC_URL: row(
    '',
    'Address at which users reach the dashboard, for links: a host of its own, without a path. With https, cookies and browsers stay with https.',
    publicUrl,
  ),
  ALLOW_SIGNUP: row(
    'first',
    'Who can create an account: first (the first user, then by invitation), open (everyone), closed (only the command line).',
    oneOf('first', 'open', 'closed'),
  ),
  MAX_APPS_PER_ACCOUNT: row(
    '20',
    'Apps that an account can own while ALLOW_SIGNUP is open. 0 lifts the limit.',
    integer(0, 1_000_000, 'apps'),
  ),
  MAX_TOKENS_PER_ACCOUNT: row(
    '100',
    'Valid resource tokens that an account can have created. Tokens of the command line do not count. 0 lifts the limit.',
    integer(0, 1_000_000, 'tokens'),
  ),
  MAX_SIGN_UP_MAILS_PER_HOUR: row(
    '5',
    'Sign-up mails that a process sends to one mailbox in any hour. 0 lifts the limit.',
    integer(0, 1_000_000, 'mails'),
  ),
  SMTP_URL: row(
    '',
    'Mail server of all mails (invitations, password resets, security notices, alerts, weekly mails), such as smtps://user:password@mail.example.com:465; needs PUBLIC_URL. Empty: there are no mails, and links are shown and have to be handed over.',
    smtpUrl,
  ),
  MAIL_FROM: row('Tidemark <tidemark@localhost>', 'Sender of all mails.', text),
  OIDC_ISSUER: row(
    '',
    'OpenID Connect issuer that users sign in with; needs PUBLIC_URL, OIDC_CLIENT_ID and a client secret.',
    issuerUrl,
  ),
  OIDC_CLIENT_ID: row('', 'Id of this service at the issuer.', text),
  OIDC_CLIENT_SECRET: row('', 'Secret of this service at the issuer.', text),
  OIDC_CLIENT_SECRET_FILE: row('', 'File with that secret, in place of OIDC_CLIENT_SECRET.', text),
  OIDC_NAME: row('single sign-on', 'Text of the button: "Sign in with" this name.', buttonText),
  OIDC_SCOPES: row('openid email profile', 'Scopes that are asked of the issuer.', scopes),
  OIDC_ONLY: row(
    'false',
    'true: no sign-in, sign-up or reset by password, except for accounts of "tidemark user create --break-glass".',
    flag,
  ),
  OIDC_TRUST_EMAIL: row(
    'false',
    'true: an email that the issuer calls verified counts as verified here.',
    flag,
  ),
  OIDC_GROUPS_CLAIM: row(
    '',
    'Claim with the groups of a user, such as groups. Empty: groups give no roles.',
    text,
  ),
  SESSION_IDLE_HOURS: row(
    '168',
    'A session ends when it has not been used for this long.',
    integer(1, 8_760, 'hours'),
  ),
  SESSION_MAX_DAYS: row(
    '30',
    'A session ends this long after its sign-in, even if it is used.',
    integer(1, 3_650, 'days'),
  ),
  SESSION_ADDRESSES: row(
    'full',
    'What of a client address is stored with a session and mailed to its user: full, network (the first 24 bits of IPv4, 48 of IPv6) or none.',
    oneOf('full', 'network', 'none'),
  ),
  TRUST_PROXY: row(
    '0',
    'Number of your own proxies in front, each of which adds an address to X-Forwarded-For. 0 ignores that header.',
    integer(0, 10, 'proxies'),
  ),
  METRICS_TOKEN: row(
    '',
    'Bearer token with which other machines can read GET /metrics, at least 16 characters. Empty: only the same machine can.',
    bearerToken,
  ),
  AUDIT_LOG: row(
    '',
    'File to which the audit log of all apps and accounts is appended as it grows, one JSON object a line; - is standard output. Empty: it is in the database alone.',
    text,
  ),
  LOG_LEVEL: row(
    'info',
    'fatal, error, warn, info, debug, trace or silent.',
    oneOf('fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'),
  ),
  HTTP_TRANSPORT: row(
    'auto',
    'uws (uWebSockets.js), node (node:http), or auto: node behind a proxy (TRUST_PROXY), which keeps idle connections longer; else uws if it has a binary for this Node.',
    oneOf('auto', 'uws', 'node'),
  ),
  CREATE_LIMIT_PER_MINUTE: row(
    '1000',
    'Accepted create requests per app in any 60 seconds. 0 lifts the limit.',
    integer(0, 1_000_000, 'requests'),
  ),
  MAX_APP_CREATE_PER_MINUTE: row(
    '100000',
    'Highest limit of create requests per minute that `tidemark app limit` may give an app in place of `CREATE_LIMIT_PER_MINUTE`. 0: any.',
    integer(0, 1_000_000, 'requests'),
  ),
  MAX_APP_BYTES_PER_DAY: row(
    '0',
    'Highest limit of bytes per day that `tidemark app limit` may give an app. Apps without a limit of their own have none. 0: any.',
    integer(0, Number.MAX_SAFE_INTEGER, 'bytes'),
  ),
  BROWSER_KEY_LIMIT_PER_MINUTE: row(
    '500',
    'Accepted requests per browser key in any 60 seconds. They also count towards `CREATE_LIMIT_PER_MINUTE`, which is never exceeded. 0 lifts the limit.',
    integer(0, 1_000_000, 'requests'),
  ),
  BROWSER_NETWORK_LIMIT_PER_MINUTE: row(
    '120',
    'The same per browser key and network of the client: an IPv4 address, or an IPv6 /64. Each process counts by itself. 0 lifts the limit.',
    integer(0, 1_000_000, 'requests'),
  ),
  READ_LIMIT_PER_MINUTE: row(
    '100',
    'Accepted reads per resource token in any 60 seconds. 0 lifts the limit.',
    integer(0, 1_000_000, 'requests'),
  ),
  READ_LIMIT_TOKENS_PER_ACCOUNT: row(
    '10',
    'All resource tokens of an account together may read as often as this many of them, each with READ_LIMIT_PER_MINUTE. ' +
      '0 lifts the limit.',
    integer(0, 10_000, 'tokens'),
  ),
  QUERY_SECONDS_PER_MINUTE: row(
    '20',
    'How long the queries of a resource token, or of the sessions of an account, may read events in any 60 seconds; an account with its tokens twice as long. 0 lifts the limit.',
    integer(0, 3_600, 'seconds'),
  ),
  REDIS_URL: row(
    '',
    'Redis 6 or newer, through which all processes share limits. For a Redis Cluster several addresses, separated by commas. Empty: each process counts by itself.',
    redisUrl,
  ),
  REDIS_PASSWORD_FILE: row('', 'File with the password for REDIS_URL, for addresses that have none.', text),
  REDIS_PREFIX: row('tidemark', 'Prefix of all keys in Redis.', keyPrefix),
  // A round trip takes a millisecond, but on a machine with both cores busy one in three took more than 50, and one in a
  // hundred more than 250: the fallback is for outages.
  REDIS_TIMEOUT_MS: row(
    '250',
    'Longest time that a request waits for Redis. After it the process decides by its own limits.',
    integer(1, 10_000, 'ms'),
  ),
  WORKERS: row(
    '1',
    'Processes that serve the port together. Values above 1 require REDIS_URL.',
    integer(1, 64, 'processes'),
  ),
  MAX_BODY_BYTES: row('1048576', 'Largest request body.', integer(1_024, 64 * 1_048_576, 'bytes')),
  MAX_BODIES_BYTES: row(
    'auto',
    'Total size of request bodies in the memory of a process; auto: a 64th of the memory that it may use, from 16 to 64 MiB. Beyond it the slowest bodies that are still arriving are cut off with 503, or else the request is refused with 503.',
    bodiesBytes,
  ),
  MAX_BATCH_BYTES: row(
    '10485760',
    'Largest body of a batch of events, after decompression.',
    integer(1_024, 256 * 1_048_576, 'bytes'),
  ),
  MAX_STREAM_BYTES: row(
    '4294967296',
    'Largest body of newline-delimited events on POST /v1/events, after decompression. What is larger than a batch is stored while it arrives.',
    integer(1_024, 1_099_511_627_776, 'bytes'),
  ),
  MAX_PAGE_BYTES: row(
    '33554432',
    'Size of payloads at which a page of events ends early.',
    integer(1_024, 268_435_456, 'bytes'),
  ),
  MAX_EVENT_TYPES_PER_APP: row('10000', 'Event types that an app can have.', integer(1, 10_000_000, 'types')),
  MAX_LIVE_FEEDS: row(
    '500',
    'Live feeds that a process keeps open. A new feed closes one of the account with the most, or is refused with 503.',
    integer(1, 100_000, 'feeds'),
  ),
  MAX_LIVE_FEEDS_PER_APP: row(
    '100',
    'Live feeds of one app, of MAX_LIVE_FEEDS. More are refused with 429.',
    integer(1, 100_000, 'feeds'),
  ),
  MAX_LIVE_FEEDS_PER_ACCOUNT: row(
    '20',
    'Live feeds of one account with its resource tokens, of MAX_LIVE_FEEDS. More are refused with 429.',
    integer(1, 100_000, 'feeds'),
  ),
  NEW_TYPES_PER_MINUTE: row(
    '1000',
    'Event types that one app may create in any 60 seconds by naming them in events. 0 lifts the limit.',
    integer(0, 1_000_000, 'types'),
  ),
  TOKEN_CACHE_SECONDS: row(
    '30',
    'Longest time that a cached token is used without asking the database again.',
    integer(1, 3_600, 'seconds'),
  ),
  RETENTION_DAYS: row(
    '0',
    'Events older than this are removed, whole UTC days at a time. 0 keeps all events.',
    integer(0, 36_500, 'days'),
  ),
  ARCHIVE_URL: row(
    '',
    'Where days of events are archived as Parquet: file:///folder, or s3://bucket/prefix, which needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Empty: nowhere.',
    archiveUrl,
  ),
  ARCHIVE_AFTER_DAYS: row(
    '2',
    'How many days after its end a UTC day is archived.',
    integer(0, 36_500, 'days'),
  ),
  ARCHIVE_KEEP_ROWS: row(
    'false',
    'Whether archived days stay in the database, too. With false their rows leave it a day after their end at the earliest, and are read from the archive.',
    flag,
  ),
  AWS_ACCESS_KEY_ID: row('', 'Access key for the bucket of ARCHIVE_URL.', text),
  AWS_SECRET_ACCESS_KEY: row('', 'Secret of this access key.', text),
  AWS_SESSION_TOKEN: row('', 'Token that belongs to an access key for a limited time.', text),
  AWS_REGION: row('us-east-1', 'Region of the bucket.', text),
  AWS_ENDPOINT_URL: row(
    '',
    'Server of the bucket, where it is not one of Amazon, such as https://s3.example.com.',
    serverUrl,
  ),
  CONSUMER_REACH_HOURS: row(
    '168',
    'How far back a consumer or a webhook may lag. One that lags more is lost, and has to be told where to go on.',
    integer(1, 720, 'hours'),
  ),
  MAX_CONSUMERS_PER_APP: row('100', 'Consumers that an app may have.', integer(0, 10_000)),
  MAX_WEBHOOKS_PER_APP: row('50', 'Webhooks that an app may have.', integer(0, 10_000)),
  MAX_ALERT_RULES_PER_APP: row('200', 'Alert rules that an app may have.', integer(0, 10_000)),
  WEBHOOK_ALLOW_PRIVATE: row(
    'false',
    'Whether webhooks may call addresses of private networks and of this machine, as a receiver in the same network needs. Members of an app then see the first 200 characters of what such an address answers.',
    flag,
  ),
  COMPRESS_AFTER_DAYS: row(
    '7',
    'TimescaleDB only: chunks older than this are moved into the columnstore. 0 leaves them as rows.',
    integer(0, 36_500, 'days'),
  ),
  CHUNK_HOURS: row('24', 'TimescaleDB only: interval of a new chunk of events.', integer(1, 8_760, 'hours')),
  COMMIT_BUFFER_EVENTS: row(
    '20000',
    'Events that can wait for their commit, separately for single events, for batches and for requests with an Idempotency-Key, each apart for past days. Beyond it requests are refused with 503.',
    integer(1, 10_000_000, 'events'),
  ),
  COMMIT_BUFFER_BYTES: row(
    '67108864',
    'The same limit for the memory of their payloads, counted as two bytes per character.',
    integer(65_536, 4_294_967_296, 'bytes'),
  ),
  JOURNAL_DIR: row(
    '',
    'Folder on a local disk for accepted events while the database is unavailable. Empty: events are refused with 503.',
    text,
  ),
  JOURNAL_MAX_BYTES: row(
    '1073741824',
    'Largest journal of a process. Beyond it requests are refused with 503.',
    integer(65_536, 1_099_511_627_776, 'bytes'),
  ),
  COMMIT_CONNECTIONS: row(
    '2',
    'Database connections that write commit groups.',
    integer(1, 32, 'connections'),
  ),
  READ_CONNECTIONS: row(
    '5',
    'Database connections for reads, of the API and of the dashboard. One account gets all but one of them, and half while others wait.',
    integer(1, 100, 'connections'),
  ),
  REQUEST_TIMEOUT_SECONDS: row(
    '30',
    'A request without a response by then gets 503.',
    integer(1, 600, 'seconds'),
  ),
  SHUTDOWN_TIMEOUT_SECONDS: row(
    '20',
    'A stop that has not finished by then ends the process with exit code 1.',
    integer(1, 600, 'seconds'),
  ),
};

export type SettingName = keyof typeof SETTINGS;

/** Parsed settings under the names of their environment variables; frozen. */
export type Config = { readonly [N in SettingName]: ReturnType<(typeof SETTINGS)[N]['parse']> };

/** Inserts the passwords from files into their URLs. */
function withPasswords(config: Config): Config {
  const secretFile = config.OIDC_CLIENT_SECRET_FILE;
  return Object.freeze({
    ...config,
    ...(config.OIDC_CLIENT_SECRET === '' &&
      secretFile !== '' && { OIDC_CLIENT_SECRET: readPassword('OIDC_CLIENT_SECRET_FILE', secretFile) }),
    DATABASE_URL: addPassword(config.DATABASE_URL, 'PGPASSWORD_FILE', config.PGPASSWORD_FILE),
    REDIS_URL: config.REDIS_URL.split(',')
      .map((address) => addPassword(address, 'REDIS_PASSWORD_FILE', config.REDIS_PASSWORD_FILE))
      .join(','),
  });
}

/** @param name the setting that names the file */
function addPassword(address: string, name: string, file: string): string {
  if (address === '' || file === '') return address;
  const url = new URL(withFirstHost(address));
  if (url.password !== '') return address;
  // The setter does not encode %, which the reader of the URL decodes.
  url.password = encodeURIComponent(readPassword(name, file));
  return address === withFirstHost(address) ? url.href : withHosts(url.href, hostsOf(address));
}

function readPassword(name: string, file: string): string {
  let password: string;
  try {
    password = readFileSync(file, 'utf8').trimEnd();
  } catch (error) {
    const reason = error instanceof Error && 'code' in error ? error.code : String(error);
    throw new OperatorError(
      `${name}: ${file} cannot be read (${reason}): let the user of this process read it, or correct the path.`,
    );
  }
  if (password === '') throw new OperatorError(`${name}: ${file} is empty: write the password into it.`);
  return password;
}

/** What only a process that listens needs: Kubernetes sets PORT for a Service of that name, and a command runs beside it. */
const OF_LISTENERS: ReadonlySet<string> = new Set<SettingName>(['HOST', 'PORT']);

/**
 * Reads the settings from an environment. Empty variables count as absent. Passwords from files are part of the addresses.
 * @param options.listens whether a bad HOST or PORT ends it: to a command they say where a service may be
 * @throws OperatorError naming the first variable with a bad value
 */
export function readConfig(
  environment: Readonly<Record<string, string | undefined>>,
  { listens = false }: { readonly listens?: boolean } = {},
): Config {
  const entries = Object.entries(SETTINGS).map(([name, setting]) => {
    const given = environment[name];
    try {
      return [name, setting.parse(given === undefined || given === '' ? setting.default : given)];
    } catch (error) {
      if (!listens && OF_LISTENERS.has(name)) return [name, setting.parse(setting.default)];
      throw new OperatorError(`${name}: ${error instanceof Error ? error.message : String(error)}.`);
    }
  });
  // Each value comes from its own setting's parser, which is what the mapped type says.
  const config = withPasswords(Object.fromEntries(entries) as Config);
  // Otherwise a link in a mail would point to whatever host the request named.
  if (config.SMTP_URL !== '' && config.PUBLIC_URL === '')
    throw new OperatorError('SMTP_URL: links in mails need PUBLIC_URL too.');
  if (config.WORKERS > 1 && config.REDIS_URL === '') {
    throw new OperatorError(
      `WORKERS=${config.WORKERS} needs REDIS_URL: otherwise each process counts by itself, and an app gets ` +
        `${config.WORKERS} times its limit.`,
    );
  }
  return config;
}

/** Where this machine reaches a service that listens on `host`: by loopback, where that is every address. */
export function localOrigin(host: string, port: number): string {
  const local = { '0.0.0.0': '127.0.0.1', '::': '::1' }[host] ?? host;
  return `http://${local.includes(':') ? `[${local}]` : local}:${port}`;
}
