/** Findings about settings, machine and running service: pure functions of the collected facts. */
import { isPublicAddress } from '../../delivery/addresses.ts';
import { isLoopbackName } from '../../http/client-address.ts';
import { usesNode } from '../../http/server.ts';
import type { Facts } from './facts.ts';
import { type Finding, type Found, note, ok, problem, warning } from './finding.ts';

/** In order of importance. A check that does not apply returns no finding. */
export const SETTINGS_CHECKS: readonly ((facts: Facts) => Found)[] = [
  service,
  node,
  openFiles,
  publicUrl,
  proxy,
  signUp,
  limits,
  redis,
  oidc,
  journal,
  quarantine,
  dataFolder,
  secret,
];

const SHORTEST_SECRET = 32;

function service({ service: { readyStatus }, config }: Facts): Found {
  if (config.PORT === 0)
    return note('service', 'PORT=0 takes a free port: cannot check whether it is running');
  const place = `${config.HOST} port ${config.PORT}`;
  if (readyStatus === 200) return ok('service', `it is running on ${place} and is ready`);
  if (readyStatus === null) return note('service', `no answer on ${place}: it is not running here`);
  return problem(
    'service',
    `it is running on ${place} but is not ready (${readyStatus})`,
    'See the response of GET /readyz for the reason.',
  );
}

function node({ machine, config }: Facts): Found {
  if (machine.hasUws && config.HTTP_TRANSPORT !== 'node') {
    const isBehindProxy = usesNode(config.HTTP_TRANSPORT, config.TRUST_PROXY);
    const transport = isBehindProxy
      ? 'on node:http, whose idle connections outlast those of proxies'
      : 'with uWebSockets.js';
    return ok('node', `Node ${machine.nodeVersion} ${transport}`);
  }
  return note(
    'node',
    `Node ${machine.nodeVersion} on node:http`,
    'It works, but is slower: docs/deployment.md says how to install uWebSockets.js.',
  );
}

const FEW_FILES = 4_096;

function openFiles({ machine: { openFiles: limit, inImage } }: Facts): Found {
  if (limit === null || limit >= FEW_FILES) return [];
  return warning(
    'files',
    `a process may have ${limit} files and sockets open`,
    inImage
      ? 'Each connection is one: raise it with "ulimits: nofile" of the service, or in the container runtime.'
      : 'Each connection is one: raise it, for example LimitNOFILE=65536 in systemd.',
  );
}

function publicUrl({ config, machine: { inImage }, service: { publicUrl: found } }: Facts): Found {
  if (found === null) {
    if (inImage)
      return warning(
        'tls',
        'PUBLIC_URL is not set: whether the port is published for other machines cannot be seen in a container',
        'Publish it on 127.0.0.1 only, or put HTTPS in front: docs/deployment.md has a profile for it.',
      );
    return isLoopbackName(config.HOST)
      ? note('tls', 'PUBLIC_URL is not set: for this machine only')
      : problem(
          'tls',
          `it listens on ${config.HOST} and PUBLIC_URL is not set: passwords and tokens are sent unencrypted`,
          'Put a proxy with HTTPS in front, listen on 127.0.0.1, and set PUBLIC_URL=https://….',
        );
  }
  if (!config.PUBLIC_URL.startsWith('https:')) {
    const host = new URL(config.PUBLIC_URL).hostname;
    return isLoopbackName(host)
      ? note('tls', 'PUBLIC_URL is on this machine')
      : problem(
          'tls',
          'PUBLIC_URL is http: passwords and tokens are sent unencrypted',
          'Set up a certificate, and set PUBLIC_URL=https://….',
        );
  }
  if (found.status === null) {
    return warning(
      'tls',
      `PUBLIC_URL cannot be reached from here (${found.failure})`,
      'Unless this is intended, check name, port and certificate.',
    );
  }
  return certificate(found.status, found.certificateDays ?? 0, found.hasStrictTransport);
}

const CERTIFICATE_DAYS = 14;

