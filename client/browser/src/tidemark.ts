/**
 * Logs events of a page. What {@link Tidemark.track} has accepted is stored exactly once: it waits in IndexedDB with a key and a time until
 * the service has answered, whichever tab sends it, and however often the page dies.
 */

export interface TidemarkOptions {
  /** Address of the service, such as `https://events.example.com`. */
  readonly url: string;
  /** The browser key, `tdb_…`. */
  readonly key: string;
  /** Events that wait at most. Default: 10,000. */
  readonly maxEvents?: number;
  /** Which event is dropped when the queue is full. Default: the oldest. */
  readonly drop?: 'oldest' | 'newest';
  /** How long an event waits for others, in milliseconds. Default: 1,000. */
  readonly delayMs?: number;
  /** Whether Do Not Track and Global Privacy Control turn everything off. Default: true. */
  readonly respectPrivacy?: boolean;
  /** Called with each event that is refused for good. */
  readonly onRefused?: (event: { readonly type: string; readonly payload: string }, code: string) => void;
}

export interface TidemarkStats {
  readonly stored: number;
  readonly refused: number;
  readonly dropped: number;
  /** Events that wait in memory, which end with the page. */
  readonly waitingInMemory: number;
  /** Whether events wait in memory, because the browser's storage is full, private or blocked. */
  readonly inMemory: boolean;
}

interface Waiting {
  readonly type: string;
  /** Identifies the event in all requests that may bring it. */
  readonly key: string;
  /** JSON text. */
  readonly payload: string;
  /** When it was tracked, by the clock of this machine. */
  readonly at: number;
  /** When it was tracked, by the clock of the service, once that is known. It never changes again. */
  date?: number;
}

interface Failure {
  readonly index: number;
  readonly code: string;
  readonly aheadMs?: number;
}

/** Characters of a payload and of a request: the second is what a browser lets a dying page send. */
const MAX_PAYLOAD = 16_384;
const MAX_REQUEST = 50_000;
const MAX_BATCH = 500;
/** An event that is so far ahead of the service is refused for good. */
const MAX_AHEAD_MS = 600_000;
const STORE = 'events';

export class Tidemark {
  #stored = 0;
  #refused = 0;
  #dropped = 0;
  readonly #options: TidemarkOptions;
  readonly #name: string;
  readonly #isOff: boolean;
  /** Null while events wait in memory. */
  #database: Promise<IDBDatabase | null>;
  #memory: Waiting[] = [];
  #inMemory = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isSending = false;
  #failures = 0;
  /** Time before which the service wants no request, by the steady clock. */
  #notBefore = 0;
  /** True once the service has refused the key or the origin. */
  #isRefused = false;
  /** Service's clock less this machine's; and the difference of this machine's wall clock to its steady one at that time. */
  #offset: number | undefined;
  #base = 0;
  #batch = MAX_BATCH;

