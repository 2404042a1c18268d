/**
 * Checks payloads against the schemas that owners attach to types. The checks run in threads of their own
 * (`schema/check-queue.ts`), accounts in turns. What cannot be checked is stored and counted: a schema says what an owner expects
 * of producers, and its own fault must cost no event.
 */
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import type { AppAccounts } from '../apps/app-accounts.ts';
import type { EventType } from '../apps/event-type-lookup.ts';
import { addFindings, findSchemaTexts, type SchemaReference, suspendSchema } from '../apps/type-schemas.ts';
import type { Debts } from '../base/debts.ts';
import { BatchedCache, type LookupQueue } from '../cache/batched-lookup.ts';
import type { CacheStats, LookupOptions } from '../cache/lookup-cache.ts';
import { Rejection } from '../errors.ts';
import { CheckQueue, type CheckResult, overtimeOf, overtimes } from '../schema/check-queue.ts';
import { SchemaThread, type Violation } from '../schema/schema-thread.ts';
import type { Sql } from '../storage/database/connect.ts';

export interface PayloadChecksOptions extends LookupOptions {
  readonly accounts: AppAccounts;
  /** Milliseconds of a monotonic clock. */
  readonly monotonic: () => number;
  /** Limits of payloads that wait for their check, and of the memory that they may take. An account gets half of each. */
  readonly maxEvents: number;
  readonly maxBytes: number;
  readonly log: Logger;
}

export interface TypedPayload {
  readonly type: EventType;
  readonly payload: string;
}

type CheckedType = EventType & { readonly schema: SchemaReference };

interface Findings {
  checked: number;
  violations: number;
  unchecked: number;
  last: (Violation & { readonly at: Date }) | null;
}

/** Texts of schemas in memory: at most 32 Ki characters each. */
const MAX_TEXTS = 500;
/** Texts of one statement: at most some MiB. */
const MAX_TEXTS_AT_ONCE = 50;
/** How often findings are written. */
const WRITE_MS = 1_000;
/** Types whose findings wait; of further ones only the metrics tell. */
const MAX_FINDINGS = 10_000;

/** Overtime of the checks of a type, at which its schema is suspended. */
const MAX_OVERTIME_MS = 1_000;
/** What remains of it for another text of the schema. */
const CARRIED_OVERTIME_MS = 500;
/** Looks after which a check in the quick thread has taken too long: at least 100 ms. */
const QUICK_LOOKS = 3;

const FULL = new Rejection(
  'unavailable',
  'Too many payloads wait for the check of their schema; try again shortly.',
);

export class PayloadChecks {
  /** Checked payloads by outcome. */
  readonly outcomes = { passed: 0, warned: 0, refused: 0, unchecked: 0 };
  #suspensions = 0;
  readonly #options: PayloadChecksOptions;
  /** By app, type and digest. */
  readonly #texts: BatchedCache<string>;
  readonly #queue: CheckQueue;
  /** By type. */
  readonly #overtime: Debts;
  /** The text of each type's schema that has overtime. */
  readonly #digests = new LRUCache<string, string>({ max: MAX_FINDINGS });
  /** Suspended schemas that lookups may still find, and whether the suspension has been written. */
  readonly #suspended = new Map<string, boolean>();
  #findings = new Map<string, Findings>();
  #writing: Promise<void> | null = null;
  #timer: NodeJS.Timeout | null = null;

