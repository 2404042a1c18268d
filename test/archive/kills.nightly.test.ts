/**
 * A ledger of an archive whose runs and restores are killed again and again, while late events come and others are sent again: after each
 * kill every event is in one place and is counted once.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { DAY_MS } from '../../src/base/time-units.ts';
import { ServerProcess } from '../e2e/server-process.ts';
import { build, LAUNCHER, tidemark } from '../support/command-line.ts';
import { availableEngines, testDatabase } from '../support/database.ts';
import { seededRandom } from '../support/field-oracle.ts';
import { request } from '../support/http-client.ts';
import { KeyedLedger, readNumbers } from '../support/ledger.ts';
import { FaultyProxy } from '../support/proxy.ts';
import { testSecret } from '../support/service.ts';

const KILLS = 60;
const DAYS = 8;
const ENGINES_OF_ONE_SERVER = availableEngines().filter((engine) => engine !== 'citus');

describe.each(ENGINES_OF_ONE_SERVER)('on %s', (engine) => {
  test.each([1, 2])(
    `${KILLS} kills of the archive lose nothing and double nothing (seed %i)`,
    async (seed) => {
      const random = seededRandom(seed);
      build();
      const folder = await mkdtemp(join(tmpdir(), 'tidemark-archive-kills-'));
      const database = await testDatabase(engine, { prepared: true });
      const { sql } = database;
      const proxy = await FaultyProxy.start(database.address);
      const settings = {
        DATABASE_URL: database.url,
        DATA_DIR: folder,
        SECRET: 'the secret of the tests, 32 characters',
        ...{ CREATE_LIMIT_PER_MINUTE: '0', READ_LIMIT_PER_MINUTE: '0' },
        ...{ ARCHIVE_URL: pathToFileURL(join(folder, 'archive')).href, ARCHIVE_AFTER_DAYS: '1' },
      };
      const throughProxy = new URL(database.url);
      if ('port' in proxy.address) throughProxy.host = `127.0.0.1:${proxy.address.port}`;
      else throughProxy.host = new URL(proxy.address.url).host;
      const server = await ServerProcess.start(settings);
      try {
        const { appId, loggingToken } = await createApp(sql, await testSecret(), { name: 'Killed' });
        const { resourceToken } = await createResourceToken(sql, {
          ...{ name: 'test', appIds: [appId], expiresInSeconds: null },
        });
        const ledger = new KeyedLedger({ loggingToken, port: () => server.port });
        const today = Math.floor(Date.now() / DAY_MS) * DAY_MS;
        const anyTime = (): number => today - (2 + random(DAYS)) * DAY_MS + random(DAY_MS);
        /** With a key an event of a day that is away waits until the service has brought it back. */
        const send = async (count: number, hasKey = false): Promise<void> => {
          for (let left = count; left > 0; left -= 1)
            await ledger.send(random(3) === 0 ? 'order' : 'page view', anyTime(), { hasKey });
        };

        /** A command that is killed when it sends something to the database for the n-th time. @returns how often it did, and how it ended */
        const command = async (args: readonly string[], killedAt: number) => {
          const child = spawn(process.execPath, [LAUNCHER, ...args], {
            env: { PATH: process.env.PATH ?? '', ...settings, DATABASE_URL: throughProxy.href },
            stdio: ['ignore', 'ignore', 'pipe'],
          });
          let err = '';
          child.stderr.on('data', (text: Buffer) => {
            err += text;
          });
          let sent = 0;
          proxy.onSent = () => {
            sent += 1;
            if (sent === killedAt) child.kill('SIGKILL');
          };
          await once(child, 'close');
          return { sent, isKilled: child.signalCode === 'SIGKILL', code: child.exitCode, err };
        };
        const RUN = ['archive', 'run', '--json'];
        const restore = (): string[] => {
          const day = new Date(anyTime()).toISOString().slice(0, 10);
          return ['archive', 'restore', '--from', day, '--to', day, '--json'];
        };

        /** Each event is in one place, is read once and counted once. @returns how many are rows */
        const check = async (step: string): Promise<number> => {
          const { rows, away } = await sql.begin('isolation level repeatable read read only', async (tx) => {
            const [found] = await tx<{ rows: number; away: number }[]>`
              SELECT (SELECT count(*)::int FROM events) AS rows,
                     (SELECT coalesce(sum(events), 0)::int FROM archived_parts) AS away`;
            return found ?? { rows: 0, away: 0 };
          });
          expect(rows + away, step).toBe(ledger.events.length);
          expect(await readNumbers(server.port, appId, resourceToken), step).toEqual(ledger.numbers);
          const { body } = await request(server.port, {
            path: `/public/get_events?appId=${appId}&limit=1`,
            headers: { Authorization: `Bearer ${resourceToken}` },
          });
          expect(JSON.parse(body).data.pagination.total, step).toBe(ledger.events.length);
          return rows;
        };

        await send(60, true);
        let kills = 0;
        /** What a run sends to the database, as of those that came to their end. */
        let usual = 150;
        const places = new Set<string>();
        for (let step = 1; kills < KILLS; step += 1) {
          await send(1 + random(4), step % 20 === 0);
          const keyed = ledger.events.filter(({ hasKey }) => hasKey);
          const again = keyed[random(keyed.length)];
          if (step % 12 === 0 && again !== undefined) await ledger.repeat(again);
          const args = step % 5 === 0 ? restore() : RUN;
          const killedAt = 1 + random(usual);
          const { sent, isKilled, code, err } = await command(args, killedAt);
          if (isKilled) kills += 1;
          else if (code === 0 && args === RUN) usual = Math.max(20, sent);
          else if (code !== 0) expect(err).toMatch(/another process archives now|the archive has nothing of/);
          const rows = await check(
            `seed ${seed}, step ${step}: ${args.join(' ')}, killed at ${killedAt} of ${sent}`,
          );
          places.add(rows === ledger.events.length ? 'rows' : rows === 0 ? 'archive' : 'both');
        }
        for (let left = 0; left < 2; left += 1) await command(RUN, Number.POSITIVE_INFINITY);
        await check('at the end');
        expect(places).toContain('both');
        const verified = await tidemark(['archive', 'verify', '--json'], settings);
        expect(JSON.parse(verified.stdout)).toMatchObject({ problems: 0 });
        const dateOf = (at: number): string => new Date(at).toISOString().slice(0, 10);
        const all = ['--from', dateOf(today - (2 + DAYS) * DAY_MS), '--to', dateOf(today)];
        const recounted = await tidemark(['recount', ...all, '--json'], settings);
        expect(recounted.code, recounted.stderr).toBe(0);
        expect(JSON.parse(recounted.stdout).differing).toEqual([]);
      } finally {
        await server.end('SIGKILL');
        await proxy.stop();
        await database.drop();
        await rm(folder, { recursive: true, force: true });
      }
    },
    3_600_000,
  );
});
