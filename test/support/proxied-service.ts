/** A service that reaches its database through a proxy, with a journal or without, and what stands in its table. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'vitest';
import type { HttpResponse } from './http-client.ts';
import { FaultyProxy } from './proxy.ts';
import { startTestService, type TestService, type TestServiceOptions, until } from './service.ts';

interface Proxied {
  readonly service: TestService;
  readonly proxy: FaultyProxy;
}

interface Journaled extends Proxied {
  /** JOURNAL_DIR. */
  readonly folder: string;
}

/** So long that no request is answered because its own time is over: an answer that comes has another reason. */
export const PATIENT = { REQUEST_TIMEOUT_SECONDS: 600 } as const;

/** What the tests of a file have opened, in the order in which it is stopped. */
export class Opened {
  readonly #parts: { stop(): Promise<unknown> }[] = [];

  /** For `afterEach`. */
  readonly stopAll = async (): Promise<void> => {
    for (const one of this.#parts.splice(0)) await one.stop();
  };

  add(...parts: { stop(): Promise<unknown> }[]): void {
    this.#parts.push(...parts);
  }

  /** To be stopped before all others. */
  addFirst(...parts: { stop(): Promise<unknown> }[]): void {
    this.#parts.unshift(...parts);
  }

  /** The test stops it itself. */
  remove(part: { stop(): Promise<unknown> }): void {
    this.#parts.splice(this.#parts.indexOf(part), 1);
  }

  /** A service that is warmed up: its token and type are known. */
  readonly proxied = async (options: TestServiceOptions = {}): Promise<Proxied> => {
    let proxy: FaultyProxy | undefined;
    const service = await startTestService({
      ...options,
      config: { CREATE_LIMIT_PER_MINUTE: 100_000, ...options.config },
      reach: async (address) => {
        proxy = await FaultyProxy.start(address);
        return proxy.address;
      },
    });
    if (proxy === undefined) throw new Error('The service did not ask how to reach its database.');
    // The service first: it leaves through its proxy.
    this.add(service, proxy);
    expect((await service.post()).status).toBe(201);
    await service.sql`TRUNCATE events`;
    return { service, proxy };
  };

  /** The same with a journal. */
  readonly journaled = async (options: TestServiceOptions = {}): Promise<Journaled> => {
    const folder = await mkdtemp(join(tmpdir(), 'tidemark-outage-'));
    const started = await this.proxied({ ...options, config: { JOURNAL_DIR: folder, ...options.config } });
    this.add({ stop: () => rm(folder, { recursive: true, force: true }) });
    return { ...started, folder };
  };
}

/** Ids in the table, in their order. */
export async function storedIds({ sql }: TestService): Promise<string[]> {
  return (await sql<{ id: string }[]>`SELECT id::text AS id FROM events ORDER BY id`).map(({ id }) => id);
}

/** Ids that were acknowledged, in their order. */
export function ids(answers: readonly HttpResponse[]): string[] {
  return answers.map(({ body }) => String(JSON.parse(body).eventId)).sort();
}

export function waitingEvents(service: TestService): number {
  return service.stats().journal?.waitingEvents ?? Number.NaN;
}

export async function untilReplayed(service: TestService): Promise<void> {
  await until(() => waitingEvents(service) === 0 && service.stats().databaseWritable, 'the journal is empty');
}

/**
 * Waits until the service has dealt with all changes until now: PostgreSQL notifies of them in the order of their commits,
 * and an answer by way of the database comes turns of the event loop after the last one.
 */
export async function untilChangesAreHeard({ service: { sql, request }, proxy }: Proxied): Promise<void> {
  const last = 'the last change';
  let heard = '';
  proxy.onAnswer = (answer) => {
    heard += answer.toString('latin1');
  };
  await sql.notify('tidemark_changes', last);
  await until(() => heard.includes(last), 'the service is notified');
  expect((await request({ path: '/readyz' })).status).toBe(200);
}
