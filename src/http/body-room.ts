/** The memory that request bodies share: its limits, and which body is cut when they are reached. */
import { BufferPool } from '../base/buffer-pool.ts';

/** A body of up to this many bytes is small: it may use the reserve if its route allows that. */
const SMALL_BYTES = 16_384;
/** Fraction of the memory that only small bodies of producers use. */
const RESERVE = 1 / 8;
/** Fraction of the memory that the bodies of one address may use. With default settings the largest batch fits in it. */
const ADDRESS_SHARE = 3 / 4;
/** Minimum fraction that a cut frees, so that full memory is not searched again for each chunk. */
const FREED_AT_ONCE = 1 / 32;

/** Counts since the start. */
export interface BodyRoomStats {
  /** Bodies that were cut to free memory for others. */
  readonly cutForRoom: number;
  /** Bodies that were refused because no memory could be freed for them. */
  readonly refused: number;
  /** The address that held most when a body was last cut or refused; empty if there was none. */
  readonly heaviestAddress: string;
}

interface Share {
  readonly address: string;
  /** Held by all bodies of the address that have an account. */
  bytes: number;
  readonly arriving: Set<BodyAccount>;
}

/** The memory of one body. Small bodies that arrive in one chunk have no account: only their bytes are counted. */
export class BodyAccount {
  readonly share: Share;
  readonly usesReserve: boolean;
  readonly cut: () => void;
  bytes = 0;
  /** Bytes that arrived since the last sweep, and between the last two sweeps. */
  recentBytes = 0;
  earlierBytes = 0;

  constructor(share: Share, usesReserve: boolean, cut: () => void) {
    this.share = share;
    this.usesReserve = usesReserve;
    this.cut = cut;
  }

  /** The fraction of the body that arrived lately, from 0 to 1. The slowest for its size is cut first. */
  get pace(): number {
    return this.bytes === 0 ? 1 : (this.recentBytes + this.earlierBytes) / this.bytes;
  }
}

/**
 * Counts the bytes of all bodies, from their first chunk until the response, and limits them.
 *
 * - A fraction {@link RESERVE} is only for bodies of at most {@link SMALL_BYTES} on routes with `usesReserve`.
 * - The bodies of one address use at most {@link ADDRESS_SHARE}; small ones that arrive in one chunk are not counted there.
 * - If there is no memory for a body, incomplete bodies are cut for it: those of the address that holds most first, and of
 *   these the slowest for their size. If there are none, or the body itself would be the next to be cut, it is refused.
 */
export class BodyRoom {
  /** Buffers of bodies that arrive in several chunks. */
  readonly buffers = new BufferPool();
  readonly #maxBytes: number;
  readonly #shares = new Map<string, Share>();
  #bytes = 0;
  #cutForRoom = 0;
  #refused = 0;
  #heaviestAddress = '';

  /** @param maxBytes limit of all bodies together */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Bytes held now. */
  get bytes(): number {
    return this.#bytes;
  }

  /** The largest body that fits if there is no other: a larger one would always be refused. */
  get largestBody(): number {
    return Math.floor(Math.min(this.#shareBytes, this.#limit(Number.POSITIVE_INFINITY, false)));
  }

  get stats(): BodyRoomStats {
    return {
      cutForRoom: this.#cutForRoom,
      refused: this.#refused,
      heaviestAddress: this.#heaviestAddress,
    };
  }

  /** Whether a body that arrived in one chunk needs no account. */
  isSmall(bytes: number): boolean {
    return bytes <= SMALL_BYTES;
  }

  /**
   * Reserves memory for a small body that arrived in one chunk; {@link giveBack} releases it.
   * @returns false if there is none
   */
  take(bytes: number, usesReserve: boolean): boolean {
    const limit = this.#limit(bytes, usesReserve);
    if (this.#bytes + bytes > limit && !this.#makeRoom(bytes, limit, null)) return false;
    this.#bytes += bytes;
    return true;
  }

  giveBack(bytes: number): void {
    this.#bytes -= bytes;
  }

  /**
   * Opens the account of a body that arrives in several chunks or is not small.
   * @param cut ends the request, which closes the account
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

  /** Reserves memory for more of a body. @returns false if there is none: the caller refuses the body */
  grow(account: BodyAccount, bytes: number): boolean {
    const { share } = account;
    account.recentBytes += bytes;
    const limit = this.#limit(account.bytes + bytes, account.usesReserve);
    const fits =
      (share.bytes + bytes <= this.#shareBytes || this.#makeRoomInShare(account, bytes)) &&
      (this.#bytes + bytes <= limit || this.#makeRoom(bytes, limit, account));
    if (!fits) return false;
    account.bytes += bytes;
    share.bytes += bytes;
    this.#bytes += bytes;
    return true;
  }

  /** Releases some of a body's memory. */
  shrink(account: BodyAccount, bytes: number): void {
    account.bytes -= bytes;
    account.share.bytes -= bytes;
    this.#bytes -= bytes;
  }

  /** The whole body has arrived: it is not cut any more, and holds its memory until the response. */
  arrived(account: BodyAccount): void {
    account.share.arriving.delete(account);
  }

  /** Releases all memory of a body. */
  close(account: BodyAccount): void {
    const { share } = account;
    this.shrink(account, account.bytes);
    share.arriving.delete(account);
    if (share.bytes === 0 && share.arriving.size === 0) this.#shares.delete(share.address);
  }

  /** Call at a fixed interval: the pace of a body covers the last one to two intervals. */
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

  /** The limit of all bodies for a body of this size. */
  #limit(bodyBytes: number, usesReserve: boolean): number {
    return usesReserve && bodyBytes <= SMALL_BYTES ? this.#maxBytes : (1 - RESERVE) * this.#maxBytes;
  }

  #makeRoomInShare(asking: BodyAccount, bytes: number): boolean {
    const { share } = asking;
    return this.#cut([share], share.bytes + bytes - this.#shareBytes, asking);
  }

  #makeRoom(bytes: number, limit: number, asking: BodyAccount | null): boolean {
    const heaviestFirst = [...this.#shares.values()].sort((a, b) => b.bytes - a.bytes);
    return this.#cut(heaviestFirst, this.#bytes + bytes - limit, asking);
  }

  /**
   * Cuts bodies of these addresses in turn until enough is free.
   * @returns false, with nothing cut, if that is not enough before the asking body would be next
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

/** Incomplete bodies by address, and of each address the slowest for their size first. */
function* slowestFirst(shares: readonly Share[]): Generator<BodyAccount> {
  for (const { arriving } of shares)
    yield* [...arriving].sort((a, b) => a.pace - b.pace || b.bytes - a.bytes);
}
