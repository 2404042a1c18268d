/** What the migration does to accounts that an earlier release took as proved, and to tokens whose maker it did not keep. */
import { afterEach, describe, expect, test } from 'vitest';
import type { Sql, Transaction } from '../../src/storage/connect.ts';
import { chooseEngine } from '../../src/storage/engine.ts';
import { migrate, readMigrations } from '../../src/storage/migrate.ts';
import { availableEngines, type TestDatabase, testDatabase } from '../support/database.ts';

const MIGRATION = /_invitations_prove_nothing\.sql$/;

/** What the earlier release wrote, each in one transaction. */
class EarlierRelease {
  readonly #sql: Sql;
  #counter = 0;

  constructor(sql: Sql) {
    this.#sql = sql;
  }

  /** Made by an operator, as the first account, or by a mailed link. */
  async account(email: string, proved: boolean): Promise<number> {
    return await this.#sql.begin((tx) => this.#insert(tx, email, proved));
  }

  async app(): Promise<number> {
    const [app] = await this.#sql<[{ id: number }]>`
      INSERT INTO apps (public_id, name) VALUES (${`app_${++this.#counter}`}, 'Shop') RETURNING id`;
    return app.id;
  }

  /** A new account by an invitation. */
  async join(email: string, appId: number): Promise<number> {
    return await this.#sql.begin(async (tx) => {
      const id = await this.#insert(tx, email, true);
      await this.#accept(tx, id, email, appId);
      return id;
    });
  }

  /** An account that is there accepts an invitation. */
  async accept(id: number, email: string, appId: number): Promise<void> {
    await this.#sql.begin(async (tx) => {
      await tx`UPDATE users SET email_proved_at = coalesce(email_proved_at, now()) WHERE id = ${id}`;
      await this.#accept(tx, id, email, appId);
    });
  }

  async token(maker: number | null, appId: number): Promise<string> {
    const tokenId = `tok_${++this.#counter}`;
    await this.#sql.begin(async (tx) => {
      const [token] = await tx<[{ id: number }]>`
        INSERT INTO resource_tokens (public_id, digest, name) VALUES (${tokenId}, sha256(${tokenId}::bytea), 'R') RETURNING id`;
      await tx`INSERT INTO resource_token_apps (token_id, app_id) VALUES (${token.id}, ${appId})`;
      await tx`
        INSERT INTO audit_entries (app_id, user_id, actor, action, details)
        VALUES (${appId}, ${maker}, 'x', 'resource-token.create', ${tx.json({ tokenId, name: 'R' })})`;
    });
    return tokenId;
  }

  async #insert(tx: Transaction, email: string, proved: boolean): Promise<number> {
    const [user] = await tx<[{ id: number }]>`
      INSERT INTO users (public_id, email, email_key, password_hash, email_proved_at)
      VALUES (${`usr_${++this.#counter}`}, ${email}, ${email}, 'x', CASE WHEN ${proved} THEN now() END) RETURNING id`;
    return user.id;
  }

  async #accept(tx: Transaction, id: number, email: string, appId: number): Promise<void> {
    await tx`INSERT INTO app_members (app_id, user_id, role) VALUES (${appId}, ${id}, 'maintainer')`;
    await tx`
      INSERT INTO audit_entries (app_id, user_id, actor, action, details)
      VALUES (${appId}, ${id}, ${email}, 'invitation.accept', ${tx.json({ email, role: 'maintainer' })})`;
  }
}

describe.each(availableEngines())('on %s', (engine) => {
  let database: TestDatabase;
  afterEach(() => database.drop());

  /** A database of the earlier release, and the way to this one. */
  const earlier = async (): Promise<{
    release: EarlierRelease;
    sql: Sql;
    upgrade: () => Promise<unknown>;
  }> => {
    database = await testDatabase(engine, { empty: true });
    const { sql } = database;
    const kind = (await chooseEngine(sql)).engine;
    const known = await readMigrations(kind);
    const own = known.findIndex(({ name }) => MIGRATION.test(name));
    expect(own).toBeGreaterThan(0);
    await migrate(sql, kind, known.slice(0, own));
    return { release: new EarlierRelease(sql), sql, upgrade: () => migrate(sql, kind) };
  };

  test('accounts that an invitation proved are unproved and keep their apps; all others stay as they are', async () => {
    const { release, sql, upgrade } = await earlier();
    const [one, two] = [await release.app(), await release.app()];
    await release.account('operator@example.com', true);
    await release.account('unproved@example.com', false);
    await release.join('joined@example.com', one);
    const accepting = await release.account('accepting@example.com', false);
    await release.accept(accepting, 'accepting@example.com', one);
    // Proved before by something else: the invitation did not prove it.
    const proved = await release.account('proved-before@example.com', true);
    await release.accept(proved, 'proved-before@example.com', one);
    // Its invitation's app is gone, which the audit log has outlived.
    await release.join('of-deleted-app@example.com', two);
    await sql`DELETE FROM apps WHERE id = ${two}`;
    await upgrade();
    const rows = await sql<{ email: string; proved: boolean }[]>`
      SELECT email, email_proved_at IS NOT NULL AS proved FROM users ORDER BY id`;
    expect(Object.fromEntries(rows.map(({ email, proved: is }) => [email.split('@')[0], is]))).toEqual({
      operator: true,
      unproved: false,
      joined: false,
      accepting: false,
      'proved-before': true,
      'of-deleted-app': false,
    });
    const members = await sql`SELECT FROM app_members WHERE app_id = ${one}`;
    expect(members).toHaveLength(3);
  });

  test('resource tokens get the maker that the audit log names', async () => {
    const { release, sql, upgrade } = await earlier();
    const app = await release.app();
    const maker = await release.account('maker@example.com', true);
    const [own, ofCommandLine] = [await release.token(maker, app), await release.token(null, app)];
    await upgrade();
    const rows = await sql`SELECT public_id, created_by FROM resource_tokens ORDER BY id`;
    expect([...rows]).toEqual([
      { public_id: own, created_by: maker },
      { public_id: ofCommandLine, created_by: null },
    ]);
  });
});
