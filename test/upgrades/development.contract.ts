/**
 * A backup of a version before the first release, made by commit 46bceecf: an app with fields, alerts and webhooks. Databases of these
 * versions are refused; their backups restore, on every engine.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { tidemark } from '../support/command-line.ts';
import { availableEngines, testDatabase } from '../support/database.ts';
import { patient } from '../support/patience.ts';
import { FIXTURES, SECRET } from './fixture.ts';

const FOLDER = join(FIXTURES, 'development');

interface Manifest {
  readonly appId: string;
  readonly stored: readonly string[];
  readonly webhooks: Readonly<Record<'member' | 'operator' | 'paused', string>>;
}

describe.each(availableEngines())('on %s', (engine) => {
  test('a backup of a version before the first release restores, and lacks nothing that came since', {
    timeout: patient(120_000),
  }, async () => {
    const { appId, stored, webhooks }: Manifest = JSON.parse(
      await readFile(join(FOLDER, 'manifest.json'), 'utf8'),
    );
    const database = await testDatabase(engine, { empty: true });
    const { sql } = database;
    try {
      const command = async (...args: string[]): Promise<string> => {
        const { code, stdout, stderr } = await tidemark(args, { SECRET, DATABASE_URL: database.url });
        expect(code, stderr).toBe(0);
        return stdout;
      };
      const restored = await command('restore', join(FOLDER, 'tidemark.backup'), '--json');
      expect(JSON.parse(restored)).toMatchObject({ events: stored.length, apps: 1 });

      const lines = (await command('export', '-', '--app', appId)).trimEnd().split('\n');
      expect(lines.map((line) => JSON.parse(line).id).sort()).toEqual([...stored].sort());
      const { fields } = JSON.parse(await command('field', 'list', '--app', appId, '--json'));
      expect(fields).toMatchObject([
        { path: 'country', kind: 'value' },
        { path: 'amount', kind: 'number', typeName: 'order placed' },
      ]);
      const { alerts } = JSON.parse(await command('alert', 'list', '--app', appId, '--json'));
      expect(alerts.map(({ name }: { name: string }) => name).sort()).toEqual(['Many orders', 'Quiet']);

      const [owner] = await sql<{ id: number }[]>`SELECT id FROM users WHERE email = 'owner@example.com'`;
      expect(
        await sql`SELECT public_id AS id, created_by AS by, stopped_after IS NOT NULL AS stopped FROM webhooks ORDER BY webhooks.id`,
      ).toEqual([
        { id: webhooks.member, by: owner?.id, stopped: false },
        { id: webhooks.operator, by: null, stopped: false },
        { id: webhooks.paused, by: null, stopped: true },
      ]);
      expect(
        await sql`SELECT name, created_by AS by FROM alert_rules ORDER BY name`,
        'what the command line makes is the operator’s',
      ).toEqual([
        { name: 'Many orders', by: owner?.id },
        { name: 'Quiet', by: null },
      ]);
      expect(
        await sql`SELECT count(*)::int AS members, count(opened_at)::int AS opened FROM app_members`,
      ).toEqual([{ members: 2, opened: 2 }]);

      // Of the 67 orders each has a minute of its own.
      expect(
        await sql`SELECT count(*)::int AS minutes FROM uncounted_minutes`,
        'summaries without sums of squares are counted again',
      ).toEqual([{ minutes: engine === 'citus' ? 0 : 67 }]);
      const { findings } = JSON.parse(
        (await tidemark(['doctor', '--json'], { SECRET, DATABASE_URL: database.url })).stdout,
      );
      expect(findings).toContainEqual(expect.objectContaining({ check: 'database', level: 'ok' }));
      expect(findings).not.toContainEqual(expect.objectContaining({ check: 'counts', level: 'problem' }));
    } finally {
      await database.drop();
    }
  });
});
