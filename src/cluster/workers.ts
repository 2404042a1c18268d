/** The primary process of WORKERS processes on one port: starts them, starts them again, and stops them all. */
import cluster, { type Worker } from 'node:cluster';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import type { Config } from '../config.ts';
import { OperatorError } from '../errors.ts';
import { listenError } from '../http/transport.ts';
import type { Service } from '../service.ts';
import type { DatabaseAddress } from '../storage/connect.ts';
import { STOP, TASK_VARIABLE, type WorkerReport, type WorkerTask } from './worker.ts';
import { StatsRelay } from './worker-stats.ts';

export interface WorkersOptions {
  readonly config: Config;
  /** A database whose schema is complete. */
  readonly address: DatabaseAddress;
  readonly log: Logger;
}

/** How long a worker that has ended is waited for before the next takes its place: longer for each that ends early. */
const BACK_OFF_MS = { first: 100, most: 10_000 };
/** A worker that has served for this long was a good one. */
const STEADY_MS = 30_000;

/** The place of one worker. */
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
  /** Whether every worker that was told to stop has drained. */
  #drained = true;

  private constructor(options: WorkersOptions, port: number) {
    this.#options = options;
    this.port = port;
  }

  /**
   * Starts them all.
   * @throws OperatorError where the port can not be had, or one of them can not serve
   */
  static async start(options: WorkersOptions): Promise<Workers> {
    const { config } = options;
    cluster.setupPrimary({ exec: fileURLToPath(new URL('../main.js', import.meta.url)), args: ['serve'] });
    const workers = new Workers(options, await freePort(config.HOST, config.PORT));
    try {
      await workers.#startAll(config.WORKERS);
    } catch (error) {
      // One that does not even come to its start must not hold up the end.
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

  /** Has every worker answer what it has and end. The process's exit code says whether all of them could. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(
      this.#places.map(async ({ worker, timer, serves }) => {
        if (timer !== null) clearTimeout(timer);
        if (worker === null) return;
        // Not events.once, which rejects where its channel breaks: its end is what counts.
        const ended = new Promise((resolve) => worker.once('exit', resolve));
        if (!serves) worker.process.kill('SIGTERM');
        else if (worker.isConnected()) worker.send(STOP);
        await ended;
      }),
    );
    if (!this.#drained) process.exitCode = 1;
  }

  /** Ends them at once. */
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
        // The primary has checked settings and database: what keeps a worker from starting may pass.
        if ('failed' in outcome) throw new OperatorError(outcome.failed, { isPassing: true });
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
    // Its channel may break while it is being told to stop; its end is what counts.
    worker.on('error', (error) =>
      log.debug({ err: error, worker: place.number }, 'A worker can not be told'),
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
    // Who was asked to end, by a signal of its own, has drained.
    const inMs = code === 0 ? 0 : place.backOffMs;
    if (code !== 0) place.backOffMs = Math.min(place.backOffMs * 2, BACK_OFF_MS.most);
    const context = { worker: place.number, code, signal, inMs };
    log[code === 0 ? 'info' : 'warn'](context, 'A worker has ended; another takes its place');
    place.timer = setTimeout(() => {
      place.timer = null;
      void firstReport(this.#fork(place, false)).then((outcome) => {
        if ('failed' in outcome && !this.#isStopping)
          log.error({ worker: place.number, reason: outcome.failed }, 'A worker can not start');
      });
    }, inMs);
  }
}

/** What a worker reports first; its end, where it reports nothing. */
function firstReport(worker: Worker): Promise<WorkerReport> {
  return new Promise((resolve) => {
    worker.on('message', (message: object) => {
      // Between the two of them nothing else has these fields.
      if ('listening' in message || 'failed' in message) resolve(message as WorkerReport);
    });
    worker.once('exit', (code: number | null, signal: string | null) =>
      resolve({ failed: `a worker ended before it could serve (${signal ?? `exit code ${code}`})` }),
    );
  });
}

/**
 * Makes sure that nobody else listens there: workers share the port with whoever shares it.
 * @returns the port, a free one for 0
 */
async function freePort(host: string, port: number): Promise<number> {
  const probe = createServer();
  // Told to whoever waits for it below.
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
