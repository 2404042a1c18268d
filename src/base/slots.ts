/**
 * Places for work that shares something scarce, such as the connections of a pool. Who waits for a place waits in {@link Turns}: the
 * outermost holder of a path is an account.
 *
 * While others wait, an account that has half of the places gets no further one, and an account never gets all of them. So whoever
 * comes finds a place that no single account can take, or waits for one that becomes free after the work of one turn. Work of
 * several parts lets others in between two of them ({@link Place.pass}).
 */
import { type Path, Turns } from './turns.ts';

/** Who waits for the outcome of some work. */
export interface Waiter {
  /** True once nobody does any more: the client is gone, or its deadline has passed. */
  readonly settled: boolean;
  /** Has a listener called once, when that becomes so. @returns takes the listener back */
  whenSettled(listener: () => void): () => void;
}

/** Waits for work that goes on until whoever runs it stops. */
export class Ending implements Waiter {
  readonly #listeners = new Set<() => void>();
  #isSettled = false;

  get settled(): boolean {
    return this.#isSettled;
  }

  whenSettled(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Nobody waits any more. */
  settle(): void {
    this.#isSettled = true;
    for (const listener of [...this.#listeners]) listener();
    this.#listeners.clear();
  }
}

/** Why work was not run: too much waits, most of it the same account's; or its waiter is gone. */
export type NotRun = 'busy' | 'settled';

/** A place that some work has. */
export interface Place {
  /**
   * Between two parts of the work: lets those of other accounts in that wait, and waits for the account's next turn.
   * @returns null where the work goes on; otherwise why it has lost its place
   */
  pass(): Promise<NotRun | null>;
  /**
   * Waits for something else without the place, and then for the next turn. Where the place is another part's by then, or the work has
   * ended, it is as if nothing was given back.
   * @param turns whose turn it takes then, of the same account; by default that of the work
   * @returns the outcome, or why the work has lost its place; rejects if what is waited for does
   */
  outside<T>(wait: () => Promise<T>, turns?: Path): Promise<T | NotRun>;
}

interface Entry {
  readonly path: Path;
  /** Ends the waiting. */
  readonly go: (why: NotRun | null) => void;
}

type Account = Path[number];

/** With fewer places an account that is alone may take all of them. */
const FEWEST_WITH_RESERVE = 3;

export class Slots {
  readonly #places: number;
  readonly #maxWaiting: number;
  readonly #mostOfAccount: number;
  readonly #waiting = new Turns<Entry>();
  readonly #taken = new Map<Account, number>();
  #free: number;
  #evicted = 0;

  /**
   * @param places     how much work runs at once
   * @param maxWaiting limit of what waits: beyond it the latest of the account with most is not run
   * @param mostOfAccount how much of one account runs at once, although places are free
   */
  constructor(places: number, maxWaiting: number, mostOfAccount = places) {
    this.#places = places;
    this.#free = places;
    this.#maxWaiting = maxWaiting;
    this.#mostOfAccount = Math.min(mostOfAccount, places < FEWEST_WITH_RESERVE ? places : places - 1);
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Work that was not run because too much waited. */
  get evicted(): number {
    return this.#evicted;
  }

  /** Runs work in its turn. @returns its outcome, or why it was not run; rejects if the work does */
  async run<T>(path: Path, waiter: Waiter, work: (place: Place) => Promise<T>): Promise<T | NotRun> {
    const why = await this.#enter(path, waiter, false);
    if (why !== null) return why;
    let hasPlace = true;
    const pass = async (): Promise<NotRun | null> => {
      if (waiter.settled) return 'settled';
      if (this.#waiting.size === this.#waiting.countOf(path.slice(0, 1))) return null;
      this.#giveBack(path);
      hasPlace = false;
      const lost = await this.#enter(path, waiter, true);
      hasPlace = lost === null;
      return lost;
    };
    let isOver = false;
    let entering: Promise<NotRun | null> | null = null;
    const enterAgain = async (turns: Path): Promise<NotRun | null> => {
      const lost = await this.#enter(turns, waiter, true);
      entering = null;
      if (isOver && lost === null) {
        this.#giveBack(path);
        this.#fill();
      } else hasPlace = lost === null;
      return lost;
    };
    const outside = async <R>(wait: () => Promise<R>, turns = path): Promise<R | NotRun> => {
      if (hasPlace && !isOver) {
        hasPlace = false;
        this.#giveBack(path);
        this.#fill();
      }
      const outcome = await wait();
      if (hasPlace || isOver) return outcome;
      entering ??= enterAgain(turns);
      return (await entering) ?? outcome;
    };
    try {
      return await work({ pass, outside });
    } finally {
      isOver = true;
      if (hasPlace) {
        this.#giveBack(path);
        this.#fill();
      }
    }
  }

  /** @param goesOn whether it is the next part of work that has had a place: then it comes before the others of its holder */
  async #enter(path: Path, waiter: Waiter, goesOn: boolean): Promise<NotRun | null> {
    if (waiter.settled) return 'settled';
    const waiting = new Promise<NotRun | null>((go) => {
      const entry: Entry = {
        path,
        go: (why) => {
          forget();
          go(why);
        },
      };
      const forget = waiter.whenSettled(() => {
        if (this.#waiting.remove(path, entry)) go('settled');
      });
      if (goesOn) this.#waiting.putBack(path, entry, false);
      else this.#waiting.push(path, entry);
    });
    this.#fill();
    if (this.#waiting.size > this.#maxWaiting) {
      this.#evicted += 1;
      this.#waiting.evict()?.go('busy');
    }
    return await waiting;
  }

  #giveBack(path: Path): void {
    const account = accountOf(path);
    const left = (this.#taken.get(account) ?? 0) - 1;
    if (left > 0) this.#taken.set(account, left);
    else this.#taken.delete(account);
    this.#free += 1;
    this.#waiting.moveToEnd(account);
  }

  /** Gives free places to those whose turn it is: of accounts that have less than their share, else of those that may have more. */
  #fill(): void {
    const most = this.#mostOfAccount;
    const share = Math.min(most, Math.max(1, this.#places >> 1));
    while (this.#free > 0) {
      const next =
        this.#waiting.take((account) => (this.#hasLess(account, share) ? 0 : null)) ??
        this.#waiting.take((account) => (this.#hasLess(account, most) ? 0 : null));
      if (next === null) return;
      const account = accountOf(next.path);
      this.#taken.set(account, (this.#taken.get(account) ?? 0) + 1);
      this.#free -= 1;
      next.go(null);
    }
  }

  #hasLess(account: Account, most: number): boolean {
    return (this.#taken.get(account) ?? 0) < most;
  }
}

function accountOf(path: Path): Account {
  return path[0] ?? '';
}
