/**
 * How many different values there are. Up to {@link MOST_EXACT} they are told apart by hashes of 53 bits, which makes the count exact
 * but for one set in ten billion. Beyond that the count is an estimate by HyperLogLog with 2^14 registers (Flajolet, Fusy, Gandouet,
 * Meunier: "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", 2007), whose standard error is
 * 1.04 / sqrt(2^14) = 0.81 %. The estimator is the one of Otmar Ertl ("New cardinality estimation algorithms for HyperLogLog sketches",
 * https://arxiv.org/abs/1702.01284), which has no bias at small counts and needs no tables.
 *
 * Two sets are united in any order: the bytes are the same for the same values.
 */

/** Different values that are counted exactly. */
export const MOST_EXACT = 1_024;

const VERSION = 1;
const EXACT = 0;
const ESTIMATED = 1;
const HASH_BYTES = 7;
const HEAD_BYTES = 4;

/** Bits of a hash that choose a register, and that are left for its rank. */
const INDEX_BITS = 14;
const RANK_BITS = 39;
const REGISTERS = 2 ** INDEX_BITS;
const RANK_RANGE = 2 ** RANK_BITS;
const WORD = 2 ** 32;
/** Bits of a register as bytes. */
const REGISTER_BITS = 6;
const PACKED_BYTES = (REGISTERS * REGISTER_BITS) / 8;

/** Registers in memory: four in each word, the first one in its lowest byte. No byte of them has its highest bit. */
type Registers = Int32Array;
const WORDS = REGISTERS / 4;
const HIGHEST_BITS = 0x80808080;

export class DistinctValues {
  #hashes: Set<number> | null = null;
  #registers: Registers | null = null;
  /** The bytes of an exact set, as long as nothing is added to it. */
  #bytes: Buffer | null = null;

  /** Whether {@link count} is exact. */
  get isExact(): boolean {
    return this.#registers === null;
  }

