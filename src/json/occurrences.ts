/** Where a text has a part. Asked from lower indexes to higher ones, it searches for each occurrence once. */
export class Occurrences {
  readonly #part: string;
  #text = '';
  #from = 0;
  #at = -1;

  constructor(part: string) {
    this.#part = part;
  }

  get length(): number {
    return this.#part.length;
  }

  in(text: string): this {
    this.#text = text;
    this.#from = 0;
    this.#at = -1;
    return this;
  }

  /** @returns the first index from one on; infinite where there is none */
  from(index: number): number {
    if (index > this.#at || index < this.#from) {
      const found = this.#text.indexOf(this.#part, index);
      this.#from = index;
      this.#at = found === -1 ? Number.POSITIVE_INFINITY : found;
    }
    return this.#at;
  }
}
