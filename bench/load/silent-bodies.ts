/** Requests that never end: connections that send all but the last byte of a body, or that do not read their response. */
import { connect, type Socket } from 'node:net';
import type { HeldJob, LoadReport, SilentJob } from './load-job.ts';
import { parseResponse, requestText } from './open-loop.ts';

/** Keeps up as many of them as the job says: one that the server ends begins again. */
export async function runSilentBodies(job: SilentJob): Promise<LoadReport> {
  const started = performance.now();
  const [request] = job.requests;
  const head =
    `${request?.method} ${request?.path} HTTP/1.1\r\nHost: 127.0.0.1:${job.port}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${job.announcedBytes}\r\n\r\n`;
  const sent = Buffer.concat([Buffer.from(head), Buffer.alloc(job.announcedBytes - 1, ' ')]);
  const statuses: Record<string, number> = {};
  const refusals: string[] = [];
  const sockets = new Set<Socket>();
  let isOver = false;

  const open = (): void => {
    if (isOver) return;
    const socket = connect({ host: '127.0.0.1', port: job.port });
    let received = Buffer.alloc(0);
    sockets.add(socket);
    socket.on('error', () => undefined); // 'close' follows.
    socket.on('connect', () => socket.write(sent));
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      const response = parseResponse(received);
      if (response === null) return;
      statuses[response.status] = (statuses[response.status] ?? 0) + 1;
      if (refusals.length === 0) refusals.push(response.body);
      socket.destroy();
    });
    socket.on('close', () => {
      sockets.delete(socket);
      setTimeout(open, job.againMs);
    });
  };
  for (let index = 0; index < job.connections; index += 1) open();
  await new Promise((resolve) => setTimeout(resolve, job.seconds * 1_000));
  isOver = true;
  const unanswered = sockets.size;
  for (const socket of sockets) socket.destroy();
  return reportOf({ started, statuses, unanswered, refusals });
}

/** Opens one connection after the other for its requests in turn, and keeps each open until the end. */
export async function runHeldResponses(job: HeldJob): Promise<LoadReport> {
  const started = performance.now();
  const statuses: Record<string, number> = {};
  const refusals: string[] = [];
  let answered = 0;
  const sockets = Array.from({ length: job.connections }, (_, index) => {
    const socket = connect({ host: '127.0.0.1', port: job.port });
    const request = job.requests[index % job.requests.length];
    socket.on('error', () => undefined);
    socket.once(
      'connect',
      () => request !== undefined && socket.write(requestText(job.port, request, request.body)),
    );
    socket.once('data', (head) => {
      const status = head.toString('latin1', 9, 12);
      statuses[status] = (statuses[status] ?? 0) + 1;
      answered += 1;
      if (status !== '200' && refusals.length === 0) refusals.push(parseResponse(head)?.body ?? '');
      socket.pause();
    });
    return socket;
  });
  await new Promise((resolve) => setTimeout(resolve, job.seconds * 1_000));
  for (const socket of sockets) socket.destroy();
  return reportOf({ started, statuses, unanswered: job.connections - answered, refusals });
}

function reportOf(
  seen: Pick<LoadReport, 'statuses' | 'unanswered' | 'refusals'> & { readonly started: number },
): LoadReport {
  const { started, ...rest } = seen;
  return {
    ...rest,
    seconds: (performance.now() - started) / 1_000,
    dropped: 0,
    acknowledged: { events: 0, idSum: 0 },
    latency: null,
    generatorMicros: 0,
  };
}
