/**
 * A ledger of a service whose clock somebody sets by a month and by an hour, forwards and backwards, while it runs and before it starts:
 * nothing is lost, nothing is stored or said twice, everything is delivered, and nothing ends before its time.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, test } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createResourceToken } from '../../src/apps/resource-tokens.ts';
import { DAY_MS, HOUR_MS } from '../../src/base/time-units.ts';
import { Receiver } from '../delivery/receiver.ts';
import { build, tidemark, tidemarkProcess } from '../support/command-line.ts';
import { availableEngines, testDatabase } from '../support/database.ts';
import { seededRandom } from '../support/field-oracle.ts';
import { request } from '../support/http-client.ts';
import { KeyedLedger, readNumbers } from '../support/ledger.ts';
import { newOwnApp, newPerson } from '../support/person.ts';
import { testSecret, until } from '../support/service.ts';
import { ServerProcess } from './server-process.ts';

const JUMPS = [30 * DAY_MS, -30 * DAY_MS, HOUR_MS, -HOUR_MS];
const ARCHIVED_AFTER_DAYS = 2;
/** An alert waits for the end of its minute. */
const ALERT_MS = 200_000;
const CONSUMER = 'billing';
const BINNED = [1, 2, 3];

const ENGINES_OF_ONE_SERVER = availableEngines().filter((engine) => engine !== 'citus');