  get count(): number {
    if (this.#registers !== null) return estimate(this.#registers);
    return this.#bytes === null ? this.#set().size : (this.#bytes.length - HEAD_BYTES) / HASH_BYTES;
  }

  /** @param text of a value: see value-text.ts */
  addValue(text: string): void {
    this.#addHash(hashOf(text));
  }

  add(other: DistinctValues): void {
    if (other.#registers !== null) {
      const registers = this.#estimate();
      for (let word = 0; word < WORDS; word += 1) unite(registers, word, other.#registers[word] ?? 0);
    } else if (other.#bytes !== null) this.addBytes(other.#bytes);
    else for (const hash of other.#hashes ?? []) this.#addHash(hash);
  }

  /** Adds what {@link toBytes} gives. */
  addBytes(bytes: Uint8Array): void {
    const view = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (view[0] !== VERSION) throw new Error('A sketch of different values is of an unknown version.');
    if (view[1] !== EXACT) {
      const registers = this.#estimate();
      for (let word = 0, at = HEAD_BYTES; word < WORDS; word += 1, at += 3)
        unite(registers, word, unpacked(view, at));
    } else if (this.#hashes === null && this.#registers === null && this.#bytes === null)
      this.#bytes = Buffer.from(view);
    else this.#addHashes(view);
  }

  /** Equal sets of values have the same bytes, in whatever order they were added. */
  toBytes(): Buffer {
    if (this.#registers !== null) {
      const bytes = Buffer.alloc(HEAD_BYTES + PACKED_BYTES);
      bytes[0] = VERSION;
      bytes[1] = ESTIMATED;
      for (let word = 0, at = HEAD_BYTES; word < WORDS; word += 1, at += 3)
        pack(this.#registers[word] ?? 0, bytes, at);
      return bytes;
    }
    const sorted = Float64Array.from(this.#set()).sort();
    const bytes = Buffer.alloc(HEAD_BYTES + HASH_BYTES * sorted.length);
    bytes[0] = VERSION;
    bytes[1] = EXACT;
    for (const [index, hash] of sorted.entries()) {
      const at = HEAD_BYTES + HASH_BYTES * index;
      bytes.writeUIntBE(Math.floor(hash / WORD), at, 3);
      bytes.writeUInt32BE(hash % WORD, at + 3);
    }
    return bytes;
  }

  #addHash(hash: number): void {
    if (this.#registers !== null) note(this.#registers, hash);
    else if (this.#set().add(hash).size > MOST_EXACT) this.#estimate();
  }

  #addHashes(exact: Buffer): void {
    for (let at = HEAD_BYTES; at < exact.length; at += HASH_BYTES)
      this.#addHash(exact.readUIntBE(at, 3) * WORD + exact.readUInt32BE(at + 3));
  }

  #set(): Set<number> {
    this.#hashes ??= new Set();
    const bytes = this.#bytes;
    this.#bytes = null;
    if (bytes !== null) this.#addHashes(bytes);
    return this.#hashes;
  }

  #estimate(): Registers {
    if (this.#registers !== null) return this.#registers;
    const registers = new Int32Array(WORDS);
    for (const hash of this.#set()) note(registers, hash);
    this.#hashes = null;
    this.#registers = registers;
    return registers;
  }
}

/** Notes the rank of a hash: how many zeros its second part begins with, and one. */
function note(registers: Registers, hash: number): void {
  const index = Math.floor(hash / RANK_RANGE);
  const rest = hash % RANK_RANGE;
  const high = Math.floor(rest / WORD);
  const zeros = high > 0 ? Math.clz32(high) - (64 - RANK_BITS) : RANK_BITS - 32 + Math.clz32(rest % WORD);
  unite(registers, index >> 2, (zeros + 1) << (8 * (index & 3)));
}

/** Raises the four registers of a word to those of another one. */
function unite(registers: Registers, word: number, others: number): void {
  const own = registers[word] ?? 0;
  // The highest bit of each byte whose own register is the greater one, or as great; then all of its bits.
  const high = ((own | HIGHEST_BITS) - others) & HIGHEST_BITS;
  const kept = high | (high - (high >>> 7));
  registers[word] = (own & kept) | (others & ~kept);
}

function estimate(registers: Registers): number {
  // By the place in a word: a place does not wait for what the one before it has counted.
  const counts = new Int32Array(4 * 64);
  const tally = (at: number): void => {
    counts[at] = (counts[at] ?? 0) + 1;
  };
  for (let at = 0; at < WORDS; at += 1) {
    const word = registers[at] ?? 0;
    tally(word & 63);
    tally(64 + ((word >> 8) & 63));
    tally(128 + ((word >> 16) & 63));
    tally(192 + (word >>> 24));
  }
  const multiplicity = Array.from({ length: RANK_BITS + 2 }, (_, rank) =>
    [0, 64, 128, 192].reduce((sum, place) => sum + (counts[place + rank] ?? 0), 0),
  );
  let sum = REGISTERS * tau(1 - (multiplicity[RANK_BITS + 1] ?? 0) / REGISTERS);
  for (let rank = RANK_BITS; rank >= 1; rank -= 1) sum = 0.5 * (sum + (multiplicity[rank] ?? 0));
  sum += REGISTERS * sigma((multiplicity[0] ?? 0) / REGISTERS);
  return Math.round(((REGISTERS / (2 * Math.LN2)) * REGISTERS) / sum);
}

/** σ of the source: x + Σ x^(2^k) 2^(k−1). */
function sigma(fraction: number): number {
  if (fraction === 1) return Number.POSITIVE_INFINITY;
  let [power, factor, sum, last] = [fraction, 1, fraction, Number.NaN];
  while (sum !== last) {
    power *= power;
    last = sum;
    sum += power * factor;
    factor += factor;
  }
  return sum;
}

/** τ of the source: (1 − x − Σ (1 − x^(2^−k))² 2^−k) / 3. */
function tau(fraction: number): number {
  if (fraction === 0 || fraction === 1) return 0;
  let [root, factor, sum, last] = [fraction, 1, 1 - fraction, Number.NaN];
  while (sum !== last) {
    root = Math.sqrt(root);
    last = sum;
    factor *= 0.5;
    sum -= (1 - root) ** 2 * factor;
  }
  return sum / 3;
}

/** Writes the four registers of a word into three bytes. */
function pack(word: number, into: Uint8Array, at: number): void {
  const bits = ((word & 63) << 18) | (((word >> 8) & 63) << 12) | (((word >> 16) & 63) << 6) | (word >>> 24);
  into[at] = bits >>> 16;
  into[at + 1] = bits >>> 8;
  into[at + 2] = bits;
}

function unpacked(bytes: Uint8Array, at: number): number {
  const bits = ((bytes[at] ?? 0) << 16) | ((bytes[at + 1] ?? 0) << 8) | (bytes[at + 2] ?? 0);
  return (bits >>> 18) | (((bits >>> 12) & 63) << 8) | (((bits >>> 6) & 63) << 16) | ((bits & 63) << 24);
}

/**
 * A hash of 53 bits: two lanes of MurmurHash3 (x86, 32 bits; Austin Appleby, public domain) over the UTF-16 units of a text, with
 * different constants.
 */
export function hashOf(text: string): number {
  let [high, low] = [0x9747b28c, 0x1b873593];
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    let mixed = Math.imul(unit, 0xcc9e2d51);
    mixed = Math.imul((mixed << 15) | (mixed >>> 17), 0x1b873593);
    high ^= mixed;
    high = Math.imul((high << 13) | (high >>> 19), 5) + 0xe6546b64;
    mixed = Math.imul(unit, 0x85ebca6b);
    mixed = Math.imul((mixed << 16) | (mixed >>> 16), 0xc2b2ae35);
    low ^= mixed;
    low = Math.imul((low << 15) | (low >>> 17), 9) + 0x52dce729;
  }
  high = finished(high ^ text.length);
  low = finished(low ^ Math.imul(text.length, 0x9e3779b1) ^ high);
  return (high >>> 0) * 2 ** 21 + (low >>> 11);
}

function finished(lane: number): number {
  let mixed = lane ^ (lane >>> 16);
  mixed = Math.imul(mixed, 0x85ebca6b);
  mixed ^= mixed >>> 13;
  mixed = Math.imul(mixed, 0xc2b2ae35);
  return mixed ^ (mixed >>> 16);
}