function certificate(status: number, days: number, hasStrictTransport: boolean): Found {
  const found: Finding[] = [];
  if (status !== 200) {
    found.push(
      warning(
        'tls',
        `PUBLIC_URL answers ${status} to GET /livez`,
        'Let the proxy pass every path to the service.',
      ),
    );
  } else if (!hasStrictTransport) {
    found.push(
      warning(
        'tls',
        'answers there have no Strict-Transport-Security',
        'Restart the service with this PUBLIC_URL, and let the proxy keep the header.',
      ),
    );
  }
  if (days < CERTIFICATE_DAYS) {
    found.push(
      warning(
        'tls',
        `the certificate expires in ${Math.floor(days)} days`,
        'Renew it, and check that renewal is automatic.',
      ),
    );
  }
  return found.length > 0
    ? found
    : ok('tls', `PUBLIC_URL answers; its certificate expires in ${Math.floor(days)} days`);
}

function proxy({ config, machine: { inImage }, oneAddress = null }: Facts): Found {
  // In a container HOST is always 0.0.0.0 or ::, and the container network controls access.
  if (config.TRUST_PROXY > 0 && !isLoopbackName(config.HOST) && !inImage) {
    return warning(
      'proxy',
      `TRUST_PROXY=${config.TRUST_PROXY}, and it listens on ${config.HOST}: clients that bypass the proxy can claim any address`,
      'Listen on 127.0.0.1, or allow only the proxy through the firewall.',
    );
  }
  if (config.TRUST_PROXY === 0 && config.PUBLIC_URL.startsWith('https:')) {
    return warning(
      'proxy',
      'PUBLIC_URL is https, so there is a proxy, and with TRUST_PROXY=0 all users share its address and its sign-in limits',
      'Set TRUST_PROXY to the number of your own proxies in front, usually 1.',
    );
  }
  const address = oneAddress?.address.split('/', 1)[0] ?? '';
  // Without PUBLIC_URL people of this machine need no proxy.
  const isOfThisMachine = config.PUBLIC_URL === '' && isLoopbackName(address);
  if (oneAddress !== null && !isPublicAddress(address) && !isOfThisMachine) {
    // One account may be the only one of its network; several have a proxy in common.
    const isAlone = oneAddress.accounts === 1;
    const found = isAlone ? 'the one account' : `all ${oneAddress.accounts} accounts`;
    return (isAlone ? note : warning)(
      'proxy',
      `${found} of the last hour ${isAlone ? 'has a' : 'have one'} private address, ${oneAddress.address}: it ${isAlone ? 'may be' : 'is'} that of a proxy that TRUST_PROXY=${config.TRUST_PROXY} does not count, and ${isAlone ? 'all accounts would' : 'they'} share its limits`,
      'Set TRUST_PROXY to the number of your own proxies in front, each of which adds an address to X-Forwarded-For. Where they do share that address, as behind a VPN, nothing is wrong.',
    );
  }
  return ok('proxy', config.TRUST_PROXY === 0 ? 'none is trusted' : `${config.TRUST_PROXY} trusted`);
}

function signUp({ config, database }: Facts): Found {
  if (config.ALLOW_SIGNUP === 'open')
    return warning(
      'sign-up',
      'ALLOW_SIGNUP=open: anyone can create an account',
      'Use "first" to require an invitation.',
    );
  if (database !== null && 'accounts' in database && database.accounts === 0)
    return note(
      'sign-up',
      'there is no account yet',
      'Follow the link that is printed at start, or run "tidemark user create".',
    );
  return ok('sign-up', `ALLOW_SIGNUP=${config.ALLOW_SIGNUP}`);
}

function limits({ config }: Facts): Found {
  const lifted = (['CREATE_LIMIT_PER_MINUTE', 'READ_LIMIT_PER_MINUTE'] as const).filter(
    (name) => config[name] === 0,
  );
  if (lifted.length === 0) return [];
  return warning(
    'limits',
    `${lifted.join(' and ')} lifted: one app can use all capacity`,
    'Set a limit, unless this is intended.',
  );
}

function oidc({ oidc: facts }: Facts): Found {
  if (facts === null) return [];
  if (facts.problem !== null)
    return warning(
      'oidc',
      `sign-in at the issuer is off: ${facts.problem}`,
      'Correct the settings OIDC_…, or the clock. Sessions go on meanwhile.',
    );
  return ok('oidc', `${facts.issuer} answers; it must know the redirect address ${facts.redirectUri}`);
}

