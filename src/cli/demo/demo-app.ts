/** The app of `tidemark demo`: made once, found again whatever it is called, and removed with its events. */
import { COMMAND_LINE } from '../../accounts/log/audit.ts';
import { createApp, deleteApp } from '../../apps/apps.ts';
import { currentLoggingToken, rotateLoggingToken } from '../../apps/logging-tokens.ts';
import type { Secret } from '../../apps/secret.ts';
import { OperatorError } from '../../errors.ts';
import type { Sql } from '../../storage/database/connect.ts';

export interface DemoApp {
  readonly appId: string;
  readonly loggingToken: string;
  /** True where this call made it: it has no events yet. */
  readonly isNew: boolean;
}

interface Row {
  readonly id: number;
  readonly appId: string;
  readonly name: string;
}

/** The row of `installation` that has the app's public id. */
const NAME = 'demo app';

/**
 * The app, made where there is none.
 * @param ownerId internal id; null: the only account, or the one that was verified first, if there is any
 */
export async function openDemoApp(sql: Sql, secret: Secret, ownerId: number | null): Promise<DemoApp> {
  const found = await find(sql);
  const owner = ownerId ?? (await likelyOwner(sql));
  if (found !== undefined) {
    if (owner !== null) await ownUnowned(sql, found.id, owner);
    const { loggingToken } = await currentLoggingToken(sql, secret, found.id);
    const token = loggingToken ?? (await rotateLoggingToken(sql, secret, found)).loggingToken;
    return { appId: found.appId, loggingToken: token, isNew: false };
  }
  const { appId, loggingToken } = await createApp(sql, secret, { name: 'Demo web shop', ownerId: owner });
  await sql`
    INSERT INTO installation (name, value) VALUES (${NAME}, ${appId})
    ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value`;
  return { appId, loggingToken, isNew: true };
}

/** Deletes the app. @returns its public id, null where there is none */
export async function removeDemoApp(sql: Sql): Promise<string | null> {
  const found = await find(sql);
  if (found !== undefined) await deleteApp(sql, { appId: found.id, confirm: found.name, by: COMMAND_LINE });
  await sql`DELETE FROM installation WHERE name = ${NAME}`;
  return found?.appId ?? null;
}

async function find(sql: Sql): Promise<Row | undefined> {
  const [row] = await sql<Row[]>`
    SELECT apps.id, apps.public_id AS "appId", apps.name
      FROM installation JOIN apps ON apps.public_id = installation.value
     WHERE installation.name = ${NAME}`;
  return row;
}

/**
 * The account whose the app is most likely: the only one, or the one that was verified first.
 * @returns its internal id; null where there is no account
 * @throws OperatorError where there are several, none of them verified: anyone may have made them
 */
async function likelyOwner(sql: Sql): Promise<number | null> {
  const users = await sql<{ id: number; isVerified: boolean }[]>`
    SELECT id, email_verified_at IS NOT NULL AS "isVerified" FROM users ORDER BY email_verified_at IS NULL, id LIMIT 2`;
  const [first, second] = users;
  if (first === undefined || first.isVerified || second === undefined) return first?.id ?? null;
  throw new OperatorError(
    'no account has a verified email: name the one that is to own the demo with --owner',
  );
}

/** Gives an app an owner, where it has none. */
async function ownUnowned(sql: Sql, appId: number, userId: number): Promise<void> {
  await sql`
    INSERT INTO app_members (app_id, user_id, role)
    SELECT ${appId}::int, ${userId}::int, 'owner'
     WHERE NOT EXISTS (SELECT FROM app_members WHERE app_id = ${appId} AND role = 'owner')
    ON CONFLICT (app_id, user_id) DO UPDATE SET role = 'owner'`;
}
