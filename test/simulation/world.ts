/**
 * Time, and whose turn it is. Everything that waits (timers, disks, networks, the database) is a task of the world; the seed
 * decides how long each takes. Between two tasks all promises settle, in the order that the language defines, so that a seed
 * decides everything.
 */
import { Random } from './random.ts';

/** Of a process: what belongs to one ends with it. */
export type Owner = object;

interface Task {
  readonly at: number;
  readonly number: number;
  readonly owner: Owner | null;
  readonly run: () => void;
}

/** What `setTimeout` and `setInterval` return. */
class Timer {
  task: Task | null = null;

  unref(): this {
    return this;
  }

  ref(): this {
    return this;
  }
}

const REAL = { setTimeout, clearTimeout, setInterval, clearInterval, setImmediate, random: Math.random };

export class World {
  readonly random: Random;
  /** Milliseconds since the beginning. */
  now = 0;
  /** What has happened, for people; null: nobody wants to know. */
  readonly trace: string[] | null;
  steps = 0;
  /** Ordered by time, then by number, from the end on. */
  readonly #tasks: Task[] = [];
  #number = 0;
  #owner: Owner | null = null;
  #failure: unknown = null;
  readonly #ended = new WeakSet<Owner>();

  constructor(seed: number, isTraced: boolean) {
    this.random = new Random(seed);
    this.trace = isTraced ? [] : null;
  }

  note(what: () => string): void {
    this.trace?.push(`${this.now.toFixed(3).padStart(10)} ${what()}`);
  }

  /** Does something later. @param owner by default whose turn it is; null: nobody's, so that it happens in any case */
  after(ms: number, run: () => void, owner = this.#owner): Task {
    this.#number += 1;
    const task: Task = { at: this.now + Math.max(0, ms), number: this.#number, owner, run };
    if (owner !== null && this.#ended.has(owner)) return task;
    let low = 0;
    let high = this.#tasks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBefore(task, this.#tasks[middle])) low = middle + 1;
      else high = middle;
    }
    this.#tasks.splice(low, 0, task);
    return task;
  }

  cancel(task: Task): void {
    const at = this.#tasks.indexOf(task);
    if (at !== -1) this.#tasks.splice(at, 1);
  }

  /** Resolves later, for whose turn it is. */
  delay(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.after(ms, resolve);
    });
  }

  /** What an owner would have done later never happens. */
  end(owner: Owner): void {
    this.#ended.add(owner);
    const left = this.#tasks.filter((task) => task.owner !== owner);
    this.#tasks.splice(0, this.#tasks.length, ...left);
  }

  /** Does something in the name of an owner, at once. */
  as<Result>(owner: Owner | null, work: () => Result): Result {
    const before = this.#owner;
    this.#owner = owner;
    try {
      return work();
    } finally {
      this.#owner = before;
    }
  }

  get owner(): Owner | null {
    return this.#owner;
  }

  /** Ends the run with this failure. */
  fail(failure: unknown): void {
    this.#failure ??= failure;
  }

  /**
   * Goes on until a condition holds.
   * @param afterEach called when all promises have settled
   * @returns whether it held in time
   */
  async run(
    isOver: () => boolean,
    until: number,
    afterEach: (owner: Owner | null) => void,
  ): Promise<boolean> {
    while (!isOver()) {
      const task = this.#tasks.pop();
      if (task === undefined || task.at > until) {
        if (task !== undefined) this.#tasks.push(task);
        return false;
      }
      this.steps += 1;
      this.now = task.at;
      this.#owner = task.owner;
      task.run();
      await new Promise(REAL.setImmediate);
      if (this.#failure === null) afterEach(task.owner);
      this.#owner = null;
      if (this.#failure !== null) throw this.#failure;
    }
    return true;
  }

  /** Puts this world's timers and chance in the place of the system's. @returns takes them back */
  install(): () => void {
    const once = (run: (...values: unknown[]) => void, ms = 0, ...values: unknown[]): Timer => {
      const timer = new Timer();
      timer.task = this.after(Math.max(1, ms), () => run(...values));
      return timer;
    };
    const again = (run: () => void, ms: number): Timer => {
      const timer = new Timer();
      const turn = (): void => {
        timer.task = this.after(ms, turn);
        run();
      };
      timer.task = this.after(ms, turn);
      return timer;
    };
    const clear = (timer: Timer | null | undefined): void => {
      if (timer?.task) this.cancel(timer.task);
    };
    Object.assign(globalThis, {
      setTimeout: once,
      clearTimeout: clear,
      setInterval: again,
      clearInterval: clear,
      setImmediate: (run: () => void) => this.after(0, run),
    });
    Math.random = () => this.random.next();
    const { stackTraceLimit } = Error;
    // The errors of a simulated database are many, and nobody reads where they were made.
    if (this.trace === null) Error.stackTraceLimit = 0;
    return () => {
      Error.stackTraceLimit = stackTraceLimit;
      const { random, ...timers } = REAL;
      Object.assign(globalThis, timers);
      Math.random = random;
    };
  }
}

function isBefore(task: Task, other: Task | undefined): boolean {
  if (other === undefined) return false;
  return task.at < other.at || (task.at === other.at && task.number < other.number);
}
