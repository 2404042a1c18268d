/**
 * Sends the events of webhooks: one process does, the one that does the maintenance. Webhooks take turns of some seconds by account, and
 * those of dead and slow endpoints have places of their own, so that none delays another. The position of a webhook moves only behind
 * what its receiver has taken.
 */

import type { KeyObject } from 'node:crypto';
import type { Logger } from 'pino';
import type { WebhookTry } from '../api-types/answers.ts';
import type { Secret } from '../apps/secret.ts';
import { Rounds } from '../base/rounds.ts';
import { Ending, Slots } from '../base/slots.ts';
import type { Path } from '../base/turns.ts';
import { errorCode, type Sql } from '../storage/database/connect.ts';
import type { CommittedEvent } from '../storage/feed/committed-events.ts';
import type { ConsumerStore, Lease } from '../storage/feed/consumers.ts';
import { decodePosition, encodePosition, type FeedPosition } from '../storage/feed/position.ts';
import { matcherOfChoice } from './consumers.ts';
import { type Batch, readBatch } from './read-batch.ts';
import { areDeliveriesStopped } from './restored.ts';
import {
  type Answer,
  GIVE_UP_MS,
  IN_FLIGHT,
  isDue,
  type Message,
  type Poster,
  waitAfter,
} from './signed-post.ts';
import {
  type ActiveWebhook,
  activeWebhooks,
  DISABLED_FOR,
  disableWebhook,
  noteTries,
  signingKeys,
  type Webhook,
} from './webhooks.ts';

export interface WebhookWorkerOptions {
  readonly sql: Sql;
  readonly store: ConsumerStore;
  readonly secret: Secret;
  readonly poster: Poster;
  /** The public id of an app. */
  readonly publicIdOf: (appId: number) => Promise<string | null>;
  /** Whether this process sends. */
  readonly isLeader: () => boolean;
  readonly log: Logger;
  readonly now: () => number;
  /** Milliseconds since 1970, by which a webhook is given up. */
  readonly judged?: () => number;
}

/** For metrics. */
export interface WebhookStats {
  delivered: number;
  failed: number;
  disabled: number;
}

const ROUND_MS = 500;
/** Longer than a turn with its last try. */
const LEASE_MS = 60_000;
const BATCH = 500;
const BATCH_BYTES = 1_000_000;
/** No further event of a turn begins after that. */
const TURN_MS = 5_000;
/** A position is written down after so many events, in order and without; a kill repeats no more than these. */
const WRITTEN_AFTER = 10;
const WRITTEN_AFTER_UNORDERED = 5 * IN_FLIGHT;
const GONE = 410;
/** Webhooks that send at once: of endpoints that answer quickly, and beside them of all others. Of these an account has few. */
const MOST_QUICK = 512;
const MOST_DOUBTED = 1_024;
const MOST_DOUBTED_OF_ACCOUNT = 128;
/** Reads of events at once: what webhooks ask of the database must not delay the others. */
const MOST_READS = 3;
/** Webhooks that wait for a place; those beyond it are found again in the next round. */
const MOST_WAITING = 10_000;
/** An endpoint that takes longer for an answer is slow. */
const SLOW_MS = 1_000;

export class WebhookWorker extends Rounds {
  readonly #options: WebhookWorkerOptions;
  /** Webhooks that send, or wait for a place. */
  readonly #running = new Map<number, Promise<void>>();
  readonly #quick = new Slots(MOST_QUICK, MOST_WAITING);
  readonly #doubted = new Slots(MOST_DOUBTED, MOST_WAITING, MOST_DOUBTED_OF_ACCOUNT);
  readonly #reads = new Slots(MOST_READS, MOST_WAITING);
  /** Batches that are being read, by whose events they are, which, and from where on. */
  readonly #reading = new Map<string, Promise<Batch | null>>();
  readonly #ending = new Ending();
  /** Webhooks whose endpoints were slow in their last turn. */
  readonly #slow = new Set<number>();
  /** Webhooks that may send, as of the last look. */
  #active: ReadonlySet<number> = new Set();
  readonly #publicIds = new Map<number, string>();
  readonly stats: WebhookStats = { delivered: 0, failed: 0, disabled: 0 };
  /** Whether a turn ended during the last look, which knows nothing of what it has written: the next look comes at once. */
  #hasLeftOut = false;

