/**
 * The thread that compiles schemas and checks payloads, seen from outside. What takes too long in it, or too much memory, ends
 * the thread and nothing else; the next request starts another one.
 */
import { Worker } from 'node:worker_threads';

/** Where a payload does not meet its schema. */
export interface Violation {
  /** JSON Pointer into the payload; empty for the payload itself. */
  readonly path: string;
  /** What is wrong there: a clause without a subject. */
  readonly message: string;
}

export interface ThreadItem {
  /** Of the schema's text. */
  readonly digest: string;
  /** JSON text; null: the schema is only compiled. */
  readonly payload: string | null;
}

export interface ThreadRequest {
  /** Texts by their digests. */
  readonly schemas: Readonly<Record<string, string>>;
  readonly items: readonly ThreadItem[];
}

export interface Checked {
  readonly violation: Violation | null;
  /** Why the payload could not be checked; null if it was. */
  readonly problem: string | null;
  /** Duration of the check, and what an unusually long compilation took. */
  readonly ms: number;
}

/** What became of a request. */
export type ThreadOutcome =
  /** Of the first items, at least one; the others were not begun. */
  | { readonly checked: readonly Checked[] }
  /** The item that ended the thread; null: the thread did not start. The others were not checked. */
  | {
      readonly failedAt: number | null;
      readonly problem: string /** How long it was given. */;
      readonly ms: number;
    };

/** How often a request is looked at. */
const LOOK_MS = 50;
/** A check that is the same at so many looks in a row has taken too long: at least 250 ms. Looks stop while the process does. */
const CHECK_LOOKS = 6;
/** The same for a compilation, which is only as long where schemas are close to their limits. */
const COMPILE_LOOKS = 41;
/** And for the start of the thread, or of a request. */
const START_LOOKS = 200;

/** What a payload at its limits takes several times over. */
const RESOURCES = { maxOldGenerationSizeMb: 192, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };

const ENDED = 'the thread has ended';
const TOO_LONG = 'the check took too long';
const COMPILED_TOO_LONG = 'the schema took too long to compile';

/** One request at a time. */
export class SchemaThread {
  #worker: Worker | null = null;
  /** Numbers of begun items, of begun and of ended compilations. */
  #progress: Int32Array<SharedArrayBuffer | ArrayBuffer> = new Int32Array(0);
  #isReady = false;
  #finish: ((outcome: ThreadOutcome) => void) | null = null;
  #begunBefore = 0;
  #request: ThreadRequest = { schemas: {}, items: [] };
  #timer: NodeJS.Timeout | null = null;
  /** What the last look has seen, and how many have seen the same. */
  #seen = '';
  #looks = 0;

  /** @param request with at least one item */
  run(request: ThreadRequest): Promise<ThreadOutcome> {
    if (this.#finish !== null) throw new Error('The thread takes one request at a time.');
    this.#request = request;
    return new Promise((resolve) => {
      this.#finish = resolve;
      const worker = this.#worker ?? this.#start();
      this.#begunBefore = this.#begun;
      this.#looks = 0;
      this.#timer ??= setInterval(() => this.#look(), LOOK_MS);
      if (this.#isReady) worker.postMessage(request);
    });
  }

  /** Ends the thread, and what it does. The next request starts another one. */
  async close(): Promise<void> {
    if (this.#worker !== null) await this.#fail(this.#worker, ENDED);
  }

  get #begun(): number {
    return Atomics.load(this.#progress, 0);
  }

  #start(): Worker {
    const shared = new SharedArrayBuffer(3 * Int32Array.BYTES_PER_ELEMENT);
    const file = new URL('./thread.js', import.meta.url);
    const worker = new Worker(file, { workerData: shared, resourceLimits: RESOURCES, env: {}, execArgv: [] });
    worker.unref();
    this.#progress = new Int32Array(shared);
    this.#isReady = false;
    this.#worker = worker;
    worker.on('message', (message: 'ready' | readonly Checked[]) => {
      if (message !== 'ready') return this.#end({ checked: message });
      this.#isReady = true;
      this.#looks = 0;
      worker.postMessage(this.#request);
    });
    worker.on('error', (error) => void this.#fail(worker, error.message));
    worker.on('exit', () => void this.#fail(worker, ENDED));
    return worker;
  }

  /** Ends the thread where what it does has not changed for too long. */
  #look(): void {
    const worker = this.#worker;
    if (this.#finish === null || worker === null) {
      if (this.#timer !== null) clearInterval(this.#timer);
      this.#timer = null;
      return;
    }
    const now = this.#progress.join(' ');
    this.#looks = now === this.#seen ? this.#looks + 1 : 1;
    this.#seen = now;
    const isCompiling = Atomics.load(this.#progress, 1) > Atomics.load(this.#progress, 2);
    const hasBegun = this.#isReady && this.#begun > this.#begunBefore;
    const most = hasBegun ? (isCompiling ? COMPILE_LOOKS : CHECK_LOOKS) : START_LOOKS;
    if (this.#looks >= most) void this.#fail(worker, isCompiling ? COMPILED_TOO_LONG : TOO_LONG);
  }

  async #fail(worker: Worker, problem: string): Promise<void> {
    if (this.#worker !== worker) return;
    const index = this.#begun - this.#begunBefore - 1;
    this.#worker = null;
    this.#end({ failedAt: index < 0 ? null : index, problem, ms: this.#looks * LOOK_MS });
    await worker.terminate();
  }

  #end(outcome: ThreadOutcome): void {
    const finish = this.#finish;
    this.#finish = null;
    finish?.(outcome);
  }
}