  constructor(options: PayloadChecksOptions) {
    this.#options = options;
    const { accounts, sql, cacheMs: ttlMs, now, outage } = options;
    this.#texts = new BatchedCache((keys) => loadTexts(sql, keys), {
      holderOf: (key) => accounts.holderOf(Number(key.slice(0, key.indexOf(' ')))),
      ...{ max: MAX_TEXTS, maxNegatives: 1, ttlMs, now, outage, maxKeys: MAX_TEXTS_AT_ONCE },
    });
    this.#overtime = overtimes(MAX_FINDINGS, options.monotonic);
    this.#queue = new CheckQueue({
      quick: new SchemaThread({ looks: QUICK_LOOKS, hasSpare: true }),
      slow: new SchemaThread(),
      now: options.monotonic,
      maxEvents: options.maxEvents,
      maxBytes: options.maxBytes,
      onFault: (problem) =>
        options.log.error(
          { problem },
          'schema: the thread for checks does not start, payloads are not checked',
        ),
    });
  }

  /** Payloads that wait for their check, or are being checked. */
  get waiting(): number {
    return this.#queue.waiting;
  }

  /** Schemas that were suspended. */
  get suspensions(): number {
    return this.#suspensions;
  }

  /** Threads that a check has ended, by kind. */
  get endedThreads(): CheckQueue['ended'] {
    return this.#queue.ended;
  }

  get caches(): readonly CacheStats[] {
    return [this.#texts];
  }

  get queues(): Readonly<Record<'schemas', readonly LookupQueue[]>> {
    return { schemas: [this.#texts.queue] };
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
    // The lookup of a type knows a suspension that was written.
    for (const [key, isWritten] of this.#suspended) if (isWritten) this.#suspended.delete(key);
  }

  /** Writes the findings. What still waits is not checked. To be called when no request is under way. */
  async close(): Promise<void> {
    await this.#queue.close();
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#writing;
    if (this.#options.outage?.isUnreachable() !== true) await this.#write();
  }

  async #check(appId: number, type: CheckedType, payload: string): Promise<Rejection | null> {
    const { digest } = type.schema;
    const text = this.#suspended.has(keyOf(type))
      ? null
      : await this.#texts.get(`${appId} ${type.id} ${digest}`);
    // The schema has just been replaced, or its suspension is under way.
    if (text === null) return this.#finish(type, null, 'gone');
    return await new Promise((resolve) => {
      this.#queue.add({
        holder: this.#options.accounts.holderOf(appId),
        group: keyOf(type),
        digest,
        schema: text,
        payload,
        isAwaited: type.schema.mode === 'refuse',
        settle: (result) => resolve(this.#settle(type, payload, result)),
      });
    });
  }

  #settle(type: CheckedType, payload: string, result: CheckResult): Rejection | null {
    if (result === 'full') return FULL;
    const { violation, problem, ms } = result;
    this.#charge(type, overtimeOf(payload, ms), problem);
    return this.#finish(type, violation, problem);
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

  /** Adds to the overtime of a type, and suspends its schema at the limit. @param ms negative: less than a check may take */
  #charge(type: CheckedType, ms: number, problem: string | null): void {
    if (ms <= 0 || this.#suspended.has(keyOf(type))) return;
    const key = String(type.id);
    const { digest } = type.schema;
    // A schema that is set again with another text must not begin anew each time.
    if (this.#digests.get(key) !== digest) this.#overtime.limit(key, CARRIED_OVERTIME_MS);
    this.#digests.set(key, digest);
    if (this.#overtime.add(key, ms, MAX_OVERTIME_MS) >= MAX_OVERTIME_MS)
      this.#suspend(type, problem ?? 'its checks take too long');
  }

  #suspend(type: CheckedType, reason: string): void {
    const { sql, log } = this.#options;
    const { appId, typeId } = type.source;
    const key = keyOf(type);
    this.#suspensions += 1;
    this.#suspended.set(key, false);
    log.warn({ appId, typeId, reason }, 'schema: suspended, payloads of the type are not checked');
    this.#queue.drop(key, 'suspended');
    suspendSchema(sql, { typeId: type.id, digest: type.schema.digest, reason })
      .catch((error: unknown) => {
        log.warn({ err: error, appId, typeId }, 'schema: the suspension could not be written');
      })
      .finally(() => this.#suspended.has(key) && this.#suspended.set(key, true));
  }
}

/** @param keys internal ids of app and type, and the digest */
async function loadTexts(sql: Sql, keys: readonly string[]): Promise<ReadonlyMap<string, string>> {
  const asked = keys.map((key) => {
    const [, typeId = '', digest = ''] = key.split(' ');
    return { key, typeId: Number(typeId), digest };
  });
  const found = await findSchemaTexts(sql, asked);
  const texts = new Map(found.map(({ typeId, digest, text }) => [`${typeId} ${digest}`, text]));
  return new Map(
    asked.flatMap(({ key, typeId, digest }) => {
      const text = texts.get(`${typeId} ${digest}`);
      return text === undefined ? [] : [[key, text] as const];
    }),
  );
}

function hasSchema(type: EventType): type is CheckedType {
  return type.schema !== null;
}

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
