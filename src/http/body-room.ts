/** The memory that request bodies share: who may take how much of it, and whose body is cut when it is full. */
import { BufferPool } from './buffer-pool.ts';

/** A body of up to this many bytes is small: it may use the reserve, where its route has one. */
const SMALL_BYTES = 16_384;
/** Part of the room that only small bodies of producers use. */
const RESERVE = 1 / 8;
/** Most of the room that the bodies of one address may take. The largest batch must fit in it by default. */
const ADDRESS_SHARE = 3 / 4;
/** Part of the room that is freed at a time, so that a full room is not searched again for each chunk that comes. */
const FREED_AT_ONCE = 1 / 32;

/** What the room has done since the start. */
export interface BodyRoomStats {
  /** Bodies that were cut to make room for others. */
  readonly cutForRoom: number;
  /** Bodies that were refused, as nothing could be cut for them. */
  readonly refused: number;
  /** The address that held most when a body was cut or refused last; empty where there was none. */
  readonly heaviestAddress: string;
}

interface Share {
  readonly address: string;
  /** Held by all bodies of the address that have an account. */
  bytes: number;
  readonly arriving: Set<BodyAccount>;
}

/** What one body holds. Small bodies that come in one piece have none: they are only counted. */
export class BodyAccount {
  readonly share: Share;
  readonly usesReserve: boolean;
  readonly cut: () => void;
  /** Bytes held. */
  bytes = 0;
  /** Bytes that came since the last sweep, and between that and the one before. */
  recentBytes = 0;
  earlierBytes = 0;

  constructor(share: Share, usesReserve: boolean, cut: () => void) {
    this.share = share;
    this.usesReserve = usesReserve;
    this.cut = cut;
  }

  /** How much of what the body holds has come lately, from 0 to 1: the body that wastes the room most has the least. */
  get pace(): number {
    return this.bytes === 0 ? 1 : (this.recentBytes + this.earlierBytes) / this.bytes;
  }
}

/**
 * Bytes of all bodies, from their first chunk until their answer, under one ceiling.
 *
 * - The last eighth is a reserve: only bodies of at most {@link SMALL_BYTES} of routes that say so use it.
 * - The bodies of one address take at most three quarters; small ones that come in one piece are not counted there.
 * - Where a body finds no room, others that have not come in full are cut for it: those of the address that holds most
 *   first, and of these the slowest for what they hold. Only where there are none, or the asking body is itself the
 *   next to be cut, is it refused.
 */
export class BodyRoom {
  /** Memory for bodies that come in pieces. */
  readonly buffers = new BufferPool();
  readonly #maxBytes: number;
  readonly #shares = new Map<string, Share>();
  #bytes = 0;
  #cutForRoom = 0;
  #refused = 0;
  #heaviestAddress = '';

