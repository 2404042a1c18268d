/**
 * Checks payloads against the schemas that owners attach to types. The checks run in a thread of their own
 * (`schema/schema-thread.ts`), apps in turns. What cannot be checked is stored and counted: a schema says what an owner expects
 * of producers, and its own fault must cost no event.
 */
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { AppAccounts } from '../apps/app-accounts.ts';
import type { EventType } from '../apps/event-type-lookup.ts';
import { addFindings, findSchemaText, type SchemaReference, suspendSchema } from '../apps/type-schemas.ts';
import { type Path, Turns } from '../base/turns.ts';
import { Rejection } from '../errors.ts';
import { type Checked, SchemaThread, type Violation } from '../schema/schema-thread.ts';
import type { Sql } from '../storage/connect.ts';
import { answerInTime, type CacheStats, LookupCache, type LookupOutage } from '../storage/lookup-cache.ts';

export interface PayloadChecksOptions {
  readonly accounts: AppAccounts;
  readonly sql: Sql;
  readonly cacheMs: number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly outage?: LookupOutage | undefined;
  /** Limits of payloads that wait for their check, and of the memory that they may take. An app gets half of each. */
  readonly maxEvents: number;
  readonly maxBytes: number;
  readonly log: Logger;
}

/** A payload and the type of its event. */
export interface TypedPayload {
  readonly type: EventType;
  readonly payload: string;
}

/** A type of an app with a schema. */
type CheckedType = EventType & { readonly schema: SchemaReference };

interface Waiting {
  readonly appId: number;
  readonly holder: Path;
  readonly type: CheckedType;
  readonly payload: string;
  readonly text: string;
  readonly resolve: (refusal: Rejection | null) => void;
}

interface Findings {
  checked: number;
  violations: number;
  unchecked: number;
  last: (Violation & { readonly at: Date }) | null;
}

/** Payloads of one request to the thread, and their characters together. */
const MAX_ITEMS = 64;
const MAX_CHARACTERS = 1_048_576;
/** Texts of schemas in memory: at most 32 Ki characters each. */
const MAX_TEXTS = 500;
/** How often findings are written. */
const WRITE_MS = 1_000;
/** Types whose findings wait; of further ones only the metrics tell. */
const MAX_FINDINGS = 10_000;

/** What the check of a payload may take: twenty times what usual ones do. What is beyond it is the schema's debt. */
const FREE_MS = 1;
const FREE_MS_PER_CHARACTER = 0.0001;
/** A debt is paid back at this rate; a schema with a larger one than the limit is suspended. */
const REPAID_MS_PER_SECOND = 2;
const MAX_DEBT_MS = 1_000;

const FULL = new Rejection(
  'unavailable',
  'Too many payloads wait for the check of their schema; try again shortly.',
);

