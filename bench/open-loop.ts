/** Open-loop load: requests at their intended times, over as many connections as are free, and a queue where none is. */
import { connect, type Socket } from 'node:net';
import { LatencyHistogram } from './latency.ts';
import { AcknowledgedEvents } from './ledger.ts';
import type { LoadReport, LoadRequest, OpenJob } from './load-job.ts';

const MAX_REFUSALS = 5;
/** From this distance on single requests are waited for by spinning: timers are up to a millisecond and a half late. */
const SPIN_MS = 2;
/** Above this rate a timer a millisecond sends whatever is due: spinning would take a core from the service. */
const SPIN_UP_TO_PER_SECOND = 200;
/** Most requests that wait for a connection; beyond it the oldest are given up. */
const QUEUE_CEILING = 100_000;
/** How long what is still queued when the last request is due may wait to be sent, and the last answers to come. */
const QUEUE_TIMEOUT_MS = 2_000;
const TIMEOUT_MS = 30_000;

interface Due {
  readonly at: number;
  readonly counted: boolean;
}

type OnAnswer = (status: number, body: string, due: Due) => void;

/** One connection with at most one request on it. */
class Connection {
  readonly #socket: Socket;
  readonly #onAnswer: OnAnswer;
  readonly #onFree: (connection: Connection) => void;
  #received: Buffer | null = null;
  #due: Due | null = null;

  constructor(
    port: number,
    handlers: {
      onAnswer: OnAnswer;
      onFree: (connection: Connection) => void;
      onLost: (connection: Connection, due: Due | null) => void;
    },
  ) {
    this.#onAnswer = handlers.onAnswer;
    this.#onFree = handlers.onFree;
    this.#socket = connect({ host: '127.0.0.1', port, noDelay: true });
    this.#socket.on('data', (chunk) => this.#receive(chunk));
    this.#socket.on('error', () => undefined); // 'close' follows.
    this.#socket.on('close', () => handlers.onLost(this, this.#due));
    this.#socket.once('connect', () => handlers.onFree(this));
  }

  send(request: Buffer | string, due: Due): void {
    this.#due = due;
    this.#socket.write(request);
  }

