/** A worker process: runs the service with the database address and the port that the primary passes to it. */
import cluster from 'node:cluster';
import { openSecret } from '../apps/secret.ts';
import { describeFailure } from '../cli/failure.ts';
import { onStopSignal, StopRequest } from '../cli/stop-request.ts';
import type { Config } from '../config.ts';
import { createLog } from '../process/log.ts';
import { ownCommandLine } from '../process/own-command.ts';
import { type Service, startService } from '../service.ts';
import { connect, type DatabaseAddress } from '../storage/database/connect.ts';
import { openStorage } from '../storage/storage.ts';

/** Environment variable with the worker's task. */
export const TASK_VARIABLE = 'TIDEMARK_WORKER';

/** Parameters from the primary. */
export interface WorkerTask {
  /** From 1 on; a replacement keeps the number of the worker it replaces. */
  readonly worker: number;
  readonly port: number;
  readonly address: DatabaseAddress;
  /** Whether this worker creates the setup link for the first account, if needed. */
  readonly offersSetup: boolean;
}

/** Report of a worker to the primary: it is listening, or why it failed. */
export type WorkerReport =
  | { readonly listening: Pick<Service, 'transport' | 'setupPath'> }
  | { readonly failed: string };

/** Message of the primary to stop a worker. */
export const STOP = 'stop';

/** Whether this process was started as a worker. */
export function isWorker(): boolean {
  return cluster.isWorker && process.env[TASK_VARIABLE] !== undefined;
}

/** Serves until the primary requests a stop, a signal arrives, or the primary exits; then drains and exits. */
export async function serveAsWorker(config: Config): Promise<void> {
  // Written by the primary of the same release, so it is not validated.
  const task = JSON.parse(process.env[TASK_VARIABLE] ?? '') as WorkerTask;
  const log = createLog(config.LOG_LEVEL, { worker: task.worker });
  const stopRequest = new StopRequest();
  stopRequest.onFault(log);
  // Otherwise node:cluster ends the worker without draining as soon as the primary exits.
  if (cluster.worker !== undefined) cluster.worker.exitedAfterDisconnect = true;
  onStopRequest((reason) => stopRequest.request(reason));
  let service: Service;
  try {
    service = await start(config, task, log);
  } catch (error) {
    log.debug({ err: error }, 'start failed');
    await report({ failed: describeFailure(error) });
    process.exit(1);
  }
  await report({ listening: { transport: service.transport, setupPath: service.setupPath } });
  log.info({ pid: process.pid }, 'Serving');

  const reason = await stopRequest.reason;
  log.info({ reason }, 'Stopping');
  setTimeout(() => {
    log.fatal('shutdown: SHUTDOWN_TIMEOUT_SECONDS exceeded, exiting with unanswered requests');
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
    commandLine: ownCommandLine(),
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

/** Reports stop requests: a message of the primary, its exit, or a signal. Ctrl-C signals primary and workers alike. */
function onStopRequest(stop: (reason: string) => void): void {
  process.on('message', (message) => {
    if (message === STOP) stop('requested by the primary');
  });
  process.once('disconnect', () => stop('the primary process exited'));
  onStopSignal(stop);
}
