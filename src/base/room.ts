/** How much waits or is in work, in events and in the memory that they take, by those whose it is. */
import type { Path } from './turns.ts';

export interface Amount {
  readonly events: number;
  readonly bytes: number;
}

export interface RoomLimits {
  readonly maxEvents: number;
  readonly maxBytes: number;
}

/** What a holder has, with all that those inside it have. */
interface Held {
  events: number;
  bytes: number;
  readonly inside: Map<string | number, Held>;
}

const NOTHING: Amount = { events: 0, bytes: 0 };

/** Room that holders share, which are named as in `Turns`: an account, then its app. */
export class Room {
  readonly #limits: RoomLimits;
  readonly #all: Held = { ...NOTHING, inside: new Map() };

  /** @param limits may change */
  constructor(limits: RoomLimits) {
    this.#limits = limits;
  }

  get events(): number {
    return this.#all.events;
  }

  get bytes(): number {
    return this.#all.bytes;
  }

  /** Whether there is room. What exceeds a limit by itself fits where nothing else is. */
  fits({ events, bytes }: Amount): boolean {
    const { maxEvents, maxBytes } = this.#limits;
    return this.events === 0 || (this.events + events <= maxEvents && this.bytes + bytes <= maxBytes);
  }

  take(amount: Amount, holder: Path = []): void {
    add(this.#all, amount, 1);
    let at = this.#all;
    for (const name of holder) {
      let next = at.inside.get(name);
      if (next === undefined) {
        next = { ...NOTHING, inside: new Map() };
        at.inside.set(name, next);
      }
      add(next, amount, 1);
      at = next;
    }
  }

  giveBack(amount: Amount, holder: Path = []): void {
    add(this.#all, amount, -1);
    let at: Held | undefined = this.#all;
    for (const name of holder) {
      const next: Held | undefined = at?.inside.get(name);
      if (next === undefined) return;
      add(next, amount, -1);
      if (next.events === 0) at?.inside.delete(name);
      at = next;
    }
  }

  of(holder: Path): Amount {
    return this.#find(holder) ?? NOTHING;
  }

  /**
   * Who has most of those inside a holder.
   * @param name   chosen unless another one has more
   * @param amount what it has, or would have
   */
  heaviest(
    within: Path,
    measure: keyof Amount,
    name: string | number,
    amount: number,
  ): { readonly name: string | number; readonly amount: number } {
    let heaviest = { name, amount };
    for (const [one, held] of this.#find(within)?.inside ?? [])
      if (held[measure] > heaviest.amount) heaviest = { name: one, amount: held[measure] };
    return heaviest;
  }

  #find(holder: Path): Held | undefined {
    let at: Held | undefined = this.#all;
    for (const name of holder) at = at?.inside.get(name);
    return at;
  }
}

function add(held: Held, { events, bytes }: Amount, sign: 1 | -1): void {
  held.events += sign * events;
  held.bytes += sign * bytes;
}
