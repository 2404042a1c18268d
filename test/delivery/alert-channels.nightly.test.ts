/** Alerts by way of Alertmanager, wrong input, corrections, and two processes that both judge. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { build, type Outcome, tidemark } from '../support/command-line.ts';
import { RunningClock, startTestService, type TestService, until } from '../support/service.ts';

const ALERTMANAGER = '/usr/bin/prometheus-alertmanager';
if (!existsSync(ALERTMANAGER))
  process.stdout.write(
    '\nSkipped: alerts in a real Alertmanager: not at /usr/bin/prometheus-alertmanager.\n',
  );

let service: TestService;
let folder: string;
const clock = new RunningClock();
const children: ChildProcess[] = [];
beforeAll(async () => {
  build();
  folder = await mkdtemp(join(tmpdir(), 'tidemark-alert-channels-'));
  service = await startTestService({ clock, config: { WEBHOOK_ALLOW_PRIVATE: 'true' } });
}, 120_000);
afterEach(async () => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  await service.sql`DELETE FROM alert_rules`;
  await service.sql`DELETE FROM delivery_messages`;
});
afterAll(async () => {
  await service.stop();
  await rm(folder, { recursive: true, force: true });
});

const run = (...args: string[]): Promise<Outcome> =>
  tidemark(args, {
    DATABASE_URL: service.database.url,
    DATA_DIR: folder,
    SECRET: 'the secret of the tests, 32 characters',
    WEBHOOK_ALLOW_PRIVATE: 'true',
    MAX_ALERT_RULES_PER_APP: '2',
  });
const add = (name: string, rule: object | string, ...args: string[]): Promise<Outcome> => {
  const text = typeof rule === 'string' ? rule : JSON.stringify(rule);
  return run('alert', 'add', '--app', service.app.appId, '--name', name, '--rule', text, '--json', ...args);
};
const post = async (typeName: string, at: number): Promise<void> => {
  const response = await service.request({
    method: 'POST',
    path: '/v1/events',
    headers: { authorization: `Bearer ${service.app.loggingToken}` },
    body: JSON.stringify({ events: [{ typeName, createdAt: new Date(at).toISOString(), payload: {} }] }),
  });
  expect(response.status, response.body).toBe(200);
};
const minute = (): number => Math.floor(clock.wall() / 60_000) * 60_000;
const nextMinute = async (count = 1): Promise<void> => {
  for (let n = 0; n < count; n += 1) {
    clock.advance(minute() + 66_000 - clock.wall());
    const due = new Date(minute());
    await until(async () => {
      const rows = await service.sql`
        SELECT FROM alert_rules WHERE evaluated_at < ${due} OR evaluated_at IS NULL`;
      return rows.length === 0;
    }, 'the round of the minute');
  }
};

async function freePort(): Promise<number> {
  const server = createServer();
  server.on('error', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

test.skipIf(!existsSync(ALERTMANAGER))(
  'a real Alertmanager shows what fires, and forgets what is resolved',
  async () => {
    const config = join(folder, 'alertmanager.yml');
    await writeFile(config, 'route:\n  receiver: none\nreceivers:\n  - name: none\n');
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const child = spawn(
      ALERTMANAGER,
      [
        ...[`--config.file=${config}`, `--storage.path=${join(folder, 'alertmanager')}`],
        ...[`--web.listen-address=127.0.0.1:${port}`, '--cluster.listen-address='],
      ],
      { stdio: 'ignore' },
    );
    child.on('error', () => undefined);
    children.push(child);
    const shown = async (): Promise<{ labels: Record<string, string>; status: { state: string } }[]> => {
      try {
        const response = await fetch(`${url}/api/v2/alerts`);
        return response.ok ? ((await response.json()) as Awaited<ReturnType<typeof shown>>) : [];
      } catch {
        return [];
      }
    };
    await until(async () => {
      try {
        return (await fetch(`${url}/-/ready`)).ok;
      } catch {
        return false;
      }
    }, 'Alertmanager');
    expect(
      (await add('many', { of: 'count', type: 'error', window: '1m', above: 0 }, '--alertmanager', url)).code,
    ).toBe(0);
    await nextMinute();
    await post('error', minute() + 1_000);
    await nextMinute();
    await until(async () => (await shown()).length === 1, 'the alert');
    expect((await shown())[0]).toMatchObject({ labels: { alertname: 'many', app: service.app.appId } });
  },
);
