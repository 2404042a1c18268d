/** Where PostgreSQL is: one server or several that take turns, and how the way to it is encrypted. */
import { readFileSync } from 'node:fs';
import type { ConnectionOptions } from 'node:tls';
import { OperatorError } from '../../errors.ts';
import type { ServerWatch } from './server-watch.ts';

/** Where PostgreSQL is: a URL, or the Unix socket of the embedded one. */
export type DatabaseAddress = (
  | { readonly url: string }
  | { readonly host: string; readonly port: number; readonly user: string; readonly database: string }
) & {
  /** Whoever looks after the connections to it; without one each is on its own. */
  readonly watch?: ServerWatch;
};

/** One place where a server may listen. */
export type Target = { readonly path: string } | { readonly host: string; readonly port: number };

/** What is to be asked of a server before it is used (libpq's target_session_attrs). */
export type SessionAttributes = 'any' | 'read-write';

export interface ServerAddress {
  /** In the order in which they are tried; at least one. */
  readonly targets: readonly Target[];
  readonly attributes: SessionAttributes;
  /** Null: the connection is not encrypted. */
  readonly tls: (ConnectionOptions & { readonly negotiates: boolean }) | null;
  /** For the clients, which need neither hosts nor encryption of it: user, password, database and the rest. */
  readonly url: string;
}

const DEFAULT_PORT = 5432;
/** Parameters of the URL that are ours: PostgreSQL's clients for Node do not agree on them, and no server knows them. */
const OWN_PARAMETERS = [
  'sslmode',
  'ssl',
  'sslrootcert',
  'sslcert',
  'sslkey',
  'sslnegotiation',
  'uselibpqcompat',
  'target_session_attrs',
] as const;
/** A server that takes writes is what the service needs: a primary is one that is not read-only. */
const ATTRIBUTES: Readonly<Record<string, SessionAttributes>> = {
  any: 'any',
  'read-write': 'read-write',
  primary: 'read-write',
};

/** The same URL with its first host alone, which every URL parser takes. */
export function withFirstHost(url: string): string {
  return withHosts(url, hostsOf(url).split(',', 1)[0] ?? '');
}

/** The same with other hosts. */
export function withHosts(url: string, hosts: string): string {
  const { from, until } = authorityOf(url);
  return url.slice(0, from) + hosts + url.slice(until);
}

/** The hosts of a URL, with their ports; `a:1,b`. */
export function hostsOf(url: string): string {
  const { from, until } = authorityOf(url);
  return url.slice(from, until);
}

/** Where the hosts stand in a URL: behind the password, in which an @ may be. */
function authorityOf(url: string): { from: number; until: number } {
  const start = url.indexOf('://') + 3;
  const length = url.slice(start).search(/[/?#]/);
  const until = length < 0 ? url.length : start + length;
  return { from: Math.max(start, url.lastIndexOf('@', until) + 1), until };
}

/** @throws OperatorError where a parameter is not understood, or a certificate cannot be read */
export function readServerAddress(text: string): ServerAddress {
  const url = new URL(withFirstHost(text));
  const { searchParams } = url;
  const attributes = ATTRIBUTES[searchParams.get('target_session_attrs') ?? 'any'];
  if (attributes === undefined)
    throw new OperatorError(
      'DATABASE_URL: target_session_attrs must be read-write, primary or any: the service writes',
    );
  const hosts = hostsOf(text).split(',');
  const targets = hosts.map((host) => targetOf(host));
  const tls = readTls(searchParams);
  for (const name of OWN_PARAMETERS) searchParams.delete(name);
  return { targets, attributes, tls, url: url.href };
}

function targetOf(text: string): Target {
  const [, bracketed, name, port] = /^(?:\[([^\]]*)\]|([^:]*))(?::(\d*))?$/.exec(text) ?? [];
  const host = decodeURIComponent(bracketed ?? name ?? '') || process.env.PGHOST || 'localhost';
  const number = Number(port || process.env.PGPORT || DEFAULT_PORT);
  return host.startsWith('/') ? { path: `${host}/.s.PGSQL.${number}` } : { host, port: number };
}

/**
 * What `sslmode` asks for. Encryption without proof of the other end is only what is asked for by the name `no-verify`:
 * every other mode but `disable` has the certificate proved, and its name too unless that is `verify-ca` with a root of its own.
 */
function readTls(parameters: URLSearchParams): ServerAddress['tls'] {
  const file = (name: string): string | undefined => parameters.get(name) ?? undefined;
  const mode = file('sslmode') ?? sslParameter(file('ssl')) ?? process.env.PGSSLMODE ?? 'disable';
  if (mode === 'disable' && file('sslnegotiation') !== 'direct') return null;
  const root = file('sslrootcert');
  return {
    negotiates: file('sslnegotiation') !== 'direct',
    ...(root !== undefined && root !== 'system' && { ca: readCertificate('sslrootcert', root) }),
    ...(file('sslcert') !== undefined && { cert: readCertificate('sslcert', file('sslcert') ?? '') }),
    ...(file('sslkey') !== undefined && { key: readCertificate('sslkey', file('sslkey') ?? '') }),
    ...(mode === 'no-verify' && { rejectUnauthorized: false }),
    // Of a certificate of a public authority, anybody has one.
    ...(mode === 'verify-ca' && root !== undefined && { checkServerIdentity: () => undefined }),
  };
}

function sslParameter(value: string | undefined): string | undefined {
  if (value === undefined) return undefined;
  if (['true', '1'].includes(value)) return 'verify-full';
  return ['false', '0'].includes(value) ? 'disable' : value;
}

function readCertificate(name: string, path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    throw new OperatorError(
      `DATABASE_URL: ${name}: ${path} cannot be read (${error instanceof Error ? error.message : error})`,
    );
  }
}