function redis({ config, redis: facts }: Facts): Found {
  if (facts === null) return [];
  if (facts.failure !== '')
    return warning(
      'redis',
      `it cannot be reached (${facts.failure}): limits are per process`,
      'Start it, or correct REDIS_URL; limits then become shared automatically.',
    );
  if (facts.evictionPolicy !== '' && facts.evictionPolicy !== 'noeviction')
    return warning(
      'redis',
      `maxmemory-policy is ${facts.evictionPolicy}: windows of limits can be evicted`,
      'Set maxmemory-policy noeviction.',
    );
  if (
    config.REDIS_URL.startsWith('redis:') &&
    !isLoopbackName(new URL(config.REDIS_URL.split(',')[0] ?? '').hostname)
  )
    return note(
      'redis',
      'it answers; the connection is not encrypted',
      'Use rediss:// unless the network between is private.',
    );
  return ok('redis', 'it answers: limits are shared by all processes');
}

function journal({ config, machine: { journalDisk } }: Facts): Found {
  if (config.JOURNAL_DIR === '')
    return note(
      'journal',
      'there is none: while the database is unavailable, producers get 503',
      'Set JOURNAL_DIR to a folder on a local disk to accept events meanwhile.',
    );
  if (journalDisk === null) return note('journal', `the next start creates ${config.JOURNAL_DIR}`);
  const most = config.JOURNAL_MAX_BYTES * config.WORKERS;
  if (journalDisk.freeBytes < most)
    return warning(
      'journal',
      `its disk has less space (${journalDisk.freeBytes} bytes) than the journal may use (${most} bytes)`,
      'Use another disk, or lower JOURNAL_MAX_BYTES, which applies per process.',
    );
  return ok('journal', `in ${config.JOURNAL_DIR}, with enough space`);
}

function quarantine({ machine: { quarantinedEvents: events } }: Facts): Found {
  if (events === 0) return [];
  return warning(
    'quarantine',
    `${events} events of the journal could not be stored`,
    'See "tidemark journal list", then "tidemark journal import" or "tidemark journal drop".',
  );
}

function dataFolder({ machine: { dataDirMode }, config }: Facts): Found {
  // Started by root, the embedded PostgreSQL runs as another user, whose group must pass through the folder, and no more.
  const allowed = config.DATABASE_URL === '' ? 0o710 : 0o700;
  if (dataDirMode === null || (dataDirMode & ~allowed) === 0) return [];
  return warning(
    'folder',
    `DATA_DIR ${config.DATA_DIR} is accessible to other users (mode ${dataDirMode.toString(8)})`,
    `chmod 700 ${config.DATA_DIR}`,
  );
}

function secret({ config, machine: { secretFile }, secretFingerprint, database }: Facts): Found {
  const expected = database !== null && 'secretFingerprint' in database ? database.secretFingerprint : null;
  if (expected !== null && secretFingerprint !== null && expected !== secretFingerprint)
    return problem(
      'secret',
      'SECRET differs from the original one of this database: older logging tokens cannot be shown',
      'Restore the original SECRET, or rotate those tokens.',
    );
  if (config.SECRET !== '')
    return ok('secret', `from the settings${expected === null ? '' : ', matches this database'}`);
  if (secretFile === 'absent')
    return expected === null
      ? note('secret', 'the first start will create one')
      : problem(
          'secret',
          'it is missing from DATA_DIR, and a start would create another',
          'Restore the file "secret" from a backup, or set SECRET.',
        );
  if (secretFile === 'unreadable')
    return problem(
      'secret',
      'its file in DATA_DIR cannot be read',
      'Give this user read access, or set SECRET.',
    );
  if (secretFile.characters < SHORTEST_SECRET)
    return problem('secret', 'its file in DATA_DIR is damaged', 'Restore it from a backup, or set SECRET.');
  if ((secretFile.mode & 0o077) !== 0)
    return problem(
      'secret',
      `other users can read its file (mode ${secretFile.mode.toString(8)})`,
      `Run chmod 600 ${config.DATA_DIR}/secret, and rotate the logging tokens if it may have been read.`,
    );
  return ok('secret', 'in a file in DATA_DIR that only this user can read');
}
