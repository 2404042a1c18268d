/** A dashboard user: an account with a session, and the requests that its pages make. */
import { requireEmail } from '../../src/accounts/people/email.ts';
import { grantRole } from '../../src/accounts/people/members.ts';
import { createVerifiedUser } from '../../src/accounts/people/sign-up.ts';
import { Passwords } from '../../src/accounts/sign-in/passwords.ts';
import type { Installation } from '../servers/installation.ts';
import type { LoadRequest } from './load-job.ts';

const EMAIL = requireEmail('dashboard@example.org');
const PASSWORD = 'correct horse battery';

/** Makes the account, once in an installation, and lets it see these apps. */
export async function addDashboardUser(
  { sql }: Pick<Installation, 'sql'>,
  appIds: readonly string[],
): Promise<void> {
  const [known] = await sql`SELECT FROM users WHERE email = ${EMAIL.text}`;
  if (known === undefined)
    await createVerifiedUser(sql, new Passwords(), { email: EMAIL, password: PASSWORD });
  for (const appId of appIds) await grantRole(sql, { appId, email: EMAIL, role: 'owner' });
}

const SESSION = { method: 'POST', path: '/api/session' } as const;
const JSON_TYPE = { 'Content-Type': 'application/json' } as const;

/** One attempt, with the right password. @param headers further ones */
export function trySignIn(port: number, headers: Readonly<Record<string, string>> = {}): Promise<Response> {
  return fetch(`http://127.0.0.1:${port}${SESSION.path}`, {
    method: SESSION.method,
    headers: { ...JSON_TYPE, ...headers },
    body: JSON.stringify({ email: EMAIL.text, password: PASSWORD }),
  });
}

/** An attempt with a wrong password, from this address according to the proxy's header. */
export function wrongSignIn(address: string): LoadRequest {
  const body = JSON.stringify({ email: EMAIL.text, password: 'guess {n} of many' });
  return { ...SESSION, headers: { 'X-Forwarded-For': address }, body };
}

/** @returns the Cookie header of a session */
export async function signIn(port: number): Promise<string> {
  const response = await trySignIn(port);
  const cookie = response.headers.get('set-cookie')?.split(';')[0];
  if (response.status !== 200 || cookie === undefined)
    throw new Error(`The dashboard's user cannot sign in: ${response.status} ${await response.text()}`);
  return cookie;
}

export interface SeriesRange {
  /** Milliseconds since the Unix epoch. */
  readonly from: number;
  readonly until: number;
  readonly timezone?: string;
  readonly buckets?: number;
}

export function seriesPath(
  appId: string,
  { from, until, timezone = 'UTC', buckets = 400 }: SeriesRange,
): string {
  const query = new URLSearchParams({
    from: new Date(from).toISOString(),
    to: new Date(until).toISOString(),
    timezone,
    buckets: String(buckets),
  });
  return `/api/apps/${appId}/series?${query}`;
}
