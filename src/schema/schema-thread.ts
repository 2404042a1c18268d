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
  /** Digest of the schema's text. */
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
  /** Results of the first items, at least one; the others were not begun. */
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
/** The looks after which a compilation has taken too long; it takes long only where schemas are close to their limits. */
const COMPILE_LOOKS = 41;
/** The looks after which the start of the thread, or of a request, has taken too long. */
const START_LOOKS = 200;

/** What a payload at its limits takes several times over. */
const RESOURCES = { maxOldGenerationSizeMb: 192, maxYoungGenerationSizeMb: 32, stackSizeMb: 4 };

const ENDED = 'the thread has ended';
const TOO_LONG = 'the check took too long';
const COMPILED_TOO_LONG = 'the schema took too long to compile';

export interface SchemaThreadOptions {
  /** Looks after which a check or a compilation has taken too long; by default as long as each may take at all. */
  readonly looks?: number;
  /** Whether another thread is kept ready, so that no request waits for a start after one has ended. */
  readonly hasSpare?: boolean;
}

interface Started {
  readonly worker: Worker;
  /** Numbers of begun items, of begun and of ended compilations. */
  readonly progress: Int32Array<SharedArrayBuffer>;
  isReady: boolean;
}

/** One request at a time. */
export class SchemaThread {
  readonly #options: SchemaThreadOptions;
  #current: Started | null = null;
  #spare: Started | null = null;
  #finish: ((outcome: ThreadOutcome) => void) | null = null;
  #begunBefore = 0;
  #request: ThreadRequest = { schemas: {}, items: [] };
  #timer: NodeJS.Timeout | null = null;
  /** What the last look has seen, and how many have seen the same. */
  #seen = '';
  #looks = 0;

  constructor(options: SchemaThreadOptions = {}) {
    this.#options = options;
  }

  /** Threads that have started and not ended, and wait for nothing but a request. */
  get ready(): number {
    return [this.#current, this.#spare].filter((one) => one?.isReady === true).length;
  }

  /** @param request with at least one item */
  run(request: ThreadRequest): Promise<ThreadOutcome> {
    if (this.#finish !== null) throw new Error('The thread takes one request at a time.');
    this.#request = request;
    return new Promise((resolve) => {
      this.#finish = resolve;
      this.#current ??= this.#spare ?? this.#start();
      if (this.#spare === this.#current) this.#spare = null;
      if (this.#options.hasSpare === true) this.#spare ??= this.#start();
      this.#begunBefore = begun(this.#current);
      this.#looks = 0;
      this.#timer ??= setInterval(() => this.#look(), LOOK_MS);
      if (this.#current.isReady) this.#current.worker.postMessage(request);
    });
  }

  /** Ends the thread, and what it does. The next request starts another one. */
  async close(): Promise<void> {
    const spare = this.#spare;
    this.#spare = null;
    await spare?.worker.terminate();
    if (this.#current !== null) await this.#fail(this.#current, ENDED);
  }

  #start(): Started {
    const shared = new SharedArrayBuffer(3 * Int32Array.BYTES_PER_ELEMENT);
    const file = new URL('./thread.js', import.meta.url);
    const worker = new Worker(file, { workerData: shared, resourceLimits: RESOURCES, env: {}, execArgv: [] });
    worker.unref();
    const started: Started = { worker, progress: new Int32Array(shared), isReady: false };
    worker.on('message', (message: 'ready' | readonly Checked[]) => {
      if (message === 'ready') started.isReady = true;
      // A spare has become ready, or one that was ended had finished.
      if (started !== this.#current || this.#finish === null) return;
      if (message !== 'ready') return this.#end({ checked: message });
      this.#looks = 0;
      worker.postMessage(this.#request);
    });
    worker.on('error', (error) => void this.#fail(started, error.message));
    worker.on('exit', () => void this.#fail(started, ENDED));
    return started;
  }

  /** Ends the thread where what it does has not changed for too long. */
  #look(): void {
    const current = this.#current;
    if (this.#finish === null || current === null) {
      if (this.#timer !== null) clearInterval(this.#timer);
      this.#timer = null;
      return;
    }
    const { progress, isReady } = current;
    const now = progress.join(' ');
    this.#looks = now === this.#seen ? this.#looks + 1 : 1;
    this.#seen = now;
    const isCompiling = Atomics.load(progress, 1) > Atomics.load(progress, 2);
    const hasBegun = isReady && begun(current) > this.#begunBefore;
    const { looks = isCompiling ? COMPILE_LOOKS : CHECK_LOOKS } = this.#options;
    if (this.#looks >= (hasBegun ? looks : START_LOOKS))
      void this.#fail(current, isCompiling ? COMPILED_TOO_LONG : TOO_LONG);
  }

  async #fail(failed: Started, problem: string): Promise<void> {
    if (failed === this.#spare) this.#spare = null;
    if (failed !== this.#current) return;
    const index = begun(failed) - this.#begunBefore - 1;
    this.#current = null;
    this.#end({ failedAt: index < 0 ? null : index, problem, ms: this.#looks * LOOK_MS });
    await failed.worker.terminate();
  }

  #end(outcome: ThreadOutcome): void {
    const finish = this.#finish;
    this.#finish = null;
    finish?.(outcome);
  }
}

/** Number of items that a thread has begun. */
function begun({ progress }: Started): number {
  return Atomics.load(progress, 0);
}
