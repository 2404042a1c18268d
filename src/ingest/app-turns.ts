/** What waits, by app: each app's in order of arrival, the apps in turns, so that one with much waiting delays no other. */
export class AppTurns<Item> {
  /** In order of turns; none is empty. */
  readonly #apps = new Map<number, Item[]>();

  /** Apps that have something waiting. */
  get apps(): number {
    return this.#apps.size;
  }

  push(appId: number, item: Item): void {
    const items = this.#apps.get(appId);
    if (items === undefined) this.#apps.set(appId, [item]);
    else items.push(item);
  }

  /**
   * Puts back what was taken and is not finished: it is the first of its app when that has its next turn.
   * @param keepsTurn true where nothing of it was finished: the turn is still the app's
   */
  putBack(appId: number, item: Item, keepsTurn: boolean): void {
    const items = this.#apps.get(appId) ?? [];
    items.unshift(item);
    this.#apps.set(appId, items);
    if (!keepsTurn) return;
    const others = [...this.#apps].filter(([id]) => id !== appId);
    for (const [id] of others) this.#apps.delete(id);
    for (const [id, waiting] of others) this.#apps.set(id, waiting);
  }

  /** Takes the first of the app whose turn it is; null where nothing waits. */
  take(): Item | null {
    for (const [appId, items] of this.#apps) {
      const item = items.shift();
      // To the end of the round.
      this.#apps.delete(appId);
      if (items.length > 0) this.#apps.set(appId, items);
      if (item !== undefined) return item;
    }
    return null;
  }

  /** Takes the next of an app, which keeps its place among the turns; null where nothing of it waits. */
  takeOf(appId: number): Item | null {
    const items = this.#apps.get(appId);
    const item = items?.shift();
    if (items?.length === 0) this.#apps.delete(appId);
    return item ?? null;
  }

  /** Takes all of it. */
  drain(): Item[] {
    const all = [...this.#apps.values()].flat();
    this.#apps.clear();
    return all;
  }

  /** Takes back the last of an app, if it passes; null otherwise. */
  popLast(appId: number, passes: (item: Item) => boolean): Item | null {
    const items = this.#apps.get(appId);
    const last = items?.at(-1);
    if (items === undefined || last === undefined || !passes(last)) return null;
    items.pop();
    if (items.length === 0) this.#apps.delete(appId);
    return last;
  }
}
