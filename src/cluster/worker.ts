/** One of several workers: the service on an address and a port that the primary process hands to it. */
import cluster from 'node:cluster';
import { openSecret } from '../apps/secret.ts';
import type { Config } from '../config.ts';
import { describeFailure } from '../failure.ts';
import { createLog } from '../log.ts';
import { type Service, startService } from '../service.ts';
import { StopRequest } from '../stop-request.ts';
import { connect, type DatabaseAddress } from '../storage/connect.ts';
import { openStorage } from '../storage/storage.ts';

/** The variable in which a worker finds its task. */
export const TASK_VARIABLE = 'TIDEMARK_WORKER';

/** What the primary has prepared. */
export interface WorkerTask {
  /** From 1 on; a worker that takes another's place has its number. */
  readonly worker: number;
  readonly port: number;
  readonly address: DatabaseAddress;
  /** Whether this one makes the link to the first account, where there is need of one. */
  readonly offersSetup: boolean;
}

/** What a worker tells the primary: that it serves, or why it can not. */
export type WorkerReport =
  | { readonly listening: Pick<Service, 'transport' | 'setupPath'> }
  | { readonly failed: string };

/** What the primary tells a worker. */
export const STOP = 'stop';

/** Whether this process was started as a worker. */
export function isWorker(): boolean {
  return cluster.isWorker && process.env[TASK_VARIABLE] !== undefined;
}

/** Serves until the primary says so, a signal comes, or the primary is gone; then drains and ends the process. */
export async function serveAsWorker(config: Config): Promise<void> {
  // It comes from the primary of this same release.
  const task = JSON.parse(process.env[TASK_VARIABLE] ?? '') as WorkerTask;
  const log = createLog(config.LOG_LEVEL, { worker: task.worker });
  const stopRequest = new StopRequest();
  stopRequest.onFault(log);
  // Otherwise a worker ends, in the middle of whatever it does, the moment that the primary is gone.
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
  onOrder((reason) => stopRequest.request(reason));
  let service: Service;
  try {
    service = await start(config, task, log);
  } catch (error) {
    log.debug({ err: error }, 'The start failed');
    await report({ failed: describeFailure(error) });
    process.exit(1);
  }
  await report({ listening: { transport: service.transport, setupPath: service.setupPath } });
  log.info({ pid: process.pid }, 'Serving');

  const reason = await stopRequest.reason;
  log.info({ reason }, 'Stopping');
  setTimeout(() => {
    log.fatal('The stop did not finish in time; what was not answered was not promised');
    process.exit(1);
  }, config.SHUTDOWN_TIMEOUT_SECONDS * 1_000);
  await service.stop();
  log.info('Stopped');
  process.exit(process.exitCode ?? 0);
}

async function start(config: Config, task: WorkerTask, log: ReturnType<typeof createLog>): Promise<Service> {
  const { address, port, worker, offersSetup } = task;
  const sql = connect(address, { connections: 1, name: 'tidemark start' });
  const storage = await openStorage(sql).finally(() => sql.end());
  const secret = await openSecret({ configured: config.SECRET, dataDir: config.DATA_DIR });
  return await startService({
    config: { ...config, PORT: port, HTTP_TRANSPORT: sharedTransport(config.HTTP_TRANSPORT) },
    address,
    storage,
    secret,
    log,
    worker,
    sharesPort: true,
    offersSetup,
  });
}

/** Only Linux spreads connections over sockets of one port; elsewhere the primary hands them out, which is node:http's way. */
function sharedTransport(transport: Config['HTTP_TRANSPORT']): Config['HTTP_TRANSPORT'] {
  return transport === 'auto' && process.platform !== 'linux' ? 'node' : transport;
}

function report(report: WorkerReport): Promise<void> {
  return new Promise((resolve) => {
    if (process.connected && process.send !== undefined) process.send(report, () => resolve());
    else resolve();
  });
}

/** Calls back for the primary's word, its end, and a signal. Ctrl-C reaches primary and workers alike. */
function onOrder(stop: (reason: string) => void): void {
  process.on('message', (message) => {
    if (message === STOP) stop('told to');
  });
  process.once('disconnect', () => stop('the primary process is gone'));
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => stop(signal));
}
