/** The service in this process, on a database of its own: one app, one event type, a port of its own. */

import { Writable } from 'node:stream';
import pino from 'pino';
import { afterAll, beforeAll } from 'vitest';
import { createApp } from '../../src/apps/apps.ts';
import { createEventType } from '../../src/apps/event-types.ts';
import { openSecret, type Secret } from '../../src/apps/secret.ts';
import { Rounds } from '../../src/base/rounds.ts';
import { type Config, readConfig, type SettingName } from '../../src/config.ts';
import { type Clock, type Service, type ServiceStats, startService } from '../../src/service.ts';
import type { DatabaseAddress, Sql } from '../../src/storage/database/connect.ts';
import { openStorage } from '../../src/storage/storage.ts';
import { type TestDatabase, type TestEngine, testDatabase } from './database.ts';
import { type HttpRequest, type HttpResponse, request } from './http-client.ts';
import { patient } from './patience.ts';

export interface TestServiceOptions {
  readonly engine?: TestEngine;
  /** Settings in place of the defaults. */
  readonly config?: Partial<Record<SettingName, string | number>>;
  readonly transport?: 'uws' | 'node';
  readonly clock?: Clock;
  /** How the service reaches its database, where it is not straight. */
  readonly reach?: (address: DatabaseAddress) => Promise<DatabaseAddress>;
  /** Another service's database, or the one that those of this process share, in place of one of its own. */
  readonly database?: TestDatabase | 'shared';
}

export interface TestApp {
  readonly appId: string;
  readonly loggingToken: string;
}

export interface TestService {
  readonly url: string;
  readonly port: number;
  readonly config: Config;
  readonly app: TestApp;
  readonly type: { readonly typeId: string; readonly name: string };
  /** Straight to the database. */
  readonly sql: Sql;
  readonly database: TestDatabase;
  /** Lines of the log, parsed. */
  readonly log: readonly Record<string, unknown>[];
  /** The path of the one-time link to the first account; null where there is none. */
  readonly setupPath: string | null;
  /** What the service tells of its database and its journal. */
  stats(): ServiceStats;
  /** Another app, for what apps must not share. */
  newApp(): Promise<TestApp>;
  newType(app: TestApp, name: string): Promise<{ typeId: string; name: string }>;
  /** The same service for an app of its own, which the tests of a file share; it does not stop. */
  forNewApp(): Promise<TestService>;
  /** One request on a connection of its own. */
  request(options: HttpRequest): Promise<HttpResponse>;
  /** POST /public/create_event; fields in place of a good body's, undefined leaves one out. */
  post(fields?: Readonly<Record<string, unknown>>): Promise<HttpResponse>;
  /** A good body with this payload's text in it. */
  body(payloadText: string): string;
  /** Stops the service, once, and drops its database unless that is to be kept. */
  stop(options?: { readonly keepDatabase: boolean }): Promise<void>;
}

export const CREATE_EVENT = '/public/create_event';

/** A clock that stands still until a test moves it; both hands move together. */
export class TestClock implements Clock {
  #wall: number;
  #monotonic = 1_000_000;

  constructor(wall: number = Date.now()) {
    this.#wall = wall;
  }

  readonly wall = (): number => this.#wall;
  readonly monotonic = (): number => this.#monotonic;

  advance(ms: number): void {
    this.#wall += ms;
    this.#monotonic += ms;
  }

  /** The wall clock alone is set, as by a person or a time server: forwards, or backwards with a negative number. */
  jump(ms: number): void {
    this.#wall += ms;
  }
}

/** The system's clock, which a test moves forwards while it goes on. */
export class RunningClock implements Clock {
  #ahead = 0;
  #jumped = 0;

  readonly wall = (): number => Date.now() + this.#ahead + this.#jumped;
  readonly monotonic = (): number => performance.now() + this.#ahead;

  advance(ms: number): void {
    this.#ahead += ms;
  }

  /** As {@link TestClock.jump}. */
  jump(ms: number): void {
    this.#jumped += ms;
  }
}

/** The secret of all tests: sealed tokens are never opened here. */
export function testSecret(): Promise<Secret> {
  return openSecret({ configured: 'the secret of the tests, 32 characters', dataDir: null });
}

export async function startTestService(options: TestServiceOptions = {}): Promise<TestService> {
  const database = await databaseOf(options);
  try {
    return await serve(database, options);
  } catch (error) {
    if (options.database === undefined) await database.drop();
    throw error;
  }
}

const sharedDatabases = new Map<TestEngine, Promise<TestDatabase>>();

function databaseOf({ database, engine = 'postgres18' }: TestServiceOptions): Promise<TestDatabase> {
  if (database !== undefined && database !== 'shared') return Promise.resolve(database);
  const known = database === 'shared' ? sharedDatabases.get(engine) : undefined;
  const made = known ?? testDatabase(engine, { prepared: true });
  if (database === 'shared') sharedDatabases.set(engine, made);
  return made;
}

/** What services may share: neither a clock nor a way to the database of their own. */
export type SharedServiceOptions = Pick<TestServiceOptions, 'engine' | 'config' | 'transport'>;

const shared = new Map<string, Promise<TestService>>();