  constructor(options: WebhookWorkerOptions) {
    super({
      work: () => this.#look(),
      pauseMs: () => (this.#hasLeftOut ? 0 : ROUND_MS),
      onFailure: (error, isFirst) => {
        const code = errorCode(error);
        if (isFirst) options.log.warn({ code, err: error }, 'webhook: cannot look for events, retrying');
      },
    });
    this.#options = options;
  }

  /** Waits for the tries in flight; no other begins. */
  override async stop(): Promise<void> {
    const stopped = super.stop();
    this.#ending.settle();
    await stopped;
    this.#options.poster.close();
    await Promise.all(this.#running.values());
  }

  /** Begins the turns of all webhooks for which events wait. */
  async #look(): Promise<void> {
    this.#hasLeftOut = false;
    if (!this.#options.isLeader()) return;
    const before = new Set(this.#running.keys());
    for (const webhook of await this.#due()) {
      const { id } = webhook;
      if (this.#running.has(id)) continue;
      if (before.has(id)) {
        this.#hasLeftOut = true;
        continue;
      }
      const places = this.#isDoubted(webhook) ? this.#doubted : this.#quick;
      const turn = places.run(pathOf(webhook), this.#ending, () => this.#turn(webhook));
      this.#running.set(
        id,
        turn.then(() => undefined).finally(() => this.#running.delete(id)),
      );
    }
  }

  /** Whether its endpoint may be dead or slow: its last try failed or took long, or it has never taken anything. */
  #isDoubted({ id, tries, delivered }: Webhook): boolean {
    return tries > 0 || delivered === 0 || this.#slow.has(id);
  }

  async #due(): Promise<readonly ActiveWebhook[]> {
    const { sql, now } = this.#options;
    const active = await activeWebhooks(sql);
    this.#active = new Set(active.map(({ id }) => id));
    for (const id of this.#slow) if (!this.#active.has(id)) this.#slow.delete(id);
    const webhooks = active.filter(
      ({ sendsEvents, nextTryAt }) => sendsEvents && (nextTryAt === null || isDue(nextTryAt, now())),
    );
    if (webhooks.length === 0 || (await areDeliveriesStopped(sql))) return [];
    const waiting = await this.#options.store.waiting();
    const placeOf = ({ webhookId }: Webhook) => waiting.get(webhookId);
    for (const webhook of webhooks) if (placeOf(webhook)?.isLost === true) await this.#lost(webhook);
    return webhooks.filter((webhook) => {
      const place = placeOf(webhook);
      if (place === undefined || place.isLost) return false;
      return place.hasTicks || decodePosition(place.position)?.after?.by === 'history';
    });
  }

  /** It gets what is committed from now on, once somebody who knows what it has missed has it go on. */
  async #lost(webhook: Webhook): Promise<void> {
    await this.#disable(webhook, DISABLED_FOR.lost);
    await this.#options.store.seek(webhook.appId, webhook.webhookId, 'now');
  }

  async #turn(webhook: ActiveWebhook): Promise<void> {
    const { store, log } = this.#options;
    const { appId, webhookId } = webhook;
    if (!this.#maySend(webhook)) return;
    try {
      const lease = await this.#read(webhook, () => store.lease(appId, webhookId, LEASE_MS, 'webhook'));
      if (lease === null || typeof lease === 'string' || 'leasedForSeconds' in lease) return;
      try {
        await this.#send(webhook, lease);
      } finally {
        await store.release(appId, webhookId, lease.epoch);
      }
    } catch (error) {
      log.warn({ webhook: webhookId, code: errorCode(error), err: error }, 'webhook: turn failed, retrying');
    }
  }

  /** Asks the database in turns. @returns null where the turn ends */
  async #read<T extends object | string>(webhook: ActiveWebhook, work: () => Promise<T>): Promise<T | null> {
    const read = await this.#reads.run(pathOf(webhook), this.#ending, async () => ({ found: await work() }));
    return typeof read === 'string' ? null : read.found;
  }

  async #send(webhook: ActiveWebhook, lease: Lease): Promise<void> {
    const { sql, secret, now } = this.#options;
    const { appId, id, webhookId } = webhook;
    const keys = await signingKeys(sql, secret, id, now());
    if (keys.length === 0)
      return await this.#disable(webhook, 'another SECRET has sealed its signing secret');
    const publicId = await this.#publicIdOf(appId);
    const until = performance.now() + TURN_MS;
    // An endpoint that may be dead is tried with one event, and a slow one takes few in a turn.
    let limit = webhook.tries > 0 || webhook.delivered === 0 ? 1 : this.#slow.has(id) ? IN_FLIGHT : BATCH;
    let { position } = lease;
    for (let hasMore = true; hasMore && this.#maySend(webhook) && performance.now() < until; limit = BATCH) {
      const batch = await this.#batchOf(webhook, lease, position, limit);
      if (batch === null) return;
      const messages = batch.events.map((event) => messageOf(publicId, event));
      const sent = await this.#sendBatch(webhook, lease.epoch, { batch, messages, keys, until });
      if (!sent) return;
      position = batch.position;
      if (!(await this.#acknowledge(webhook, lease.epoch, position))) return;
      hasMore = batch.hasMore;
    }
    if (webhook.tries > 0)
      await sql`UPDATE webhooks SET tries = 0, failing_since = NULL WHERE public_id = ${webhookId}`;
  }

  /** The next events of a webhook. Those of an app that want the same events from the same place on read them once. */
  async #batchOf(
    webhook: ActiveWebhook,
    { types, filter }: Lease,
    position: FeedPosition,
    limit: number,
  ): Promise<Batch | null> {
    const { appId } = webhook;
    const key = JSON.stringify([appId, limit, types, filter, encodePosition(position)]);
    const known = this.#reading.get(key);
    if (known !== undefined) return await known;
    const matches = types.length === 0 && filter.length === 0 ? null : matcherOfChoice({ types, filter });
    const options = { limit, maxBytes: BATCH_BYTES, matches };
    const reading = this.#read(webhook, () =>
      readBatch(this.#options.store, appId, position, options),
    ).finally(() => this.#reading.delete(key));
    this.#reading.set(key, reading);
    return await reading;
  }

  /** False once it was paused or removed, or its app suspended: the turn ends with the try that is under way. */
  #maySend({ id }: Webhook): boolean {
    return this.#active.has(id) && !this.isStopped && this.#options.isLeader();
  }

  async #publicIdOf(appId: number): Promise<string> {
    const known = this.#publicIds.get(appId);
    if (known !== undefined) return known;
    const found = (await this.#options.publicIdOf(appId)) ?? '';
    if (found !== '') this.#publicIds.set(appId, found);
    return found;
  }

  async #acknowledge({ appId, webhookId }: Webhook, epoch: number, position: FeedPosition): Promise<boolean> {
    const options = { epoch, position, events: 0, extendsMs: LEASE_MS };
    return (await this.#options.store.acknowledge(appId, webhookId, options)) === 'done';
  }

  /** @returns false where the turn ends */
  async #sendBatch(
    webhook: Webhook,
    epoch: number,
    given: {
      readonly batch: Batch;
      readonly messages: readonly Message[];
      readonly keys: readonly KeyObject[];
      /** When the turn ends, by the clock of this process. */
      readonly until: number;
    },
  ): Promise<boolean> {
    const { poster, now, sql } = this.#options;
    const { events } = given.batch;
    const [step, writtenAfter] = webhook.isUnordered
      ? [IN_FLIGHT, WRITTEN_AFTER_UNORDERED]
      : [1, WRITTEN_AFTER];
    let written = 0;
    const tries: WebhookTry<Date>[] = [];
    let delivered = 0;
    let slowest = 0;
    const mayGoOn = (): boolean => this.#maySend(webhook) && performance.now() < given.until;
    let failure: { readonly answer: Answer; readonly message: Message } | null = null;
    for (let at = 0; at < events.length && failure === null && (at === 0 || mayGoOn()); at += step) {
      const part = given.messages.slice(at, at + step);
      const answers = await Promise.all(part.map((message) => poster.send(webhook.url, message, given.keys)));
      for (const [index, answer] of answers.entries()) {
        const message = part[index];
        if (message === undefined) continue;
        const { status, problem, ms } = answer;
        slowest = Math.max(slowest, ms);
        tries.push({ messageId: message.id, type: message.type, at: new Date(now()), status, problem, ms });
        if (answer.problem !== null) failure ??= { answer, message };
        else if (failure === null) delivered += 1;
      }
      // What is not wanted before an event that fails is not looked at again.
      const position = events[delivered - 1]?.position ?? given.batch.passed;
      // The end of a batch is written by the caller.
      const isFull = delivered - written >= writtenAfter && delivered < events.length;
      if (position === null || !(failure !== null || isFull || webhook.tries > 0)) continue;
      if (!(await this.#acknowledge(webhook, epoch, position))) return false;
      written = delivered;
    }
    const last = events[delivered - 1]?.position;
    // Nothing that was delivered is sent again after a turn that ends early.
    if (failure === null && delivered < events.length && last !== undefined)
      await this.#acknowledge(webhook, epoch, last);
    if (slowest >= SLOW_MS) this.#slow.add(webhook.id);
    else if (tries.length > 0) this.#slow.delete(webhook.id);
    this.stats.delivered += delivered;
    if (delivered > 0)
      await sql`
        UPDATE webhooks SET delivered = delivered + ${delivered}, tries = 0, failing_since = NULL, next_try_at = NULL, blocked_by = NULL
         WHERE id = ${webhook.id}`;
    await noteTries(sql, webhook.id, tries);
    if (failure === null) return delivered === events.length;
    await this.#failed(delivered > 0 ? { ...webhook, tries: 0, failingSince: null } : webhook, failure);
    return false;
  }

  async #failed(
    webhook: Webhook,
    { answer, message }: { readonly answer: Answer; readonly message: Message },
  ): Promise<void> {
    const { sql, log, now, judged = now } = this.#options;
    this.stats.failed += 1;
    const tries = webhook.tries + 1;
    const since = webhook.failingSince ?? new Date(now());
    const wait = waitAfter(tries, answer.retryAfterMs, Math.random());
    await sql`
      UPDATE webhooks SET failed = failed + 1, tries = ${tries}, failing_since = ${since},
             next_try_at = ${new Date(now() + wait)}, blocked_by = ${message.id}
       WHERE id = ${webhook.id}`;
    if (answer.status === GONE) return await this.#disable(webhook, DISABLED_FOR.gone);
    if (judged() - since.getTime() >= GIVE_UP_MS) return await this.#disable(webhook, DISABLED_FOR.failing);
    if (tries === 1)
      log.warn(
        { webhook: webhook.webhookId, status: answer.status, problem: answer.problem },
        'webhook: delivery failed, retrying',
      );
  }

  async #disable(webhook: Webhook, reason: string): Promise<void> {
    if (!(await disableWebhook(this.#options.sql, webhook, reason, this.#options.now()))) return;
    this.stats.disabled += 1;
    this.#options.log.error({ webhook: webhook.webhookId, reason }, 'webhook: disabled');
  }
}

/** Whose turns a webhook takes: those of its app's account. */
function pathOf({ id, appId, accountId }: ActiveWebhook): Path {
  return [accountId ?? `app ${appId}`, appId, id];
}

/** The message of an event: the payload is the text that was sent. */
function messageOf(appId: string, { id, typeName, createdAt, payload }: CommittedEvent): Message {
  const data =
    `{"eventId":"${id}","appId":${JSON.stringify(appId)},"typeName":${JSON.stringify(typeName)},` +
    `"createdAt":"${createdAt}","payload":${payload}}`;
  return {
    id,
    type: 'event.created',
    body: `{"type":"event.created","timestamp":"${createdAt}","data":${data}}`,
  };
}
