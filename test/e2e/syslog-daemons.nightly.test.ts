/**
 * syslog-ng and rsyslog with the configurations of the dashboard and of docs/producers.md, through kills of the server and an
 * outage of the database: each message is stored once.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { hasRsyslogBulk, hasSyslogNg, RSYSLOGD, SYSLOG_NG, SYSLOG_NG_LIBRARIES } from '../support/daemons.ts';
import { patient } from '../support/patience.ts';
import { until } from '../support/service.ts';
import { snippet } from '../support/snippets.ts';
import { FaultyInstallation } from './faulty-installation.ts';

vi.setConfig({ testTimeout: patient(240_000), hookTimeout: patient(90_000) });

const MESSAGES = 300;
const LONG = 90_000;

let folder: string;
let world: FaultyInstallation;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-syslog-'));
  world = await FaultyInstallation.make();
});
afterAll(async () => {
  await world.remove();
  await rm(folder, { recursive: true, force: true });
});

/** A configuration for the server of the test, which repeats sooner. */
function configuration(name: string, loggingToken: string): string {
  return snippet(name, { base: world.url, loggingToken })
    .replaceAll('time-reopen(5)', 'time-reopen(1)')
    .replaceAll('action.resumeInterval="5"', 'action.resumeInterval="1"');
}

/** A daemon that follows a file, and what is stored of it. */
interface Daemon {
  readonly name: string;
  /** Of its requests. */
  readonly route: string;
  readonly program: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** Writes its configuration. @returns its parameters */
  readonly configure: (own: string, input: string, loggingToken: string) => Promise<readonly string[]>;
}

const SYSLOG_NG_DAEMON: Daemon = {
  name: 'syslog-ng',
  route: '/v1/records',
  program: SYSLOG_NG,
  environment: { LD_LIBRARY_PATH: SYSLOG_NG_LIBRARIES },
  configure: async (own, input, loggingToken) => {
    const config = join(own, 'syslog-ng.conf');
    const buffers = join(own, 'buffers');
    await mkdir(buffers);
    const destination = configuration('syslog-ng', loggingToken);
    await writeFile(
      config,
      `@version: 3.38
source s_src { file("${input}" follow-freq(0.1)); };
${destination.replace('reliable(yes)', `dir("${buffers}") reliable(yes)`)}
`,
    );
    const files = ['-R', join(own, 'persist'), '-p', join(own, 'pid'), '-c', join(own, 'control')];
    return ['-F', '-f', config, `--module-path=${SYSLOG_NG_LIBRARIES}/3.38`, ...files];
  },
};

const RSYSLOG_DAEMON: Daemon = {
  name: 'rsyslog',
  route: '/v1/elasticsearch/_bulk',
  program: RSYSLOGD,
  configure: async (own, input, loggingToken) => {
    const config = join(own, 'rsyslog.conf');
    await writeFile(
      config,
      `global(workDirectory="${own}")
module(load="imfile" mode="polling" pollingInterval="1")
input(type="imfile" file="${input}" tag="app:" freshStartTail="off")
${configuration('rsyslog', loggingToken)}
`,
    );
    return ['-n', '-f', config, '-i', join(own, 'pid')];
  },
};

const DAEMONS = [...(hasSyslogNg ? [SYSLOG_NG_DAEMON] : []), ...(hasRsyslogBulk ? [RSYSLOG_DAEMON] : [])];

class RunningDaemon {
  readonly name: string;
  readonly route: string;
  readonly #input: string;
  readonly #appId: string;
  /** @throws Error with the last that it said, once it has ended */
  readonly #assertRuns: () => void;
  readonly #end: () => Promise<void>;
  #written = 0;

  private constructor(
    { name, route }: Daemon,
    input: string,
    appId: string,
    assertRuns: () => void,
    end: () => Promise<void>,
  ) {
    this.name = name;
    this.route = route;
    this.#input = input;
    this.#appId = appId;
    this.#assertRuns = assertRuns;
    this.#end = end;
  }

  static async start(daemon: Daemon): Promise<RunningDaemon> {
    const { appId, loggingToken } = await world.makeApp();
    const own = join(folder, daemon.name);
    await mkdir(own);
    const input = join(own, 'messages');
    await writeFile(input, '');
    const args = await daemon.configure(own, input, loggingToken);
    const env = { ...process.env, ...daemon.environment };
    const child = spawn(daemon.program, args, { stdio: ['ignore', 'ignore', 'pipe'], env });
    let said = '';
    child.stderr.on('data', (text: Buffer) => {
      said = `${said}${text.toString()}`.slice(-2_000);
    });
    const ended = once(child, 'close');
    const assertRuns = (): void => {
      if (child.exitCode !== null || child.signalCode !== null)
        throw new Error(`${daemon.name} has ended: ${said}`);
    };
    return new RunningDaemon(daemon, input, appId, assertRuns, async () => {
      child.kill();
      await ended;
    });
  }

  async write(): Promise<void> {
    const lines = Array.from(
      { length: MESSAGES },
      (_, at) => `<13>Nov 22 12:00:00 host app: message "${this.#written + at}" ü\n`,
    );
    this.#written += MESSAGES;
    await appendFile(this.#input, lines.join(''));
  }

  /** Waits until all that was written is stored, each message once. */
  async delivered(): Promise<void> {
    const isDelivered = async (): Promise<boolean> => {
      this.#assertRuns();
      return (await this.#stored().catch(() => null))?.different === this.#written;
    };
    await until(isDelivered, `all messages of ${this.name} are stored`, LONG);
    expect({ name: this.name, ...(await this.#stored()) }).toEqual({
      name: this.name,
      stored: this.#written,
      different: this.#written,
    });
  }

  async #stored(): Promise<{ stored: number; different: number } | undefined> {
    const [row] = await world.sql<{ stored: number; different: number }[]>`
      SELECT count(*)::integer AS stored,
             count(DISTINCT coalesce(payload ->> 'MESSAGE', payload ->> 'message'))::integer AS different
        FROM events JOIN apps ON apps.id = events.app_id AND apps.public_id = ${this.#appId}`;
    return row;
  }

  end(): Promise<void> {
    return this.#end();
  }
}

test.runIf(DAEMONS.length > 0)('each daemon delivers each message once', async () => {
  const daemons: RunningDaemon[] = [];
  const each = (work: (daemon: RunningDaemon) => Promise<void>): Promise<unknown> =>
    Promise.all(daemons.map(work));
  const write = (): Promise<unknown> => each((daemon) => daemon.write());
  const delivered = (): Promise<unknown> => each((daemon) => daemon.delivered());
  try {
    for (const daemon of DAEMONS) daemons.push(await RunningDaemon.start(daemon));
    await write();
    await delivered();

    await world.killServer();
    await write();
    await world.startServer();
    await delivered();

    await world.killDatabase();
    await write();
    await each(({ name, route }) =>
      until(async () => (await world.unavailable(route)) > 0, `${name} is answered 503`, LONG),
    );
    await world.startDatabase();
    await delivered();

    // In the middle of a delivery, perhaps.
    await write();
    await world.killServer();
    await world.startServer();
    await delivered();
  } finally {
    await each((daemon) => daemon.end());
  }
});