  /** @param maxBytes ceiling of all bodies together */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The largest body that fits into an empty room: what is larger would be refused each time. */
  get largestBody(): number {
    return Math.floor(Math.min(this.#shareBytes, this.#ceiling(Number.POSITIVE_INFINITY, false)));
  }

  get stats(): BodyRoomStats {
    return {
      cutForRoom: this.#cutForRoom,
      refused: this.#refused,
      heaviestAddress: this.#heaviestAddress,
    };
  }

  /** True for a body that needs no account where it has come in one piece. */
  isSmall(bytes: number): boolean {
    return bytes <= SMALL_BYTES;
  }

  /**
   * Takes room for a small body that has come in one piece; {@link giveBack} returns it.
   * @returns false where there is none
   */
  take(bytes: number, usesReserve: boolean): boolean {
    const ceiling = this.#ceiling(bytes, usesReserve);
    if (this.#bytes + bytes > ceiling && !this.#makeRoom(bytes, ceiling, null)) return false;
    this.#bytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#bytes -= bytes;
  }

  /**
   * Opens the account of a body that comes in pieces, or that is not small.
   * @param cut ends the request; it closes the account
   */
  open(address: string, usesReserve: boolean, cut: () => void): BodyAccount {
    let share = this.#shares.get(address);
    if (share === undefined) {
      share = { address, bytes: 0, arriving: new Set() };
      this.#shares.set(address, share);
    }
    const account = new BodyAccount(share, usesReserve, cut);
    share.arriving.add(account);
    return account;
  }

  /** Takes room for more of a body. @returns false where there is none: the body is to be refused */
  grow(account: BodyAccount, bytes: number): boolean {
    const { share } = account;
    account.recentBytes += bytes;
    const ceiling = this.#ceiling(account.bytes + bytes, account.usesReserve);
    const fits =
      (share.bytes + bytes <= this.#shareBytes || this.#makeRoomInShare(account, bytes)) &&
      (this.#bytes + bytes <= ceiling || this.#makeRoom(bytes, ceiling, account));
    if (!fits) return false;
    account.bytes += bytes;
    share.bytes += bytes;
    this.#bytes += bytes;
    return true;
  }

  /** Gives back some of what a body holds. */
  shrink(account: BodyAccount, bytes: number): void {
    account.bytes -= bytes;
    account.share.bytes -= bytes;
    this.#bytes -= bytes;
  }

  /** The body has come in full: it is not cut any more, and keeps its room until its answer. */
  arrived(account: BodyAccount): void {
    account.share.arriving.delete(account);
  }

  /** Gives back what a body holds. */
  close(account: BodyAccount): void {
    const { share } = account;
    this.shrink(account, account.bytes);
    share.arriving.delete(account);
    if (share.bytes === 0 && share.arriving.size === 0) this.#shares.delete(share.address);
  }

  /** To be called at a steady interval: the pace of a body is what came within the last one to two of them. */
  sweep(): void {
    for (const { arriving } of this.#shares.values()) {
      for (const account of arriving) {
        account.earlierBytes = account.recentBytes;
        account.recentBytes = 0;
      }
    }
  }

  get #shareBytes(): number {
    return ADDRESS_SHARE * this.#maxBytes;
  }

  /** What all bodies may hold once one of this size is among them. */
  #ceiling(bodyBytes: number, usesReserve: boolean): number {
    return usesReserve && bodyBytes <= SMALL_BYTES ? this.#maxBytes : (1 - RESERVE) * this.#maxBytes;
  }

  #makeRoomInShare(asking: BodyAccount, bytes: number): boolean {
    const { share } = asking;
    return this.#cut([share], share.bytes + bytes - this.#shareBytes, asking);
  }

  #makeRoom(bytes: number, ceiling: number, asking: BodyAccount | null): boolean {
    const heaviestFirst = [...this.#shares.values()].sort((a, b) => b.bytes - a.bytes);
    return this.#cut(heaviestFirst, this.#bytes + bytes - ceiling, asking);
  }

  /**
   * Cuts bodies of these addresses in turn until enough is free.
   * @returns false, with nothing cut, where there is not so much to free before the asking body would be next
   */
  #cut(shares: readonly Share[], missingBytes: number, asking: BodyAccount | null): boolean {
    this.#heaviestAddress = shares[0]?.address ?? '';
    const toFree = Math.max(missingBytes, FREED_AT_ONCE * this.#maxBytes);
    const victims: BodyAccount[] = [];
    let freed = 0;
    for (const account of slowestFirst(shares)) {
      if (account === asking || freed >= toFree) break;
      victims.push(account);
      freed += account.bytes;
    }
    if (freed < missingBytes) {
      this.#refused += 1;
      return false;
    }
    this.#cutForRoom += victims.length;
    for (const { cut } of victims) cut();
    return true;
  }
}

/** Bodies that have not come in full: address by address, and of each the slowest for what it holds first. */
function* slowestFirst(shares: readonly Share[]): Generator<BodyAccount> {
  for (const { arriving } of shares)
    yield* [...arriving].sort((a, b) => a.pace - b.pace || b.bytes - a.bytes);
}