export class PayloadChecks {
  /** Checked payloads by outcome. */
  readonly outcomes = { passed: 0, warned: 0, refused: 0, unchecked: 0 };
  #suspensions = 0;
  readonly #options: PayloadChecksOptions;
  readonly #texts: LookupCache<string>;
  readonly #thread = new SchemaThread();
  readonly #turns = new Turns<Waiting>();
  #isRunning = false;
  #isClosed = false;
  #heldBytes = 0;
  #held = 0;
  readonly #heldOfApp = new Map<number, { events: number; bytes: number }>();
  readonly #debts = new LRUCache<string, { ms: number; at: number }>({ max: MAX_FINDINGS });
  /** Whose suspension is under way. */
  readonly #suspended = new Set<string>();
  #findings = new Map<string, Findings>();
  #writing: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(options: PayloadChecksOptions) {
    this.#options = options;
    const { sql, cacheMs: ttlMs, now, outage } = options;
    this.#texts = new LookupCache({
      load: (key) => {
        const [typeId = '', digest = ''] = key.split(' ');
        return answerInTime(findSchemaText(sql, Number(typeId), digest), outage);
      },
      ...{ max: MAX_TEXTS, maxNegatives: 1, ttlMs, now, outage },
    });
  }

  /** Payloads that wait for their check, or are being checked. */
  get waiting(): number {
    return this.#held;
  }

  /** Schemas that were suspended. */
  get suspensions(): number {
    return this.#suspensions;
  }

  get caches(): readonly CacheStats[] {
    return [this.#texts];
  }

  /**
   * Checks payloads whose types have a schema that refuses.
   * @returns for each, in order, its refusal or null; null for those of other types. Rejects if a schema cannot be looked up
   */
  async refusalsOf(
    appId: number,
    events: readonly (TypedPayload | null)[],
  ): Promise<readonly (Rejection | null)[]> {
    return await Promise.all(
      events.map((event) =>
        event !== null && hasSchema(event.type) && event.type.schema.mode === 'refuse'
          ? this.#check(appId, event.type, event.payload)
          : null,
      ),
    );
  }

  /** Has a stored payload checked whose type has a schema that warns. Nothing waits for it. */
  note(appId: number, { type, payload }: TypedPayload): void {
    if (!hasSchema(type) || type.schema.mode !== 'warn') return;
    this.#check(appId, type, payload).then(
      (refusal) => {
        if (refusal === FULL) this.#finish(type, null, 'too many wait');
      },
      () => this.#finish(type, null, 'not found'),
    );
  }

  /** Schemas may have changed. */
  forget(): void {
    this.#texts.dropAll();
    this.#suspended.clear();
  }

  /** Writes the findings. What still waits is not checked. To be called when no request is under way. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#thread.close();
    for (const item of this.#turns.drain())
      this.#settle(item, { violation: null, problem: 'stopping', ms: 0 });
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#writing;
    if (this.#options.outage?.isAway() !== true) await this.#write();
  }

  async #check(appId: number, type: CheckedType, payload: string): Promise<Rejection | null> {
    const { digest } = type.schema;
    const text = this.#suspended.has(keyOf(type)) ? null : await this.#texts.get(`${type.id} ${digest}`);
    // The schema has just been replaced, or its suspension is under way.
    if (text === null) return this.#finish(type, null, 'gone');
    if (!this.#hold(appId, payload)) return FULL;
    return await new Promise((resolve) => {
      const holder = this.#options.accounts.holderOf(appId);
      this.#turns.push(holder, { appId, holder, type, payload, text, resolve });
      if (!this.#isRunning) void this.#run();
    });
  }

  /** Counts a payload in, if there is room. An app with nothing in it has room for one of any size. */
  #hold(appId: number, payload: string): boolean {
    const { maxEvents, maxBytes } = this.#options;
    const bytes = 2 * payload.length;
    const own = this.#heldOfApp.get(appId) ?? { events: 0, bytes: 0 };
    const isOver = 2 * (own.events + 1) > maxEvents || 2 * (own.bytes + bytes) > maxBytes;
    const isFull = this.#held + 1 > maxEvents || this.#heldBytes + bytes > maxBytes;
    if ((isOver && own.events > 0) || (isFull && this.#held > 0)) return false;
    this.#heldOfApp.set(appId, { events: own.events + 1, bytes: own.bytes + bytes });
    this.#held += 1;
    this.#heldBytes += bytes;
    return true;
  }

  #release({ appId, payload }: Waiting): void {
    const bytes = 2 * payload.length;
    const own = this.#heldOfApp.get(appId);
    if (own === undefined || own.events === 1) this.#heldOfApp.delete(appId);
    else this.#heldOfApp.set(appId, { events: own.events - 1, bytes: own.bytes - bytes });
    this.#held -= 1;
    this.#heldBytes -= bytes;
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    // What arrives in one turn of the event loop shares a request.
    await new Promise((resolve) => setImmediate(resolve));
    for (let items = this.#take(); items.length > 0; items = this.#take()) {
      const schemas = Object.fromEntries(items.map(({ type, text }) => [type.schema.digest, text]));
      const request = items.map(({ type, payload }) => ({ digest: type.schema.digest, payload }));
      const outcome = await this.#thread.run({ schemas, items: request });
      if ('checked' in outcome) {
        for (const [index, checked] of outcome.checked.entries()) this.#settle(items[index], checked);
        this.#putBack(items.slice(outcome.checked.length));
        continue;
      }
      const { failedAt, problem, ms } = outcome;
      const failed = { violation: null, problem, ms };
      if (this.#isClosed) {
        for (const item of items) this.#settle(item, { ...failed, ms: 0 });
      } else if (failedAt === null) {
        this.#options.log.error(
          { problem },
          'schema: the thread for checks does not start, payloads are not checked',
        );
        for (const item of items) this.#settle(item, { ...failed, ms: 0 });
      } else {
        this.#settle(items[failedAt], failed);
        this.#putBack(items.filter((_, index) => index !== failedAt));
      }
    }
    this.#isRunning = false;
  }

  /** Those of one app: what is slow among them delays no answer to another app. */
  #take(): readonly Waiting[] {
    const items: Waiting[] = [];
    if (this.#isClosed) return items;
    let characters = 0;
    for (let item = this.#turns.take(); item !== null; item = this.#turns.takeOf(item.holder)) {
      items.push(item);
      characters += item.payload.length;
      if (items.length === MAX_ITEMS || characters >= MAX_CHARACTERS) break;
    }
    return items;
  }

  #putBack(items: readonly Waiting[]): void {
    for (const item of items.toReversed()) this.#turns.putBack(item.holder, item, false);
  }

  #settle(item: Waiting | undefined, { violation, problem, ms }: Checked): void {
    if (item === undefined) throw new Error('The thread has checked more than it was given.');
    this.#release(item);
    const { type, payload } = item;
    this.#charge(type, ms - FREE_MS - FREE_MS_PER_CHARACTER * payload.length, problem);
    item.resolve(this.#finish(type, violation, problem));
  }

  /** Counts a check. @returns the refusal of a payload that violates a schema that refuses */
  #finish(type: CheckedType, violation: Violation | null, problem: string | null): Rejection | null {
    const { mode } = type.schema;
    const findings = this.#findingsOf(type);
    if (problem !== null) {
      this.outcomes.unchecked += 1;
      findings.unchecked += 1;
      return null;
    }
    findings.checked += 1;
    if (violation === null) {
      this.outcomes.passed += 1;
      return null;
    }
    findings.violations += 1;
    findings.last = { ...violation, at: new Date(this.#options.now()) };
    this.outcomes[mode === 'refuse' ? 'refused' : 'warned'] += 1;
    return mode === 'refuse' ? refusalOf(violation) : null;
  }

  #findingsOf(type: CheckedType): Findings {
    const key = keyOf(type);
    const known = this.#findings.get(key);
    if (known !== undefined) return known;
    const findings: Findings = { checked: 0, violations: 0, unchecked: 0, last: null };
    if (this.#findings.size < MAX_FINDINGS) this.#findings.set(key, findings);
    this.#timer ??= setTimeout(() => {
      this.#timer = null;
      this.#writing = this.#write();
    }, WRITE_MS).unref();
    return findings;
  }

  async #write(): Promise<void> {
    const found = [...this.#findings].map(([key, findings]) => {
      const [typeId = '', digest = ''] = key.split(' ');
      return { typeId: Number(typeId), digest, ...findings };
    });
    if (found.length === 0) return;
    this.#findings = new Map();
    try {
      await addFindings(this.#options.sql, found);
    } catch (error) {
      this.#options.log.warn(
        { err: error },
        'schema: findings could not be written, they are only in the metrics',
      );
    }
  }

  /** Adds to what a schema has taken beyond its share. @param ms negative: less than that */
  #charge(type: CheckedType, ms: number, problem: string | null): void {
    if (ms <= 0) return;
    const key = keyOf(type);
    const now = this.#options.now();
    const known = this.#debts.get(key);
    const repaid = known === undefined ? 0 : (Math.max(0, now - known.at) / 1_000) * REPAID_MS_PER_SECOND;
    const debt = Math.max(0, (known?.ms ?? 0) - repaid) + ms;
    if (debt <= MAX_DEBT_MS) {
      this.#debts.set(key, { ms: debt, at: now });
      return;
    }
    this.#debts.delete(key);
    this.#suspend(type, problem ?? 'its checks take too long');
  }

  #suspend(type: CheckedType, reason: string): void {
    const { sql, log } = this.#options;
    const { appId, typeId } = type.source;
    this.#suspensions += 1;
    this.#suspended.add(keyOf(type));
    log.warn({ appId, typeId, reason }, 'schema: suspended, payloads of the type are not checked');
    suspendSchema(sql, { typeId: type.id, digest: type.schema.digest, reason }).catch((error: unknown) => {
      log.warn({ err: error, appId, typeId }, 'schema: the suspension could not be written');
    });
  }
}

function hasSchema(type: EventType): type is CheckedType {
  return type.schema !== null;
}

/** Of a type and one text of its schema. */
function keyOf({ id, schema }: CheckedType): string {
  return `${id} ${schema.digest}`;
}

function refusalOf({ path, message }: Violation): Rejection {
  const place = path === '' ? 'its top' : path;
  return new Rejection(
    'schemaViolation',
    `The payload violates the schema of its event type at ${place}: ${message}.`,
  );
}
