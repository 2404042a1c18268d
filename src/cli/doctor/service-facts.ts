/** Facts of the running service, asked locally and through PUBLIC_URL. */
import { connect as tlsConnect } from 'node:tls';
import { DAY_MS, HOUR_MS } from '../../base/time-units.ts';
import { type Config, localOrigin } from '../../config.ts';
import type { Sql } from '../../storage/database/connect.ts';

export interface ServiceFacts {
  /** Status of GET /readyz at HOST and PORT; null if there is no answer. */
  readonly readyStatus: number | null;
  /** The result at PUBLIC_URL; null if it is not set. */
  readonly publicUrl: PublicUrlFacts | null;
}

export interface PublicUrlFacts {
  /** Status of GET /livez there; null if it cannot be reached. */
  readonly status: number | null;
  /** Why it cannot be reached, empty if it can. */
  readonly failure: string;
  readonly hasStrictTransport: boolean;
  /** Days until the certificate expires; null without https. */
  readonly certificateDays: number | null;
}

/** The one address that all accounts of the last hour have signed in from. */
export interface OneAddress {
  readonly address: string;
  readonly accounts: number;
}

/** @returns null where they have several addresses, or none */
export async function oneAddress(sql: Sql, now: number): Promise<OneAddress | null> {
  const [row] = await sql<{ address: string | null; addresses: number; accounts: number }[]>`
    SELECT min(address) AS address, count(DISTINCT coalesce(address, ''))::integer AS addresses,
           count(DISTINCT user_id)::integer AS accounts
      FROM sessions WHERE last_seen_at > ${new Date(now - HOUR_MS)}`;
  if (row === undefined || row.address === null || row.addresses > 1) return null;
  return { address: row.address, accounts: row.accounts };
}

const TIMEOUT_MS = 5_000;

export async function serviceFacts(config: Config): Promise<ServiceFacts> {
  return {
    readyStatus: await readyStatus(config),
    publicUrl: config.PUBLIC_URL === '' ? null : await publicUrlFacts(config.PUBLIC_URL),
  };
}

async function readyStatus(config: Config): Promise<number | null> {
  // The port is unknown if PORT is 0.
  if (config.PORT === 0) return null;
  const url = `${localOrigin(config.HOST, config.PORT)}/readyz`;
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    await answer.arrayBuffer();
    return answer.status;
  } catch {
    // For any cause, the finding is that it does not answer.
    return null;
  }
}

async function publicUrlFacts(url: string): Promise<PublicUrlFacts> {
  try {
    const options = { signal: AbortSignal.timeout(TIMEOUT_MS), redirect: 'manual' } as const;
    const answer = await fetch(new URL('/livez', url), options);
    await answer.arrayBuffer();
    return {
      status: answer.status,
      failure: '',
      hasStrictTransport: answer.headers.has('strict-transport-security'),
      certificateDays: url.startsWith('https:') ? await certificateDays(new URL(url)) : null,
    };
  } catch (error) {
    return { status: null, failure: reasonOf(error), hasStrictTransport: false, certificateDays: null };
  }
}

/** fetch reports the reason in the cause of its error. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
  if (!(cause instanceof Error)) return String(cause);
  return cause.message === '' && 'code' in cause ? String(cause.code) : cause.message;
}

function certificateDays(url: URL): Promise<number> {
  return new Promise((resolve, reject) => {
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const port = Number(url.port) || 443;
    const socket = tlsConnect({ host, port, servername: host, timeout: TIMEOUT_MS }, () => {
      const end = Date.parse(socket.getPeerCertificate().valid_to);
      socket.destroy();
      resolve((end - Date.now()) / DAY_MS);
    });
    socket.once('timeout', () => socket.destroy(new Error('no answer in time')));
    socket.on('error', reject);
  });
}
