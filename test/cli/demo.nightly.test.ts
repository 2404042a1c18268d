/** `tidemark demo`: the shop is the same each time, believable, and goes away again. */
import { spawn } from 'node:child_process';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { WebShop } from '../../src/cli/demo/web-shop.ts';
import { LAUNCHER } from '../support/command-line.ts';
import { patient } from '../support/patience.ts';
import { newPerson, type Person } from '../support/person.ts';
import { startTestService, type TestService, until } from '../support/service.ts';

const MINUTE = 60_000;
const NOW = Date.parse('2026-11-20T12:34:56Z');

describe('the shop', () => {
  const shop = new WebShop(NOW, 30);

  test('has the same events whether an interval is asked for at once or in parts', () => {
    const from = NOW - 3 * 60 * MINUTE;
    const whole = [...shop.events(from, NOW)];
    const parts = [from, from + 12_345, from + 60 * MINUTE + 1, NOW];
    expect(parts.slice(1).flatMap((until, index) => [...shop.events(parts[index] as number, until)])).toEqual(
      whole,
    );
    expect(whole.length).toBeGreaterThan(300);
  });

  test('has an incident between a deployment and its rollback: errors and failed payments', () => {
    const count = (from: number, until: number, typeName: string): number =>
      [...shop.events(from, until)].filter((event) => event.typeName === typeName).length;
    const at = shop.incidentAt;
    for (const typeName of ['error', 'payment failed']) {
      const during = count(at, at + 38 * MINUTE, typeName);
      expect(during).toBeGreaterThan(5 * Math.max(1, count(at - 38 * MINUTE, at, typeName)));
    }
    expect(count(at, at + 39 * MINUTE, 'deployment')).toBe(2);
  });
});

describe('the command', () => {
  let service: TestService;
  let owner: Person;
  beforeAll(async () => {
    service = await startTestService();
    owner = await newPerson(service, 'owner@example.com');
  });
  afterAll(() => service.stop());

  /** Runs it until it ends, or until it streams. */
  async function demo(
    args: readonly string[],
    isLive = false,
  ): Promise<{ code: number | null; stdout: string; stderr: string }> {
    const env = {
      PATH: process.env.PATH ?? '',
      DATABASE_URL: service.database.url,
      SECRET: 'the secret of the tests, 32 characters',
      PORT: String(service.port),
    };
    const child = spawn(process.execPath, [LAUNCHER, 'demo', ...args], { env });
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (chunk) => (stdout += chunk));
    child.stderr.on('data', (chunk) => (stderr += chunk));
    const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
    if (isLive) {
      const before = await total();
      await until(async () => (await total()) > before, 'a live event is stored', 60_000);
      child.kill('SIGINT');
    }
    return { code: await ended, stdout, stderr };
  }

  const total = async (): Promise<number> => {
    const [row] = await service.sql<{ count: number }[]>`
      SELECT count(*)::integer AS count FROM events JOIN apps ON apps.id = app_id WHERE apps.name = 'Demo web shop'`;
    return row?.count ?? 0;
  };

  test('fills an app of the oldest account, goes on with it, and removes it', {
    timeout: patient(180_000),
  }, async () => {
    const filled = await demo(['--no-live', '--json']);
    expect(filled.code).toBe(0);
    const { appId, events } = JSON.parse(filled.stdout) as { appId: string; events: number };
    expect(events).toBeGreaterThan(200_000);
    expect(await total()).toBe(events);
    expect((await owner.get(`/api/apps/${appId}`)).data).toMatchObject({
      name: 'Demo web shop',
      role: 'owner',
    });

    const live = await demo([], true);
    expect(live.code).toBe(0);
    expect(live.stdout).toContain(appId);

    await owner.patch(`/api/apps/${appId}`, { name: 'Renamed' });
    expect(JSON.parse((await demo(['--remove', '--json'])).stdout)).toEqual({ removed: appId });
    expect((await owner.get(`/api/apps/${appId}`)).status).toBe(404);
    expect(JSON.parse((await demo(['--remove', '--json'])).stdout)).toEqual({ removed: null });
  });

  test('without a service it says what to start', async () => {
    const env = { PATH: process.env.PATH ?? '', PORT: '1', LOG_LEVEL: 'error' };
    const child = spawn(process.execPath, [LAUNCHER, 'demo'], { env });
    let stderr = '';
    child.stderr.on('data', (chunk) => (stderr += chunk));
    const code = await new Promise((resolve) => child.on('close', resolve));
    expect([code, stderr.replace('tidemark: building\n', '')]).toEqual([
      1,
      'tidemark: the service does not answer at http://127.0.0.1:1: start it first (tidemark serve), with the same HOST and PORT\n',
    ]);
  });
});
