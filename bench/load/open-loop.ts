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
const BACKLOG_CEILING = 100_000;
/** How long what is still in the backlog when the last request is due may wait to be sent, and the last answers to come. */
const BACKLOG_TIMEOUT_MS = 2_000;
const ANSWER_TIMEOUT_MS = 30_000;

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

export function requestText(port: number, request: LoadRequest, body: string | undefined): string {
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

/** Runs one job to its end. @param nextGlobal numbers that no other job of this process gets */
export function runOpenLoop(job: OpenJob, nextGlobal: () => number): Promise<LoadReport> {
  return new OpenLoop(job, nextGlobal).run();
}

interface Waiting {
  readonly text: string;
  readonly due: Due;
}

/** Requests that found no free connection, oldest first. An index in place of shift(), which moves every entry. */
class Backlog {
  #entries: Waiting[] = [];
  #head = 0;

  get length(): number {
    return this.#entries.length - this.#head;
  }

  push(entry: Waiting): void {
    this.#entries.push(entry);
  }

  shift(): Waiting | undefined {
    const entry = this.#entries[this.#head];
    if (entry === undefined) return undefined;
    this.#head += 1;
    if (this.#head === this.#entries.length || this.#head > BACKLOG_CEILING) {
      this.#entries = this.#entries.slice(this.#head);
      this.#head = 0;
    }
    return entry;
  }
}

class OpenLoop {
  readonly #job: OpenJob;
  readonly #texts: readonly (() => string)[];
  readonly #total: number;
  readonly #connections: Connection[] = [];
  /** Used in turn: the server may close one that is idle for ten seconds at the moment at which it is used again. */
  readonly #free: Connection[] = [];
  readonly #backlog = new Backlog();
  readonly #acknowledged = new AcknowledgedEvents();
  readonly #latency = new LatencyHistogram();
  readonly #statuses: Record<string, number> = {};
  readonly #refusals: string[] = [];
  #startedAt = 0;
  #sent = 0;
  #answered = 0;
  #lost = 0;
  #dropped = 0;
  #lastAnswerAt = 0;
  #onOver: () => void = () => undefined;

  constructor(job: OpenJob, nextGlobal: () => number) {
    let sequence = 0;
    const numbers = { n: () => sequence++, g: nextGlobal };
    this.#job = job;
    this.#texts = job.requests.map((request) => prepare(job.port, request, numbers));
    this.#total = Math.round(job.perSecond * job.seconds);
  }

  async run(): Promise<LoadReport> {
    const { connections } = this.#job;
    for (let index = 0; index < connections; index += 1) this.#connect();
    while (this.#free.length < connections) await new Promise((resolve) => setTimeout(resolve, 5));
    const cpuBefore = process.cpuUsage();
    this.#startedAt = performance.now();
    await this.#sendAll();
    await this.#finish();
    const cpu = process.cpuUsage(cpuBefore);
    for (const connection of this.#connections) connection.close();
    return this.#report(cpu.user + cpu.system);
  }

  get #isOver(): boolean {
    return this.#answered + this.#lost + this.#dropped === this.#total;
  }

  #connect(): void {
    this.#connections.push(
      new Connection(this.#job.port, {
        onAnswer: (status, body, due) => this.#onAnswer(status, body, due),
        onFree: (connection) => this.#onFree(connection),
        onLost: (connection, due) => this.#onLost(connection, due),
      }),
    );
  }

  #onAnswer(status: number, body: string, due: Due): void {
    this.#lastAnswerAt = performance.now();
    if (due.counted) this.#latency.record(this.#lastAnswerAt - due.at);
    this.#statuses[status] = (this.#statuses[status] ?? 0) + 1;
    this.#answered += 1;
    if (status === 201) this.#acknowledged.note(body);
    else if (status !== 200 && this.#refusals.length < MAX_REFUSALS) this.#refusals.push(body);
    if (this.#isOver) this.#onOver();
  }

  #onFree(connection: Connection): void {
    const next = this.#backlog.shift();
    if (next === undefined) this.#free.push(connection);
    else connection.send(next.text, next.due);
  }

  #onLost(connection: Connection, due: Due | null): void {
    const index = this.#free.indexOf(connection);
    if (index >= 0) this.#free.splice(index, 1);
    if (due !== null) this.#lost += 1;
    if (this.#isOver) this.#onOver();
    else this.#connect();
  }

  /** When the `n`-th request is due. */
  #dueAt(n: number): number {
    return this.#startedAt + (n * 1_000) / this.#job.perSecond;
  }

  /** Sends every request when it is due, whatever the answers. */
  async #sendAll(): Promise<void> {
    const wait = this.#job.perSecond <= SPIN_UP_TO_PER_SECOND ? spinUntil : sleepShortly;
    while (this.#sent < this.#total) {
      await wait(this.#dueAt(this.#sent));
      const now = performance.now();
      while (this.#sent < this.#total && this.#dueAt(this.#sent) <= now) this.#sendNext();
      this.#drop(this.#backlog.length - BACKLOG_CEILING);
    }
  }

  #sendNext(): void {
    const text = this.#texts[this.#sent % this.#texts.length]?.() ?? '';
    const at = this.#dueAt(this.#sent);
    const due = { at, counted: at >= this.#startedAt + this.#job.warmUpSeconds * 1_000 };
    this.#sent += 1;
    const connection = this.#free.shift();
    if (connection === undefined) this.#backlog.push({ text, due });
    else connection.send(text, due);
  }

  /** Gives up the oldest requests of the backlog: each of them has waited at least until now. */
  #drop(count: number): void {
    for (let index = 0; index < count; index += 1) {
      const due = this.#backlog.shift()?.due;
      if (due?.counted === true) this.#latency.record(performance.now() - due.at);
      this.#dropped += 1;
    }
  }

  /** Waits for the last answers; what is not sent in time by then is dropped. */
  async #finish(): Promise<void> {
    const over = new Promise<void>((resolve) => {
      this.#onOver = resolve;
    });
    if (this.#isOver) return;
    const answerTimeout = setTimeout(() => this.#onOver(), ANSWER_TIMEOUT_MS);
    const backlogTimeout = setTimeout(() => {
      this.#drop(this.#backlog.length);
      if (this.#isOver) this.#onOver();
    }, BACKLOG_TIMEOUT_MS);
    await over;
    clearTimeout(answerTimeout);
    clearTimeout(backlogTimeout);
  }

  #report(generatorMicros: number): LoadReport {
    return {
      seconds: (this.#lastAnswerAt - this.#startedAt) / 1_000,
      statuses: this.#statuses,
      unanswered: this.#total - this.#answered - this.#dropped,
      dropped: this.#dropped,
      acknowledged: this.#acknowledged.sum(),
      latency: this.#latency.summary(),
      generatorMicros: generatorMicros / Math.max(1, this.#answered),
      refusals: this.#refusals,
    };
  }
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
