/**
 * What a snapshot says stays as it is, so that its charts ask for it once: retention, declarations, names, minutes that are not counted.
 * It is forgotten with the snapshot.
 */
export class Once {
  readonly #known = new Map<string, unknown>();

  /** @param key says what is read and all that it depends on @returns what the first `read` of this key returned */
  get<T>(key: string, read: () => T): T {
    if (!this.#known.has(key)) this.#known.set(key, read());
    // A key has one kind of answer.
    return this.#known.get(key) as T;
  }
}
