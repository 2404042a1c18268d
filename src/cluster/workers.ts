/** The primary process of WORKERS processes on one port: starts, replaces and stops them. */
import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import { OperatorError } from '../errors.ts';
import { listenError } from '../http/transport.ts';
import { StatsRelay } from '../metrics/worker-stats.ts';
import type { Service } from '../service.ts';
import type { DatabaseAddress } from '../storage/database/connect.ts';
import { STOP, TASK_VARIABLE, type WorkerReport, type WorkerTask } from './worker.ts';

export interface WorkersOptions {
  readonly config: Config;
  /** A database with an up-to-date schema. */
  readonly address: DatabaseAddress;
  readonly log: Logger;
}

/** Delay before an ended worker is replaced; doubled for each that ends early. */
const BACK_OFF_MS = { first: 100, most: 10_000 };
/** A worker that ran for this long resets the delay. */
const STEADY_MS = 30_000;

/** The slot of one worker. */
interface Place {
  readonly number: number;
  worker: Worker | null;
  /** Whether it has said that it serves. Before that it may not even listen to us. */
  serves: boolean;
  backOffMs: number;
  timer: NodeJS.Timeout | null;
}

export class Workers implements Pick<Service, 'port' | 'transport' | 'setupPath' | 'stop'> {
  readonly port: number;
  readonly #options: WorkersOptions;
  readonly #places: Place[] = [];
  readonly #stats = new StatsRelay(() => this.#places.flatMap(({ worker }) => worker ?? []));
  #transport: Service['transport'] = 'uws';
  #setupPath: string | null = null;
  #isStarted = false;
  #isStopping = false;
  /** Whether every stopped worker has drained. */
  #drained = true;

  private constructor(options: WorkersOptions, port: number) {
    this.#options = options;
    this.port = port;
  }

  /**
   * Starts all workers.
   * @throws OperatorError if the port is not available, or a worker fails to start
   */
  static async start(options: WorkersOptions): Promise<Workers> {
    const { config } = options;
    cluster.setupPrimary({ exec: fileURLToPath(new URL('../main.js', import.meta.url)), args: ['serve'] });
    const workers = new Workers(options, await freePort(config.HOST, config.PORT));
    try {
      await workers.#startAll(config.WORKERS);
    } catch (error) {
      // A worker that hangs during its start must not block the exit.
      const deadline = setTimeout(() => workers.kill(), config.SHUTDOWN_TIMEOUT_SECONDS * 1_000);
      await workers.stop();
      clearTimeout(deadline);
      throw error;
    }
    return workers;
  }

  get transport(): Service['transport'] {
    return this.#transport;
  }

  get setupPath(): string | null {
    return this.#setupPath;
  }

  /** Drains and stops all workers. Sets exit code 1 if any failed to drain. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(
      this.#places.map(async ({ worker, timer, serves }) => {
        if (timer !== null) clearTimeout(timer);
        if (worker === null) return;
        // Not events.once, which rejects when the channel breaks: wait for the exit.
        const ended = new Promise((resolve) => worker.once('exit', resolve));
        if (!serves) worker.process.kill('SIGTERM');
        else if (worker.isConnected()) worker.send(STOP);
        await ended;
      }),
    );
    if (!this.#drained) process.exitCode = 1;
  }

  kill(): void {
    for (const { worker } of this.#places) worker?.process.kill('SIGKILL');
  }

  async #startAll(count: number): Promise<void> {
    await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const place: Place = {
          number: index + 1,
          worker: null,
          serves: false,
          backOffMs: BACK_OFF_MS.first,
          timer: null,
        };
        this.#places.push(place);
        const worker = this.#fork(place, index === 0);
        const outcome = await firstReport(worker);
        // The primary has checked settings and database, so the failure may be transient.
        if ('failed' in outcome) throw new OperatorError(outcome.failed, { isRetryable: true });
        this.#transport = outcome.listening.transport;
        this.#setupPath ??= outcome.listening.setupPath;
      }),
    );
    this.#isStarted = true;
  }

  #fork(place: Place, offersSetup: boolean): Worker {
    const { address, log } = this.#options;
    const task: WorkerTask = { worker: place.number, port: this.port, address, offersSetup };
    const worker = cluster.fork({ [TASK_VARIABLE]: JSON.stringify(task) });
    const startedAt = performance.now();
    place.worker = worker;
    place.serves = false;
    // Its channel may break while it is asked to stop; only its exit matters.
    worker.on('error', (error) =>
      log.debug({ err: error, worker: place.number }, 'worker: message not delivered'),
    );
    worker.on('message', (message: object) => {
      if ('listening' in message) place.serves = true;
      this.#stats.take(worker, message);
    });
    worker.on('exit', (code: number | null, signal: string | null) => {
      place.worker = null;
      if (this.#isStopping) this.#drained &&= code === 0 || !place.serves;
      else if (this.#isStarted) this.#replace(place, { code, signal, ranMs: performance.now() - startedAt });
    });
    return worker;
  }

  #replace(place: Place, ended: { code: number | null; signal: string | null; ranMs: number }): void {
    const { code, signal, ranMs } = ended;
    const { log } = this.#options;
    if (ranMs >= STEADY_MS) place.backOffMs = BACK_OFF_MS.first;
    // Exit code 0: it received a signal and drained.
    const inMs = code === 0 ? 0 : place.backOffMs;
    if (code !== 0) place.backOffMs = Math.min(place.backOffMs * 2, BACK_OFF_MS.most);
    const context = { worker: place.number, code, signal, inMs };
    log[code === 0 ? 'info' : 'warn'](context, 'worker: ended, starting a replacement');
    place.timer = setTimeout(() => {
      place.timer = null;
      void firstReport(this.#fork(place, false)).then((outcome) => {
        if ('failed' in outcome && !this.#isStopping)
          log.error({ worker: place.number, reason: outcome.failed }, 'worker: start failed');
      });
    }, inMs);
  }
}

function firstReport(worker: Worker): Promise<WorkerReport> {
  return new Promise((resolve) => {
    worker.on('message', (message: object) => {
      // No other message has these fields.
      if ('listening' in message || 'failed' in message) resolve(message as WorkerReport);
    });
    worker.once('exit', (code: number | null, signal: string | null) =>
      resolve({ failed: `a worker ended before it could serve (${signal ?? `exit code ${code}`})` }),
    );
  });
}

/**
 * Checks that no other process listens on the port: workers would silently share it.
 * @returns the port, a free one for 0
 */
async function freePort(host: string, port: number): Promise<number> {
  const probe = createServer();
  // Handled below: once() rejects.
  probe.on('error', () => undefined);
  probe.listen({ host, port, exclusive: true });
  try {
    await once(probe, 'listening');
  } catch (error) {
    throw listenError(
      host,
      port,
      error instanceof Error && 'code' in error ? String(error.code) : String(error),
    );
  }
  // A listening server's address is an AddressInfo unless it is a pipe, which this one never is.
  const { port: free } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return free;
}
