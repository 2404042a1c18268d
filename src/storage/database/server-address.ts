/** The address of PostgreSQL: one host, or several of which one is the primary, and the encryption. */
import { readFileSync } from 'node:fs';
import type { ConnectionOptions } from 'node:tls';
import { hostsOf, withFirstHost } from '../../base/url-hosts.ts';
import { OperatorError } from '../../errors.ts';

/** The address of PostgreSQL: a URL, or the Unix socket of the embedded server. */
export type DatabaseAddress =
  | { readonly url: string }
  | { readonly host: string; readonly port: number; readonly user: string; readonly database: string };

/** How far a server's write-ahead log is, in bytes as texts; null on a standby. */
export interface WalPositions {
  readonly written: string | null;
  readonly flushed: string | null;
}

/** A host and port where a server may listen. */
export type Target = { readonly path: string } | { readonly host: string; readonly port: number };

/** What a server must be in order to be used (libpq's target_session_attrs). */
export type SessionAttributes = 'any' | 'read-write';

export interface ServerAddress {
  /** In the order in which they are tried; at least one. */
  readonly targets: readonly Target[];
  readonly attributes: SessionAttributes;
  /** Null: the connection is not encrypted. */
  readonly tls: (ConnectionOptions & { readonly negotiates: boolean }) | null;
  /** For the clients: user, password, database and other parameters, without hosts and encryption. */
  readonly url: string;
}

const DEFAULT_PORT = 5432;
/** Parameters of the URL that are handled here: PostgreSQL's clients for Node differ in them, and servers reject them. */
const OWN_PARAMETERS = [
  'sslmode',
  'ssl',
  'sslrootcert',
  'sslcert',
  'sslkey',
  'sslnegotiation',
  'uselibpqcompat',
  'target_session_attrs',
  // The service's own names tell its sessions apart.
  'application_name',
  'fallback_application_name',
] as const;
/** The service needs a server that takes writes: `primary` is treated as `read-write`. */
const ATTRIBUTES: Readonly<Record<string, SessionAttributes>> = {
  any: 'any',
  'read-write': 'read-write',
  primary: 'read-write',
};

/** @throws OperatorError if a parameter is invalid, or a certificate cannot be read */
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
  return targetAt({ host, port: Number(port || process.env.PGPORT || DEFAULT_PORT) });
}

/** @param at.host also the folder of a Unix socket */
export function targetAt({ host, port }: { readonly host: string; readonly port: number }): Target {
  return host.startsWith('/') ? { path: `${host}/.s.PGSQL.${port}` } : { host, port };
}

/**
 * The encryption that `sslmode` asks for. Only `no-verify` encrypts without verifying the server. All other modes except
 * `disable` verify the certificate, and its host name too unless the mode is `verify-ca` with a root certificate of its own.
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
    // A public authority issues certificates to anyone, so the host name must be verified.
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