  constructor(options: TidemarkOptions) {
    this.#options = options;
    this.#name = `tidemark ${options.key}`;
    const { doNotTrack, globalPrivacyControl } = navigator as Navigator & { globalPrivacyControl?: boolean };
    this.#isOff = options.respectPrivacy !== false && (doNotTrack === '1' || globalPrivacyControl === true);
    this.#database = this.#isOff ? Promise.resolve(null) : this.#open();
    if (this.#isOff) return;
    addEventListener('visibilitychange', () => {
      if (document.visibilityState === 'hidden') this.#schedule(0);
    });
    addEventListener('online', () => this.#schedule(0));
    // What an earlier page has left.
    this.#schedule(options.delayMs ?? 1_000);
  }

  get stats(): TidemarkStats {
    return {
      ...{ stored: this.#stored, refused: this.#refused, dropped: this.#dropped },
      ...{ waitingInMemory: this.#memory.length, inMemory: this.#inMemory },
    };
  }

  /**
   * Accepts an event, to be stored in the background.
   * @returns false if nothing is tracked for reasons of privacy, if the event is dropped, or if it could never be stored
   */
  async track(type: string, payload: object = {}): Promise<boolean> {
    if (this.#isOff) return false;
    const at = Date.now();
    const text = JSON.stringify(payload);
    const event: Waiting = { type, key: randomKey(), payload: text, at };
    if (this.#isClockKnown()) event.date = at + (this.#offset as number);
    if (typeof text !== 'string' || text[0] !== '{' || text.length > MAX_PAYLOAD) {
      this.#refuse(event, 'INVALID_REQUEST');
      return false;
    }
    const isKept = await this.#keep(event);
    this.#schedule(this.#options.delayMs ?? 1_000);
    return isKept;
  }

  /** Tracks this page view, and those of pages that a script shows at further addresses. Queries of addresses are left out. */
  pageViews(type = 'pageview'): void {
    let shown = '';
    const view = (): void => {
      if (location.pathname === shown) return;
      shown = location.pathname;
      void this.track(type, {
        path: shown,
        title: document.title,
        referrer: document.referrer.split(/[?#]/)[0],
      });
    };
    const { pushState } = history;
    history.pushState = function (...args) {
      pushState.apply(this, args);
      view();
    };
    addEventListener('popstate', view);
    view();
  }

  /** Tracks clicks on links, buttons and whatever has `data-tidemark`, by that name or their text. */
  clicks(type = 'click'): void {
    addEventListener(
      'click',
      ({ target }) => {
        const found = target instanceof Element && target.closest<HTMLElement>('[data-tidemark],a,button');
        if (!found) return;
        const { href } = found as HTMLAnchorElement;
        const name = found.dataset.tidemark || found.id || (found.textContent ?? '').trim().slice(0, 100);
        void this.track(type, {
          ...{ path: location.pathname, name, tag: found.localName },
          ...(typeof href === 'string' && { href: href.split(/[?#]/)[0] }),
        });
      },
      true,
    );
  }

  /** Sends what waits now. Resolves when that has been tried. */
  async flush(): Promise<void> {
    if (this.#isOff || this.#isRefused) return;
    // What was tracked meanwhile may not be in the batches of the run that ends.
    if (this.#isSending) return this.#schedule(1_000);
    this.#isSending = true;
    try {
      // One tab sends at a time; without locks the keys make it safe.
      const { locks } = navigator;
      if (locks) await locks.request(this.#name, () => this.#send());
      else await this.#send();
    } catch {
      this.#backOff(null);
    }
    this.#isSending = false;
  }

  #schedule(ms: number): void {
    clearTimeout(this.#timer);
    const delay = Math.max(ms, this.#notBefore - performance.now());
    this.#timer = setTimeout(() => void this.flush(), delay);
  }

  #backOff(retryAfter: string | null): void {
    this.#failures += 1;
    const own = Math.min(60_000, 500 * 2 ** this.#failures) * (0.5 + Math.random() / 2);
    const ms = Math.max(own, Number(retryAfter) * 1_000 || 0);
    this.#notBefore = performance.now() + ms;
    this.#schedule(ms);
  }

  /** Sends until nothing is left or a request fails. */
  async #send(): Promise<void> {
    if (!(await this.#readClock())) return;
    for (;;) {
      const { keys, events } = await this.#take();
      if (events.length === 0) return;
      const response = await this.#post(events);
      if (response === null) return;
      if (response.status === 413 || response.status === 400) {
        // One of them is at fault, or together they are too many.
        if (events.length > 1) this.#batch = events.length >> 1;
        else await this.#done(keys, events, [{ index: 0, code: 'INVALID_REQUEST' }]);
        continue;
      }
      const { errors } = (await response.json()) as { readonly errors: readonly Failure[] };
      const later = await this.#done(keys, events, errors);
      this.#batch = MAX_BATCH;
      if (later >= 0) return this.#backOff(String(later / 1_000));
    }
  }

  /** @returns the answer; null if the request is to be repeated later, or the key is refused */
  async #post(events: readonly Waiting[]): Promise<Response | null> {
    const { url, key } = this.#options;
    const texts = events.map(
      ({ payload, date, ...event }) =>
        `{"type":${JSON.stringify(event.type)},"key":"${event.key}","createdAt":"${new Date(date as number).toISOString()}","payload":${payload}}`,
    );
    const body = `{"key":"${key}","events":[${texts}]}`;
    const sent = Date.now();
    // A text is sent without a preflight, and `keepalive` beyond the end of the page.
    const response = await fetch(new URL('/v1/collect', url), {
      ...{ method: 'POST', body, keepalive: body.length < 60_000, credentials: 'omit' },
      signal: AbortSignal.timeout(30_000),
    });
    const { status } = response;
    if (status === 401 || status === 403 || status === 415) this.#isRefused = true;
    else if (!response.ok && status !== 400 && status !== 413)
      this.#backOff(response.headers.get('retry-after'));
    else {
      this.#failures = this.#notBefore = 0;
      if (response.ok)
        this.#learnClock(((await response.clone().json()) as { serverTime: string }).serverTime, sent);
      return response;
    }
    return null;
  }

  /** Asks for the time of the service, unless it is known. */
  async #readClock(): Promise<boolean> {
    return this.#isClockKnown() || (await this.#post([])) !== null;
  }

  /** The answer was written between the request and now. What is known is corrected only if the clock cannot be right. */
  #learnClock(serverTime: string, sent: number): void {
    const time = Date.parse(serverTime);
    const now = Date.now();
    // Never ahead of the service, whose time was read before now.
    this.#offset = time >= sent && time <= now ? 0 : time - now;
    this.#base = now - performance.now();
  }

  /** Not if this machine's clock was set since it was learned. */
  #isClockKnown(): boolean {
    return this.#offset !== undefined && Math.abs(Date.now() - performance.now() - this.#base) < 1_000;
  }

  /** Settles events that were answered. @returns how many milliseconds some have to wait; -1: none */
  async #done(
    keys: readonly IDBValidKey[],
    events: readonly Waiting[],
    errors: readonly Failure[],
  ): Promise<number> {
    let wait = -1;
    const kept = new Set<number>();
    for (const { index, code, aheadMs = 0 } of errors) {
      const isLater =
        code === 'EVENT_IN_FUTURE' ? aheadMs < MAX_AHEAD_MS : /^(RATE_L|UNAV|OUTC|INTERNAL)/.test(code);
      if (isLater) {
        kept.add(index);
        wait = Math.max(wait, aheadMs);
      }
    }
    const settled = new Set(events.filter((_, index) => !kept.has(index)));
    this.#memory = this.#memory.filter((event) => !settled.has(event));
    const stored = keys.filter((_, index) => !kept.has(index));
    if (stored.length > 0) {
      await this.#write((store) => {
        for (const key of stored) store.delete(key);
      });
    }
    this.#stored += events.length - errors.length;
    for (const { index, code } of errors) {
      const event = events[index];
      if (!kept.has(index) && event) this.#refuse(event, code);
    }
    return wait;
  }

  #refuse({ type, payload }: Waiting, code: string): void {
    this.#refused += 1;
    try {
      this.#options.onRefused?.({ type, payload }, code);
    } catch (error) {
      console.error(error);
    }
  }

  /** The next events, dated. A date is written before it is sent, so that every repeat brings the same. */
  async #take(): Promise<{ keys: readonly IDBValidKey[]; events: readonly Waiting[] }> {
    const now = Date.now();
    const dated = (event: Waiting): boolean => {
      if (event.date !== undefined) return false;
      event.date = Math.min(event.at, now) + (this.#offset as number);
      return true;
    };
    let size = 0;
    const fits = ({ payload }: Waiting, count: number): boolean => {
      size += payload.length + 300;
      return count === 0 || (count < this.#batch && size < MAX_REQUEST);
    };
    const keys: IDBValidKey[] = [];
    const events: Waiting[] = [];
    await this.#write((store) => {
      store.openCursor().onsuccess = ({ target }) => {
        const { result: cursor } = target as IDBRequest<IDBCursorWithValue | null>;
        if (cursor === null || !fits(cursor.value, events.length)) return;
        if (dated(cursor.value)) cursor.update(cursor.value);
        keys.push(cursor.primaryKey);
        events.push(cursor.value);
        cursor.continue();
      };
    }).catch(() => {
      // Where dates cannot be written, nothing is sent from there.
      keys.length = events.length = 0;
    });
    if (keys.length === 0)
      for (const event of this.#memory) {
        if (!fits(event, events.length)) break;
        dated(event);
        events.push(event);
      }
    return { keys, events };
  }

  async #keep(event: Waiting): Promise<boolean> {
    const { maxEvents = 10_000, drop } = this.#options;
    let isKept = true;
    let dropped = 0;
    const isWritten = await this.#write((store) => {
      store.count().onsuccess = ({ target }) => {
        const tooMany = (target as IDBRequest<number>).result + 1 - maxEvents;
        if (tooMany > 0 && drop === 'newest') {
          isKept = false;
          dropped = 1;
          return;
        }
        store.add(event);
        if (tooMany <= 0) return;
        store.openCursor().onsuccess = ({ target: found }) => {
          const { result: cursor } = found as IDBRequest<IDBCursorWithValue | null>;
          if (cursor === null || dropped >= tooMany) return;
          dropped += 1;
          cursor.delete();
          cursor.continue();
        };
      };
    }).catch((error: unknown) => this.#useMemory(error));
    if (isWritten) {
      this.#dropped += dropped;
      return isKept;
    }
    if (this.#memory.length >= maxEvents) {
      this.#dropped += 1;
      if (drop === 'newest') return false;
      this.#memory.shift();
    }
    this.#memory.push(event);
    return true;
  }

  /** Says once that what waits does not outlive the page. */
  #useMemory(error: unknown): false {
    if (!this.#inMemory)
      console.warn(
        'tidemark: events wait in memory, the storage of the browser cannot be used:',
        String(error),
      );
    this.#inMemory = true;
    return false;
  }

  /** Runs work in one transaction. @returns false without a database; rejects if nothing was written */
  async #write(work: (store: IDBObjectStore) => void): Promise<boolean> {
    const database = await this.#database;
    if (database === null) return false;
    const transaction = database.transaction(STORE, 'readwrite');
    const done = new Promise<boolean>((resolve, reject) => {
      transaction.oncomplete = () => resolve(true);
      transaction.onabort = transaction.onerror = () => reject(transaction.error);
    });
    work(transaction.objectStore(STORE));
    return await done;
  }

  #open(): Promise<IDBDatabase | null> {
    return new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(this.#name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(STORE, { autoIncrement: true });
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    }).catch((error: unknown) => {
      this.#useMemory(error);
      return null;
    });
  }
}

function randomKey(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => (byte + 256).toString(16).slice(1))
    .join('');
}
