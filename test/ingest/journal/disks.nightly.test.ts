/** Disks that are full, as small file systems in memory are soon, and one that fails under the database. */
import { spawnSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { chooseEngine } from '../../../src/storage/database/engine.ts';
import { migrate } from '../../../src/storage/migrate.ts';
import { refused } from '../../http/answers.ts';
import type { HttpResponse } from '../../support/http-client.ts';
import { FaultyProxy } from '../../support/proxy.ts';
import { RestartablePostgres } from '../../support/restartable-postgres.ts';
import { startTestService, type TestService, until } from '../../support/service.ts';
import { mountSmall, mountsAllowed } from '../../support/small-disk.ts';

const undo: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const step of undo.splice(0).reverse()) await step();
});

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-disk-'));
  undo.push(() => rm(folder, { recursive: true, force: true }));
  await chmod(folder, 0o711); // PostgreSQL may be another user.
  return folder;
}

function ids(answers: readonly HttpResponse[]): string[] {
  return answers.map(({ body }) => String(JSON.parse(body).eventId)).sort();
}

async function storedIds({ sql }: TestService): Promise<string[]> {
  return (await sql<{ id: string }[]>`SELECT id::text AS id FROM events ORDER BY id`).map(({ id }) => id);
}

const post = (service: TestService): Promise<HttpResponse> =>
  service.post({ payload: { filler: 'x'.repeat(20_000) } });

test.skipIf(!mountsAllowed())(
  'security 23: a full disk under the journal is 503 until there is room; what was acknowledged is stored, what was refused is not',
  async () => {
    const folder = await temporaryFolder();
    undo.push(await mountSmall(folder, '512k'));
    let proxy: FaultyProxy | undefined;
    const service = await startTestService({
      config: { JOURNAL_DIR: folder },
      reach: async (address) => {
        proxy = await FaultyProxy.start(address);
        return proxy.address;
      },
    });
    undo.push(() => proxy?.stop() ?? Promise.resolve());
    undo.push(() => service.stop());
    const answers = [await post(service)];
    await proxy?.goAway();
    const filler = join(folder, 'filler');
    await writeFile(filler, Buffer.alloc(200_000));
    const fill = async (): Promise<void> => {
      for (;;) {
        const answer = await post(service);
        if (answer.status !== 201) {
          refused(answer, 503, 'UNAVAILABLE', 'Service unavailable');
          return;
        }
        answers.push(answer);
      }
    };
    await fill();
    expect(answers.length).toBeGreaterThan(5);
    await rm(filler);
    answers.push(await post(service));
    expect(answers.at(-1)?.status).toBe(201);
    await fill();
    await proxy?.comeBack();
    await until(() => service.stats().journal?.waitingEvents === 0, 'the journal is empty');
    expect(await storedIds(service)).toEqual(ids(answers));
    expect(service.stats().journal?.damagedSegments).toBe(0);
  },
);

test.skipIf(!mountsAllowed()).each([false, true])(
  'security 23: a full disk under the database (journal: %s) heals without help, and the ledger holds',
  async (journaled) => {
    const postgres = await RestartablePostgres.make();
    undo.push(() => postgres.stop());
    const folder = await temporaryFolder();
    const space = join(folder, 'space');
    await mkdir(space);
    undo.push(await mountSmall(space, '8m', postgres.user));
    const sql = postgres.connect();
    undo.push(() => sql.end());
    await sql.unsafe(`CREATE TABLESPACE small LOCATION '${space}'`);
    await migrate(sql, (await chooseEngine(sql)).engine);
    await sql.unsafe('ALTER DATABASE postgres SET default_tablespace = small');
    const service = await startTestService({
      database: {
        engine: 'postgres',
        sql,
        address: postgres.address,
        url: postgres.url,
        drop: async () => undefined,
      },
      config: { CREATE_LIMIT_PER_MINUTE: 0, ...(journaled && { JOURNAL_DIR: join(folder, 'journal') }) },
    });
    undo.push(() => service.stop());
    const answers: HttpResponse[] = [];
    const postMany = async (): Promise<boolean> => {
      const some = await Promise.all(Array.from({ length: 10 }, () => post(service)));
      answers.push(...some.filter(({ status }) => status === 201));
      for (const answer of some)
        if (answer.status !== 201) refused(answer, 503, 'UNAVAILABLE', 'Service unavailable');
      return some.every(({ status }) => status === 201);
    };
    expect(await postMany()).toBe(true);
    await writeFile(join(space, 'filler'), Buffer.alloc(16_000_000)).catch(() => undefined); // All that there is.
    if (journaled) {
      await until(async () => {
        await postMany();
        return service.stats().journal?.appendedEvents !== 0;
      }, 'events go to the journal');
      expect(service.stats().databaseReachable).toBe(true);
    } else {
      await until(async () => !(await postMany()), 'posts are refused');
    }
    await rm(join(space, 'filler'));
    const before = answers.length;
    await until(postMany, 'posts are stored again');
    expect(answers.length).toBeGreaterThan(before);
    await until(
      () => (service.stats().journal?.waitingEvents ?? 0) === 0 && service.stats().databaseWritable,
      'nothing waits',
    );
    expect(await storedIds(service)).toEqual(ids(answers));
  },
  90_000,
);

const hasCompiler = spawnSync('cc', ['--version']).status === 0;

/** Lets one fdatasync fail as a disk would, whenever the file that FAIL_ONCE names is there. */
const FAILING_SYNC = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
int fdatasync(int fd) {
  const char *once = getenv("FAIL_ONCE");
  if (once != NULL && unlink(once) == 0) { errno = EIO; return -1; }
  return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(fd);
}`;

test.skipIf(!hasCompiler)(
  'security 23: an fsync that fails under the database, which ends it, costs producers with a journal nothing, and it heals by itself',
  async () => {
    const folder = await temporaryFolder();
    await chmod(folder, 0o777);
    await writeFile(join(folder, 'sync.c'), FAILING_SYNC);
    const library = join(folder, 'sync.so');
    const compiled = spawnSync('cc', ['-shared', '-fPIC', '-o', library, join(folder, 'sync.c'), '-ldl']);
    expect(compiled.status, String(compiled.stderr)).toBe(0);
    const once = join(folder, 'fail-once');
    const postgres = await RestartablePostgres.make({ LD_PRELOAD: library, FAIL_ONCE: once });
    undo.push(() => postgres.stop());
    const sql = postgres.connect();
    undo.push(() => sql.end());
    await migrate(sql, (await chooseEngine(sql)).engine);
    const service = await startTestService({
      database: {
        engine: 'postgres',
        sql,
        address: postgres.address,
        url: postgres.url,
        drop: async () => undefined,
      },
      config: { CREATE_LIMIT_PER_MINUTE: 0, JOURNAL_DIR: join(folder, 'journal') },
    });
    undo.push(() => service.stop());
    const answers = [await post(service)];
    for (let round = 0; round < 3; round += 1) {
      await writeFile(once, '');
      answers.push(...(await Promise.all(Array.from({ length: 10 }, () => post(service)))));
      await until(
        () => service.stats().journal?.waitingEvents === 0 && service.stats().databaseWritable,
        'the database is back and the journal empty',
      );
    }
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 201));
    await until(
      async () => (await storedIds(service).catch(() => [])).length > 0,
      'the test has a connection again',
    );
    expect(await storedIds(service)).toEqual(ids(answers));
    expect(await postgres.log()).toMatch(/PANIC: .*could not fdatasync file/);
  },
  90_000,
);
