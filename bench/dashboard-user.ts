/** Somebody who looks at the dashboard: an account with a session, and the requests that its pages make. */
import { requireEmail } from '../src/accounts/email.ts';
import { grantRole } from '../src/accounts/members.ts';
import { Passwords } from '../src/accounts/passwords.ts';
import { createProvedUser } from '../src/accounts/sign-up.ts';
import type { Installation } from './installation.ts';

const EMAIL = requireEmail('dashboard@example.org');
const PASSWORD = 'correct horse battery';

/** Makes the account, once in an installation, and lets it see these apps. */
export async function addDashboardUser(
  { sql }: Pick<Installation, 'sql'>,
  appIds: readonly string[],
): Promise<void> {
  const [known] = await sql`SELECT FROM users WHERE email = ${EMAIL.text}`;
  if (known === undefined) await createProvedUser(sql, new Passwords(), { email: EMAIL, password: PASSWORD });
  for (const appId of appIds) await grantRole(sql, { appId, email: EMAIL, role: 'owner' });
}

/** @returns the Cookie header of a session */
export async function signIn(port: number): Promise<string> {
  const response = await fetch(`http://127.0.0.1:${port}/api/session`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ email: EMAIL.text, password: PASSWORD }),
  });
  const cookie = response.headers.get('set-cookie')?.split(';')[0];
  if (response.status !== 200 || cookie === undefined)
    throw new Error(`The dashboard's user can not sign in: ${response.status} ${await response.text()}`);
  return cookie;
}

export interface SeriesRange {
  /** Milliseconds since 1970. */
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
