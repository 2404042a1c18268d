/**
 * Small records that processes share through Redis, such as the attempts of a client at an account.
 *
 * The code that changes a record knows nothing of Redis: it works on the memory of its process. Around it the records are read from
 * Redis, and written back if none of them has changed there meanwhile; else all of it is repeated with what they are now. So a
 * change is exact over all processes. While Redis does not answer, each process goes on with what it has seen last, and what it
 * changes meanwhile is joined with what is in Redis later.
 */
import { LRUCache } from 'lru-cache';
import { type RedisScript, redisScript } from './redis-connection.ts';

/** A record in the memory of this process. */
export interface SharedRecord {
  /** Its key in Redis, without the prefix of the installation. */
  readonly name: string;
  /** How long Redis keeps it after its last change, in milliseconds. */
  readonly lifeMs: number;
  /** The record as text; empty if there is none. @param aheadMs by which the common clock is ahead of the process's */
  read(aheadMs: number): string;
  /**
   * Replaces the record.
   * @param text      of {@link read}; empty: there is none any more
   * @param keepsOwn  whether it has been changed here alone: then both are joined
   */
  write(text: string, aheadMs: number, keepsOwn: boolean): void;
}

/** Runs work that reads and changes records; it may run several times, of which the last one counts. */
export type ShareRecords = <T>(records: readonly SharedRecord[], work: () => T) => Promise<T>;

/** Without Redis records are those of the process. */
export const unshared: ShareRecords = async (_records, work) => work();

/** In place of a record that was removed: of one that is absent Redis knows nothing, as after a restart. */
const REMOVED = '-';
/** A try fails only if another process has changed a record, so one of them always gets on. */
const MAX_TRIES = 100;
/** Records that were changed while Redis did not answer; beyond so many the oldest one is taken from Redis as it is there. */
const MAX_OWN = 100_000;

/**
 * KEYS: records. Without ARGV the reply has the milliseconds of Redis's clock and the texts, empty for those that are absent. With it,
 * three for each key, the text that it must have, the one that it gets (empty: it stays) and its milliseconds: the reply is 1 if all
 * were as expected and are written, else 0.
 */
const SCRIPT: RedisScript = redisScript(`
if #ARGV == 0 then
  local clock = redis.call('TIME')
  local answer = { string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000)) }
  for index, key in ipairs(KEYS) do answer[index + 1] = redis.call('GET', key) or '' end
  return answer
end
for index, key in ipairs(KEYS) do
  if (redis.call('GET', key) or '') ~= ARGV[3 * index - 2] then return 0 end
end
for index, key in ipairs(KEYS) do
  local text = ARGV[3 * index - 1]
  if text ~= '' then redis.call('SET', key, text, 'PX', ARGV[3 * index]) end
end
return 1`);

/** Runs scripts on Redis; undefined where it does not answer. */
export interface ScriptRunner {
  readonly isShared: boolean;
  run(script: RedisScript, keys: readonly string[], args: readonly string[]): Promise<unknown>;
}

export class SharedRecords {
  readonly #redis: ScriptRunner;
  readonly #now: () => number;
  readonly #redisTime: (() => number) | undefined;
  readonly #own = new LRUCache<string, true>({ maxSize: MAX_OWN, sizeCalculation: () => 1 });
  /** Ends when the work that came last has ended: that of one process has nothing to repeat for another of its own. */
  #last: Promise<unknown> = Promise.resolve();

  /** @param options.now milliseconds of a monotonic clock. @param options.redisTime for tests, microseconds in place of Redis's clock */
  constructor(
    redis: ScriptRunner,
    options: { readonly now: () => number; readonly redisTime?: (() => number) | undefined },
  ) {
    this.#redis = redis;
    this.#now = options.now;
    this.#redisTime = options.redisTime;
  }

  readonly share: ShareRecords = (records, work) => {
    const shared = this.#last.then(() => this.#share(records, work));
    this.#last = shared.catch(() => undefined);
    return shared;
  };

  async #share<T>(records: readonly SharedRecord[], work: () => T): Promise<T> {
    const keys = records.map(({ name }) => name);
    for (let tries = 1; ; tries += 1) {
      const before = await this.#read(keys);
      if (before === null) break;
      const { aheadMs, texts } = before;
      for (const [index, record] of records.entries()) {
        const text = texts[index] ?? '';
        if (text !== '') record.write(text === REMOVED ? '' : text, aheadMs, this.#own.has(record.name));
      }
      const result = work();
      const args = records.flatMap((record, index) => {
        const [text = '', now] = [texts[index], record.read(aheadMs)];
        const isSame = now === (text === REMOVED ? '' : text);
        return [text, isSame ? '' : now || REMOVED, String(record.lifeMs)];
      });
      const isWritten = await this.#write(keys, args);
      if (isWritten === false && tries < MAX_TRIES) continue;
      for (const { name } of records) {
        if (isWritten === true) this.#own.delete(name);
        else this.#own.set(name, true);
      }
      return result;
    }
    for (const { name } of records) this.#own.set(name, true);
    return work();
  }

  async #read(keys: readonly string[]): Promise<{ aheadMs: number; texts: readonly string[] } | null> {
    const answer = await this.#redis.run(SCRIPT, keys, []);
    if (!Array.isArray(answer)) return null;
    const [time, ...texts] = answer.map(String);
    const redisMs = this.#redisTime === undefined ? Number(time) : Math.floor(this.#redisTime() / 1_000);
    return { aheadMs: redisMs - this.#now(), texts };
  }

  /** @returns false if a record has changed; null if Redis did not answer */
  async #write(keys: readonly string[], args: readonly string[]): Promise<boolean | null> {
    // Nothing has changed.
    if (args.every((text, index) => index % 3 !== 1 || text === '')) return true;
    const answer = await this.#redis.run(SCRIPT, keys, args);
    return answer === undefined ? null : answer === 1;
  }
}