/**
 * An app of its own on a service that all files of this process share, by its options; both end with the process.
 * For tests that look at their own app alone, and at accounts of their own (`newPerson(service)` of person.ts). One that
 * breaks the database, moves the clock, reads metrics of the whole process, fails to sign in many times, or tests start
 * and stop, starts its own.
 */
export async function sharedService(options: SharedServiceOptions = {}): Promise<TestService> {
  const key = JSON.stringify(options, Object.keys({ ...options, ...options.config }).sort());
  const starting = shared.get(key) ?? startTestService({ ...options, database: 'shared' });
  shared.set(key, starting);
  return await (await starting).forNewApp();
}

/** A service for one piece of work. */
export async function withTestService(
  options: TestServiceOptions,
  work: (service: TestService) => Promise<void>,
): Promise<void> {
  const service = await startTestService(options);
  try {
    await work(service);
  } finally {
    await service.stop();
  }
}

async function serve(database: TestDatabase, options: TestServiceOptions): Promise<TestService> {
  const { sql } = database;
  const settings = {
    PORT: 0,
    HTTP_TRANSPORT: options.transport ?? 'auto',
    // The same on every machine, however much memory it has.
    MAX_BODIES_BYTES: 16_777_216,
    ...options.config,
  };
  const config = readConfig(
    Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, String(value)])),
  );
  const secret = await testSecret();
  const newApp = (): Promise<TestApp> => createApp(sql, secret, { name: 'Test app' });
  const newType = (app: TestApp, name: string): Promise<{ typeId: string; name: string }> =>
    createEventType(sql, { appId: app.appId, name, maxTypes: config.MAX_EVENT_TYPES_PER_APP });
  const app = await newApp();
  const type = await newType(app, 'test type');
  const log: Record<string, unknown>[] = [];
  const service: Service = await startService({
    config,
    secret,
    address: (await options.reach?.(database.address)) ?? database.address,
    storage: await openStorage(sql),
    log: captured(log),
    ...(options.clock && { clock: options.clock }),
  });
  const { port } = service;

  let stopped: Promise<void> | null = null;
  const stop = async (keepDatabase: boolean): Promise<void> => {
    await service.stop();
    if (options.database === undefined && !keepDatabase) await database.drop();
  };
  const made: TestService = {
    ...ofApp(port, app, type),
    url: `http://127.0.0.1:${port}`,
    port,
    config,
    sql,
    database,
    log,
    setupPath: service.setupPath,
    stats: () => service.stats(),
    newApp,
    newType,
    forNewApp: async () => {
      const another = await newApp();
      const itsType = await newType(another, 'test type');
      return { ...made, ...ofApp(port, another, itsType), stop: async () => undefined };
    },
    request: (what) => request(port, what),
    stop: (how) => {
      stopped ??= stop(how?.keepDatabase ?? false);
      return stopped;
    },
  };
  return made;
}

function ofApp(
  port: number,
  app: TestApp,
  type: TestService['type'],
): Pick<TestService, 'app' | 'type' | 'post' | 'body'> {
  const good = { loggingToken: app.loggingToken, typeId: type.typeId };
  return {
    app,
    type,
    post: (fields) => {
      const body = JSON.stringify({ ...good, payload: {}, ...fields });
      return request(port, { method: 'POST', path: CREATE_EVENT, body });
    },
    body: (payloadText) => `${JSON.stringify(good).slice(0, -1)},"payload":${payloadText}}`,
  };
}

/** A log whose lines a test reads. */
export function captured(lines: Record<string, unknown>[]): pino.Logger {
  const sink = new Writable({
    write: (line: Buffer, _encoding, done) => {
      lines.push(JSON.parse(line.toString()));
      done();
    },
  });
  return pino({ level: 'trace', base: null, formatters: { level: (label) => ({ level: label }) } }, sink);
}

/** The system's timers, whatever a test puts in their place. */
const [realTimeout, realNow] = [setTimeout, performance.now.bind(performance)];

/** What services of this process repeat. */
const repeated = new Set<Rounds>();
const { start, stop } = Rounds.prototype;
Rounds.prototype.start = function (afterMs) {
  repeated.add(this);
  start.call(this, afterMs);
};
Rounds.prototype.stop = function () {
  repeated.delete(this);
  return stop.call(this);
};
let isHurried = false;

/** Has {@link until} cut the pauses between rounds short in the tests of a file, which then wait for the work alone. */
export function hurryRounds(): void {
  beforeAll(() => {
    isHurried = true;
  });
  afterAll(() => {
    isHurried = false;
  });
}

/** Waits until a condition holds; fails with its name where it does not in time. */
export async function until(
  condition: () => boolean | Promise<boolean>,
  what: string,
  timeoutMs = 15_000,
): Promise<void> {
  const deadline = realNow() + patient(timeoutMs);
  for (let looks = 1; !(await condition()); looks += 1) {
    if (realNow() > deadline) throw new Error(`Waited in vain for this: ${what}.`);
    if (isHurried && looks % 10 === 0) for (const rounds of repeated) rounds.runSoon();
    await new Promise((resolve) => realTimeout(resolve, 5));
  }
}