  close(): void {
    this.#due = null;
    this.#socket.removeAllListeners('close');
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    const received = this.#received === null ? chunk : Buffer.concat([this.#received, chunk]);
    const response = parseResponse(received);
    this.#received = response === null ? received : null;
    if (response === null || this.#due === null) return;
    const due = this.#due;
    this.#due = null;
    this.#onAnswer(response.status, response.body, due);
    this.#onFree(this);
  }
}

/** @returns null while the response is not complete. Every answer of the service announces its length. */
export function parseResponse(received: Buffer): { status: number; body: string } | null {
  const end = received.indexOf('\r\n\r\n');
  if (end < 0) return null;
  const head = received.toString('latin1', 0, end);
  const length = Number(/\r\ncontent-length: *(\d+)/i.exec(head)?.[1] ?? 0);
  if (received.length < end + 4 + length) return null;
  return { status: Number(head.slice(9, 12)), body: received.toString('utf8', end + 4, end + 4 + length) };
}

function requestText(port: number, request: LoadRequest, body: string | undefined): string {
  const headers = { Host: `127.0.0.1:${port}`, ...request.headers };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const head = `${request.method} ${request.path} HTTP/1.1\r\n${lines.join('')}`;
  return body === undefined
    ? `${head}\r\n`
    : `${head}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
}

/** Texts that differ in nothing are made once. */
function prepare(
  port: number,
  request: LoadRequest,
  numbers: { n: () => number; g: () => number },
): () => string {
  const { body } = request;
  if (body === undefined || !/\{[ng]\}/.test(body)) {
    const text = requestText(port, request, body);
    return () => text;
  }
  return () =>
    requestText(
      port,
      request,
      body.replace('{n}', () => String(numbers.n())).replace('{g}', () => String(numbers.g())),
    );
}

export async function runOpenLoop(job: OpenJob, nextGlobal: () => number): Promise<LoadReport> {
  let sequence = 0;
  const numbers = { n: () => sequence++, g: nextGlobal };
  const texts = job.requests.map((request) => prepare(job.port, request, numbers));
  const acknowledged = new AcknowledgedEvents();
  const latency = new LatencyHistogram();
  const statuses: Record<string, number> = {};
  const refusals: string[] = [];
  const total = Math.round(job.perSecond * job.seconds);
  const intervalMs = 1_000 / job.perSecond;
  let answered = 0;
  let lost = 0;
  let dropped = 0;
  let lastAnswer = 0;

  /** In turn: one that is left alone for ten seconds the server may close, just when it is used again. */
  const free: Connection[] = [];
  /** What is due and found no free connection, oldest first from `queueHead` on. */
  let queue: { text: string; due: Due }[] = [];
  let queueHead = 0;
  const connections: Connection[] = [];
  let onOver = (): void => undefined;
  const over = new Promise<void>((resolve) => {
    onOver = resolve;
  });
  const finish = (): void => {
    if (answered + lost + dropped === total) onOver();
  };
  const onFree = (connection: Connection): void => {
    const next = queue[queueHead];
    if (next === undefined) {
      free.push(connection);
      return;
    }
    queueHead += 1;
    if (queueHead === queue.length || queueHead > QUEUE_CEILING) {
      queue = queue.slice(queueHead);
      queueHead = 0;
    }
    connection.send(next.text, next.due);
  };
  const onAnswer: OnAnswer = (status, body, due) => {
    lastAnswer = performance.now();
    if (due.counted) latency.record(lastAnswer - due.at);
    statuses[status] = (statuses[status] ?? 0) + 1;
    answered += 1;
    if (status === 201) acknowledged.note(body);
    else if (status !== 200 && refusals.length < MAX_REFUSALS) refusals.push(body);
    finish();
  };
  const addConnection = (): void => {
    connections.push(
      new Connection(job.port, {
        onAnswer,
        onFree,
        onLost: (connection, due) => {
          const index = free.indexOf(connection);
          if (index >= 0) free.splice(index, 1);
          if (due !== null) lost += 1;
          finish();
          if (answered + lost + dropped < total) addConnection();
        },
      }),
    );
  };
  for (let index = 0; index < job.connections; index += 1) addConnection();
  while (free.length < job.connections) await new Promise((resolve) => setTimeout(resolve, 5));

  const cpuBefore = process.cpuUsage();
  const started = performance.now();
  const countFrom = started + job.warmUpSeconds * 1_000;
  let sent = 0;
  // Whoever was never served has waited at least until now.
  const drop = (count: number): void => {
    for (const { due } of queue.splice(0, queueHead + count).slice(queueHead)) {
      if (due.counted) latency.record(performance.now() - due.at);
      dropped += 1;
    }
    queueHead = 0;
  };
  const sendDue = (now: number): void => {
    for (let at = started + sent * intervalMs; sent < total && at <= now; at = started + sent * intervalMs) {
      const text = texts[sent % texts.length]?.() ?? '';
      const due = { at, counted: at >= countFrom };
      sent += 1;
      const connection = free.shift();
      if (connection === undefined) queue.push({ text, due });
      else connection.send(text, due);
    }
  };
  const wait = job.perSecond <= SPIN_UP_TO_PER_SECOND ? spinUntil : sleepShortly;
  while (sent < total) {
    await wait(started + sent * intervalMs);
    sendDue(performance.now());
    const excess = queue.length - queueHead - QUEUE_CEILING;
    if (excess > 0) drop(excess);
  }
  const timeouts = setTimeout(onOver, TIMEOUT_MS);
  const dropQueue = setTimeout(() => {
    drop(queue.length - queueHead);
    finish();
  }, QUEUE_TIMEOUT_MS);
  finish();
  await over;
  clearTimeout(timeouts);
  clearTimeout(dropQueue);
  const cpu = process.cpuUsage(cpuBefore);
  for (const connection of connections) connection.close();
  return {
    seconds: (lastAnswer - started) / 1_000,
    statuses,
    unanswered: total - answered - dropped,
    dropped,
    acknowledged: acknowledged.sum(),
    latency: latency.summary(),
    generatorMicros: (cpu.user + cpu.system) / Math.max(1, answered),
    refusals,
  };
}

/** Resolves within microseconds of a time, at the price of a core for its last {@link SPIN_MS}. */
export async function spinUntil(at: number): Promise<void> {
  const early = at - SPIN_MS - performance.now();
  if (early > 0) await new Promise((resolve) => setTimeout(resolve, early));
  while (performance.now() < at) await new Promise(setImmediate);
}

async function sleepShortly(): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 1));
}
