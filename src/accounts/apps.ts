/** Apps: what events, event types and tokens belong to. */
import type { Sql } from '../database/connect.ts';
import { issueLoggingToken } from './logging-tokens.ts';
import { checkName } from './name.ts';
import type { Secret } from './secret.ts';
import { createPublicId } from './token-text.ts';

/** An app as its owner sees it in a list. */
export interface App {
  readonly appId: string;
  readonly name: string;
  readonly createdAt: Date;
}

/**
 * Makes an app with its first logging token.
 * @throws AccountError INVALID_NAME
 */
export async function createApp(
  sql: Sql,
  secret: Secret,
  { name }: { name: string },
): Promise<{ appId: string; name: string; loggingToken: string }> {
  checkName(name);
  const appId = createPublicId('app');
  return await sql.begin(async (tx) => {
    const [app] = await tx<[{ id: number }]>`
      INSERT INTO apps (public_id, name) VALUES (${appId}, ${name}) RETURNING id`;
    const loggingToken = await issueLoggingToken(tx, secret, app.id);
    return { appId, name, loggingToken };
  });
}

/** All apps, in the order in which they were made. */
export async function listApps(sql: Sql): Promise<App[]> {
  return [
    ...(await sql<
      App[]
    >`SELECT public_id AS "appId", name, created_at AS "createdAt" FROM apps ORDER BY apps.id`),
  ];
}