describe.each(ENGINES_OF_ONE_SERVER)('on %s', (engine) => {
  test.each([1])(
    'what a wrong clock passes by is there when it is right again (seed %i)',
    async (seed) => {
      const random = seededRandom(seed);
      build();
      const folder = await mkdtemp(join(tmpdir(), 'tidemark-clocks-'));
      const clock = join(folder, 'clock');
      await writeFile(clock, '0');
      const database = await testDatabase(engine, { prepared: true });
      const { sql } = database;
      const settings = {
        DATABASE_URL: database.url,
        DATA_DIR: folder,
        SECRET: 'the secret of the tests, 32 characters',
        ...{ RETENTION_DAYS: '7', WEBHOOK_ALLOW_PRIVATE: 'true' },
        ...{ CREATE_LIMIT_PER_MINUTE: '0', READ_LIMIT_PER_MINUTE: '0' },
        ...{ ARCHIVE_URL: pathToFileURL(join(folder, 'archive')).href },
        ARCHIVE_AFTER_DAYS: String(ARCHIVED_AFTER_DAYS),
        NODE_OPTIONS: `--import=${new URL('../support/set-clock.mjs', import.meta.url).href}`,
        SET_CLOCK: clock,
      };
      const receiver = new Receiver();
      const url = await receiver.listen();
      let server = await ServerProcess.start(settings);
      try {
        const { appId, loggingToken } = await createApp(sql, await testSecret(), { name: 'Clocks' });
        const { resourceToken } = await createResourceToken(sql, {
          ...{ name: 'test', appIds: [appId], expiresInSeconds: null },
        });
        const ledger = new KeyedLedger({ loggingToken, port: () => server.port });
        const run = async (...args: string[]): Promise<string> => {
          const { code, stdout, stderr } = await tidemark(args, settings);
          expect(code, stderr).toBe(0);
          return stdout;
        };
        const of = ['--app', appId, '--json'];
        await run('consumer', 'add', ...of, '--name', CONSUMER);
        const { webhookId } = JSON.parse(await run('webhook', 'add', ...of, '--url', url));
        const phases = JUMPS.flatMap((jump) => [jump, 0]);
        for (const index of phases.keys()) {
          const rule = JSON.stringify({ of: 'count', type: `phase ${index}`, window: '1m', above: 0 });
          const name = `alert ${index}`;
          await run('alert', 'add', ...of, '--name', name, '--rule', rule, '--webhook', webhookId);
        }
        const person = await newPerson(
          { url: '', sql, request: (what) => request(server.port, what) },
          'owner@example.com',
        );
        const binned = await newOwnApp(person, 'Bin');
        const inBin = new KeyedLedger({ loggingToken: binned.loggingToken, port: () => server.port });
        for (const n of BINNED) await inBin.send('kept', null, { n });
        expect((await person.delete(binned.path, { confirm: 'Bin' })).status).toBe(200);
        // With an hour ahead it is still there.
        await sql`UPDATE apps SET removed_at = now() - interval '6 days 20 hours' WHERE removed_id = ${binned.appId}`;

        const taken: number[] = [];
        const drain = async (): Promise<void> => {
          const path = `/v1/apps/${appId}/consumers/${CONSUMER}`;
          const headers = { Authorization: `Bearer ${resourceToken}` };
          for (;;) {
            const { status, body } = await request(server.port, { path: `${path}/events?limit=50`, headers });
            expect(status, body).toBe(200);
            const { events, lease, position } = JSON.parse(body).data;
            if (events.length === 0) return;
            const ack = { method: 'POST', path: `${path}/ack`, headers };
            const acknowledged = await request(server.port, {
              ...ack,
              body: JSON.stringify({ lease, position }),
            });
            expect(acknowledged.status, acknowledged.body).toBe(200);
            taken.push(...events.map(({ payload }: { payload: { n: number } }) => payload.n));
          }
        };
        /** Name and beginning of each firing that was told. */
        const firing = (): string[][] => {
          const messages = new Map(
            receiver.received
              .map(({ headers, body }) => [String(headers['webhook-id']), JSON.parse(body)] as const)
              .filter(([, { type }]) => type === 'alert.firing'),
          );
          return [...messages.values()].map(({ data }) => [data.rule.name, data.since]);
        };
        const archive = async (): Promise<void> => {
          const { code, stderr } = await tidemarkProcess(['archive', 'run', '--json'], settings);
          // The service runs it, too.
          if (code !== 0) expect(stderr).toContain('another process archives now');
          for (const { day } of JSON.parse(await run('archive', 'list', ...of)).days)
            expect(Date.parse(day)).toBeLessThan(Date.now() - (ARCHIVED_AFTER_DAYS + 1) * DAY_MS);
        };
        const restart = async (): Promise<void> => {
          await server.end('SIGKILL');
          await sql`UPDATE consumers SET leased_until = now()`;
          server = await ServerProcess.start(settings);
        };
        /** Until the service knows whether its clock is wrong. */
        const knows = (jump: number): Promise<void> =>
          until(
            async () => {
              const { body } = await request(server.port, { path: '/readyz' });
              const seconds = JSON.parse(body).clocks?.databaseSeconds ?? 0;
              return Math.abs(seconds * 1_000 + jump) < 10_000;
            },
            `the service knows that its clock is off by ${jump} ms`,
            60_000,
          );
        for (const [index, jump] of phases.entries()) {
          const typeName = `phase ${index}`;
          if (random(2) === 0) await restart();
          await writeFile(clock, String(jump));
          // The first events meet a judge that has not looked yet.
          await ledger.send(typeName, null);
          if (random(2) === 0) await restart();
          for (let count = 10 + random(10); count > 0; count -= 1) {
            const ago = 3 * HOUR_MS + random(6 * 24 * 60) * 60_000;
            await ledger.send(typeName, random(2) === 0 ? null : Date.now() - ago);
          }
          if (random(2) === 0) await drain();
          await archive();
          for (let count = 0; count < 6; count += 1) {
            const again = ledger.events[random(ledger.events.length)];
            if (again !== undefined) await ledger.repeat(again);
          }
          await knows(jump);
          await drain();
          await ledger.send(typeName, null);
          const session = await person.get('/api/session');
          expect(session.data.user, `phase ${index}`).toMatchObject({ email: 'owner@example.com' });
          expect(await readNumbers(server.port, appId, resourceToken), `phase ${index}`).toEqual(
            ledger.numbers,
          );
          await until(
            () => firing().some(([name]) => name === `alert ${index}`),
            `the alert of ${typeName} (${jump})`,
            ALERT_MS,
          );
        }
        await until(
          async () => {
            await drain();
            return new Set(taken).size >= ledger.events.length;
          },
          'the consumer has all events',
          60_000,
        );
        const sent = (): number[] =>
          receiver.received
            .map(({ body }) => JSON.parse(body))
            .filter(({ type }) => type === 'event.created')
            .map(({ data }) => data.payload.n);
        await until(
          () => new Set(sent()).size >= ledger.events.length,
          'the webhook has sent all events',
          60_000,
        );
        expect([...new Set(sent())].sort((a, b) => a - b)).toEqual(ledger.numbers);
        expect([...new Set(taken)].sort((a, b) => a - b)).toEqual(ledger.numbers);
        // A slow machine may take so long for a phase that its alert ends and fires again.
        const told = firing().map((one) => one.join(' '));
        expect([...new Set(told)]).toEqual(told);
        await archive();
        expect(JSON.parse(await run('archive', 'list', ...of)).days.length).toBeGreaterThan(0);
        expect(await readNumbers(server.port, appId, resourceToken)).toEqual(ledger.numbers);
        const { body } = await request(server.port, {
          path: `/public/get_events?appId=${appId}&limit=1`,
          headers: { Authorization: `Bearer ${resourceToken}` },
        });
        expect(JSON.parse(body).data.pagination.total).toBe(ledger.events.length);
        expect((await person.post(`/api/removed-apps/${binned.appId}/restore`)).status).toBe(200);
        const ofBin = await createResourceToken(sql, {
          ...{ name: 'bin', appIds: [binned.appId], expiresInSeconds: null },
        });
        expect(await readNumbers(server.port, binned.appId, ofBin.resourceToken)).toEqual(BINNED);
        const doctor = await tidemark(['doctor', '--json'], settings);
        expect(doctor.stdout).toContain('no webhook or alert is stuck');
      } finally {
        await server.end('SIGKILL');
        receiver.close();
        await database.drop();
        await rm(folder, { recursive: true, force: true });
      }
    },
    3_600_000,
  );
});
