/**
 * Sends the events of webhooks: one process does, the one that does the maintenance. Each webhook is a task of its own, so that a
 * dead endpoint delays no other. Its position moves only behind what its receiver has taken.
 */
import type { Logger } from 'pino';
import type { Secret } from '../apps/secret.ts';
import { Rounds } from '../base/rounds.ts';
import { errorCode, type Sql } from '../storage/database/connect.ts';
import {
  type CommittedEvent,
  type ConsumerStore,
  decodePosition,
  type FeedPosition,
  type Lease,
} from '../storage/storage.ts';
import { matcherOfChoice } from './consumers.ts';
import { type Batch, readBatch } from './read-batch.ts';
import { areDeliveriesStopped } from './restored.ts';
import { type Answer, GIVE_UP_MS, type Message, type Poster, waitAfter } from './signed-post.ts';
import {
  activeWebhooks,
  DISABLED_FOR,
  disableWebhook,
  noteTries,
  type Webhook,
  type WebhookTry,
  webhookSecrets,
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
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

/** For metrics. */
export interface WebhookStats {
  delivered: number;
  failed: number;
  disabled: number;
}

const ROUND_MS = 500;
const LEASE_MS = 120_000;
const BATCH = 100;
const BATCH_BYTES = 4_000_000;
/** Batches of one turn of a webhook. */
const MOST_BATCHES = 10;
/** Events in flight where their order does not matter. */
const IN_FLIGHT = 8;
/** A position is written down after so many events; a kill repeats no more than these. */
const WRITTEN_AFTER = 10;
const GONE = 410;
/** Webhooks that send at once; and those beside them whose last try failed, or that have never sent anything. */
const MOST_RUNNING = 512;
const MOST_DOUBTED = 1_024;
/** Of these, how many are between their lease and their first POST: what they ask of the database must not delay the others. */
const MOST_PREPARING = 3;

export class WebhookWorker {
  readonly #options: WebhookWorkerOptions;
  readonly #running = new Map<number, Promise<void>>();
  /** Webhooks whose endpoints may be dead, and wait for their turn. */
  #doubted: Webhook[] = [];
  #doubtedRunning = 0;
  #preparing = 0;
  /** Webhooks that may send, as of the last look. */
  #active: ReadonlySet<number> = new Set();
  readonly #publicIds = new Map<number, string>();
  readonly stats: WebhookStats = { delivered: 0, failed: 0, disabled: 0 };
  readonly #rounds: Rounds;

  constructor(options: WebhookWorkerOptions) {
    this.#options = options;
    this.#rounds = new Rounds({
      work: () => this.#look(),
      pauseMs: () => ROUND_MS,
      onFailure: (error, isFirst) => {
        const code = errorCode(error);
        if (isFirst) options.log.warn({ code, err: error }, 'webhook: cannot look for events, retrying');
      },
    });
  }

  start(): void {
    this.#rounds.start();
  }

  /** Waits for the tries in flight; no other begins. */
  async stop(): Promise<void> {
    await this.#rounds.stop();
    this.#options.poster.close();
    await Promise.all(this.#running.values());
  }

  /** Looks for events now: there may be new ones. */
  wake(): void {
    this.#rounds.runSoon();
  }

  /** Begins the turns of all webhooks for which events wait. */
  async #look(): Promise<void> {
    if (!this.#options.isLeader()) return;
    const due = (await this.#due()).filter(({ id }) => !this.#running.has(id));
    const isDoubted = ({ tries, delivered }: Webhook): boolean => tries > 0 || delivered === 0;
    for (const webhook of due) {
      if (isDoubted(webhook) || this.#running.size - this.#doubtedRunning >= MOST_RUNNING) continue;
      const turn = this.#turn(webhook, () => undefined);
      this.#run(webhook, turn);
    }
    // The new ones first.
    this.#doubted = due.filter(isDoubted).sort((a, b) => a.tries - b.tries);
    this.#runDoubted();
  }

  #run({ id }: Webhook, turn: Promise<void>): void {
    this.#running.set(
      id,
      turn.finally(() => this.#running.delete(id)),
    );
  }

  #runDoubted(): void {
    while (
      this.#preparing < MOST_PREPARING &&
      this.#doubtedRunning < MOST_DOUBTED &&
      !this.#rounds.isStopped
    ) {
      const webhook = this.#doubted.shift();
      if (webhook === undefined) return;
      if (this.#running.has(webhook.id)) continue;
      this.#preparing += 1;
      this.#doubtedRunning += 1;
      let isPreparing = true;
      const prepared = (): void => {
        if (!isPreparing) return;
        isPreparing = false;
        this.#preparing -= 1;
        this.#runDoubted();
      };
      const turn = this.#turn(webhook, prepared).finally(() => {
        this.#doubtedRunning -= 1;
        prepared();
      });
      this.#run(webhook, turn);
    }
  }

  async #due(): Promise<readonly Webhook[]> {
    const { sql, now } = this.#options;
    const active = await activeWebhooks(sql);
    this.#active = new Set(active.map(({ id }) => id));
    const webhooks = active.filter(
      ({ sendsEvents, nextTryAt }) => sendsEvents && (nextTryAt === null || nextTryAt.getTime() <= now()),
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

  /** @param prepared is called before the first POST */
  async #turn(webhook: Webhook, prepared: () => void): Promise<void> {
    const { store, log } = this.#options;
    const { appId, webhookId } = webhook;
    try {
      const lease = await store.lease(appId, webhookId, LEASE_MS, 'webhook');
      if (typeof lease === 'string' || 'leasedForSeconds' in lease) return;
      try {
        await this.#send(webhook, lease, prepared);
      } finally {
        await store.release(appId, webhookId, lease.epoch);
      }
    } catch (error) {
      log.warn({ webhook: webhookId, code: errorCode(error), err: error }, 'webhook: turn failed, retrying');
    }
  }

  async #send(webhook: Webhook, lease: Lease, prepared: () => void): Promise<void> {
    const { sql, store, secret, now } = this.#options;
    const { appId, id, webhookId } = webhook;
    const secrets = await webhookSecrets(sql, secret, id, now());
    if (secrets.length === 0)
      return await this.#disable(webhook, 'another SECRET has sealed its signing secret');
    const isAll = lease.types.length === 0 && lease.filter.length === 0;
    const matches = isAll ? null : matcherOfChoice(lease);
    const publicId = await this.#publicIdOf(appId);
    let { position } = lease;
    for (let batches = 0; batches < MOST_BATCHES && this.#maySend(webhook); batches += 1) {
      // An endpoint that may be dead is tried with one event.
      const limit = batches === 0 && (webhook.tries > 0 || webhook.delivered === 0) ? 1 : BATCH;
      const batch = await readBatch(store, appId, position, { limit, maxBytes: BATCH_BYTES, matches });
      prepared();
      const messages = batch.events.map((event) => messageOf(publicId, event));
      const sent = await this.#sendBatch(webhook, lease.epoch, { batch, messages, secrets });
      if (!sent) return;
      position = batch.position;
      if (!(await this.#acknowledge(webhook, lease.epoch, position))) return;
      if (!batch.hasMore) break;
    }
    if (webhook.tries > 0)
      await sql`UPDATE webhooks SET tries = 0, failing_since = NULL WHERE public_id = ${webhookId}`;
  }

  /** False once it was paused or removed, or its app suspended: the turn ends with the try that is under way. */
  #maySend({ id }: Webhook): boolean {
    return this.#active.has(id) && !this.#rounds.isStopped && this.#options.isLeader();
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
      readonly secrets: readonly string[];
    },
  ): Promise<boolean> {
    const { poster, now, sql } = this.#options;
    const { events } = given.batch;
    const step = webhook.isUnordered ? IN_FLIGHT : 1;
    const tries: WebhookTry[] = [];
    let delivered = 0;
    let failure: { readonly answer: Answer; readonly message: Message } | null = null;
    for (let at = 0; at < events.length && failure === null && this.#maySend(webhook); at += step) {
      const part = given.messages.slice(at, at + step);
      const answers = await Promise.all(
        part.map((message) => poster.send(webhook.url, message, given.secrets)),
      );
      for (const [index, answer] of answers.entries()) {
        const message = part[index];
        if (message === undefined) continue;
        const { status, problem, ms } = answer;
        tries.push({ messageId: message.id, type: message.type, at: new Date(now()), status, problem, ms });
        if (answer.problem !== null) failure ??= { answer, message };
        else if (failure === null) delivered += 1;
      }
      const position = events[delivered - 1]?.position;
      const isDue = failure !== null || delivered % WRITTEN_AFTER === 0 || webhook.tries > 0;
      if (position !== undefined && isDue && !(await this.#acknowledge(webhook, epoch, position)))
        return false;
    }
    const last = events[delivered - 1]?.position;
    // Of a turn that ends in between nothing comes again.
    if (failure === null && delivered < events.length && last !== undefined)
      await this.#acknowledge(webhook, epoch, last);
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
    const { sql, log, now } = this.#options;
    this.stats.failed += 1;
    const tries = webhook.tries + 1;
    const since = webhook.failingSince ?? new Date(now());
    const wait = waitAfter(tries, answer.retryAfterMs, Math.random());
    await sql`
      UPDATE webhooks SET failed = failed + 1, tries = ${tries}, failing_since = ${since},
             next_try_at = ${new Date(now() + wait)}, blocked_by = ${message.id}
       WHERE id = ${webhook.id}`;
    if (answer.status === GONE) return await this.#disable(webhook, DISABLED_FOR.gone);
    if (now() - since.getTime() >= GIVE_UP_MS) return await this.#disable(webhook, DISABLED_FOR.failing);
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

/** The message of an event: the payload is the text that was sent. */
function messageOf(appId: string, { id, typeName, createdAt, payload }: CommittedEvent): Message {
  const at = createdAt.toISOString();
  const data =
    `{"eventId":"${id}","appId":${JSON.stringify(appId)},"typeName":${JSON.stringify(typeName)},` +
    `"createdAt":"${at}","payload":${payload}}`;
  return { id, type: 'event.created', body: `{"type":"event.created","timestamp":"${at}","data":${data}}` };
}
