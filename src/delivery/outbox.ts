/**
 * Sends the messages that wait: those of alerts, and what owners are told of webhooks. They are committed with what they tell of. Each
 * target is a task of its own, in which they are sent in order; a message is deleted once its receiver has taken it, and has the same id
 * at each try.
 */
import type { Logger } from 'pino';
import type { Mail, Mailer } from '../accounts/mail/mail.ts';
import { type Email, mailboxOf, parseEmail } from '../accounts/people/email.ts';
import type { Secret } from '../apps/secret.ts';
import { Rounds } from '../base/rounds.ts';
import { HOUR_MS } from '../base/time-units.ts';
import { MOST_CLIENTS, Window } from '../base/window.ts';
import { errorCode, type Sql } from '../storage/database/connect.ts';
import { DIGEST_MESSAGE, isDigestWanted } from './digest/digests.ts';
import { drawPicture, type Picture } from './digest/picture.ts';
import { areDeliveriesStopped } from './restored.ts';
import { type Answer, GIVE_UP_MS, type Poster, waitAfter } from './signed-post.ts';
import { DISABLED_FOR, disableWebhook, noteTries, webhookSecrets } from './webhooks.ts';

export interface OutboxOptions {
  /** A pool of upkeep. */
  readonly sql: Sql;
  readonly secret: Secret;
  readonly poster: Poster;
  /** Null: there is no mail server. */
  readonly mailer: Pick<Mailer, 'deliver'> | null;
  /** Whether this process sends. */
  readonly isLeader: () => boolean;
  readonly log: Logger;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

export type Channel = 'webhook' | 'mail' | 'alertmanager';

/** For metrics, by channel. */
export type OutboxStats = Readonly<Record<Channel, { sent: number; failed: number; dropped: number }>>;

interface Message {
  readonly id: string;
  readonly appId: number;
  readonly channel: Channel;
  readonly target: string;
  readonly messageId: string;
  readonly type: string;
  readonly body: string;
  readonly createdAt: Date;
  readonly tries: number;
  readonly nextTryAt: Date;
}

const ROUND_MS = 500;
/** Targets that are sent to at once. */
const MOST_RUNNING = 64;
/** Messages of one turn of a target. */
const MOST_OF_TURN = 100;
/** Mails to one mailbox in an hour: the others wait. */
const MAILS_PER_HOUR = 60;
const GONE = 410;

export class Outbox {
  readonly #options: OutboxOptions;
  readonly #ofMailbox: Window;
  readonly #running = new Map<string, Promise<void>>();
  readonly stats: OutboxStats = {
    webhook: { sent: 0, failed: 0, dropped: 0 },
    mail: { sent: 0, failed: 0, dropped: 0 },
    alertmanager: { sent: 0, failed: 0, dropped: 0 },
  };
  readonly #rounds: Rounds;

  constructor(options: OutboxOptions) {
    this.#options = options;
    this.#rounds = new Rounds({
      work: () => this.#look(),
      pauseMs: () => ROUND_MS,
      onFailure: (error, isFirst) => {
        const code = errorCode(error);
        if (isFirst) options.log.warn({ code, err: error }, 'delivery: cannot look for messages, retrying');
      },
    });
    this.#ofMailbox = new Window({
      limit: MAILS_PER_HOUR,
      ms: HOUR_MS,
      maxKeys: MOST_CLIENTS,
      now: options.now,
    });
  }

  start(): void {
    this.#rounds.start();
  }

  /** Waits for the tries in flight; no other begins. */
  async stop(): Promise<void> {
    await this.#rounds.stop();
    await Promise.all(this.#running.values());
  }

  async #look(): Promise<void> {
    const { isLeader, sql } = this.#options;
    if (!isLeader()) return;
    const due = await this.#due();
    if (due.length > 0 && (await areDeliveriesStopped(sql))) return;
    for (const { channel, target } of due) {
      const key = `${channel} ${target}`;
      if (this.#running.has(key) || this.#running.size >= MOST_RUNNING) continue;
      const turn = this.#turn(channel, target).finally(() => this.#running.delete(key));
      this.#running.set(key, turn);
    }
  }

  /** Targets whose oldest message is due. */
  async #due(): Promise<readonly Pick<Message, 'channel' | 'target'>[]> {
    const { sql, now } = this.#options;
    return await sql<Pick<Message, 'channel' | 'target'>[]>`
      SELECT channel, target FROM (SELECT DISTINCT ON (channel, target) channel, target, next_try_at
                                     FROM delivery_messages WHERE ${ofLiveApp(sql)} ORDER BY channel, target, id) AS oldest
       WHERE next_try_at <= ${new Date(now())} ORDER BY next_try_at`;
  }

  async #turn(channel: Channel, target: string): Promise<void> {
    const { sql, log, now } = this.#options;
    try {
      const messages = await sql<Message[]>`
        SELECT id, app_id AS "appId", channel, target, message_id AS "messageId", type, body, created_at AS "createdAt", tries,
               next_try_at AS "nextTryAt"
          FROM delivery_messages WHERE channel = ${channel} AND target = ${target} AND ${ofLiveApp(sql)} ORDER BY id LIMIT ${MOST_OF_TURN}`;
      for (const message of messages) {
        if (this.#rounds.isStopped || message.nextTryAt.getTime() > now()) return;
        if (!(await this.#send(message))) return;
      }
    } catch (error) {
      log.warn({ channel, code: errorCode(error), err: error }, 'delivery: turn failed, retrying');
    }
  }

  /** @returns whether the next one can follow */
  async #send(message: Message): Promise<boolean> {
    const { channel } = message;
    const answer = await this.#hand(message);
    if (answer === 'gone') {
      await this.#options.sql`DELETE FROM delivery_messages WHERE id = ${message.id}`;
      this.stats[channel].dropped += 1;
      return true;
    }
    if (answer.problem === null) {
      await this.#options.sql`DELETE FROM delivery_messages WHERE id = ${message.id}`;
      this.stats[channel].sent += 1;
      return true;
    }
    await this.#failed(message, answer);
    return false;
  }

  /** Tries once. @returns `gone` where there is nobody to send it to */
  async #hand(message: Message): Promise<Omit<Answer, 'ms' | 'status'> | 'gone'> {
    if (message.channel === 'mail') return await this.#mail(message);
    if (message.channel === 'webhook') return await this.#post(message);
    // The operator may have left the path to us.
    const url = new URL(message.target);
    if (url.pathname === '/') url.pathname = '/api/v2/alerts';
    return await this.#options.poster.post(url.href, message.body, {});
  }

  async #mail({ target, body, type, messageId }: Message): Promise<Omit<Answer, 'ms' | 'status'> | 'gone'> {
    const { mailer, sql } = this.#options;
    if (mailer === null) return 'gone';
    // It may have waited for a mail server since its reader stopped it, or left the app.
    if (type === DIGEST_MESSAGE && !(await isDigestWanted(sql, messageId))) return 'gone';
    const email: Email = parseEmail(target) ?? { text: target, key: target };
    const wait = this.#ofMailbox.wait(mailboxOf(email));
    if (wait > 0) return { problem: 'the mailbox has had too many mails in an hour', retryAfterMs: wait };
    // As it was stored with what it tells of.
    const { pictures = [], ...mail } = JSON.parse(body) as Omit<Mail, 'to'> & { pictures?: Picture[] };
    const images: { cid: string; png: Buffer }[] = [];
    // One after the other: other requests are served between two.
    for (const picture of pictures) images.push({ cid: picture.id, png: await drawPicture(picture) });
    const problem = await mailer.deliver({ to: target, ...mail, images });
    if (problem !== null) this.#ofMailbox.giveBack(mailboxOf(email));
    return { problem, retryAfterMs: null };
  }

  async #post({ target, messageId, type, body }: Message): Promise<Omit<Answer, 'ms'> | 'gone'> {
    const { sql, secret, poster, now } = this.#options;
    const [webhook] = await sql<FoundWebhook[]>`
      SELECT id, app_id AS "appId", public_id AS "webhookId", url, state, failing_since AS "failingSince", sends_events AS "sendsEvents"
        FROM webhooks WHERE public_id = ${target}`;
    if (webhook === undefined || webhook.state === 'disabled') return 'gone';
    if (webhook.state === 'paused')
      return { status: null, problem: 'the webhook is paused', retryAfterMs: null };
    const secrets = await webhookSecrets(sql, secret, webhook.id, now());
    if (secrets.length === 0) {
      await disableWebhook(sql, webhook, 'another SECRET has sealed its signing secret', now());
      return 'gone';
    }
    const answer = await poster.send(webhook.url, { id: messageId, type, body }, secrets);
    const { status, problem, ms } = answer;
    await noteTries(sql, webhook.id, [{ messageId, type, at: new Date(now()), status, problem, ms }]);
    if (problem === null)
      await sql`UPDATE webhooks SET delivered = delivered + 1, failing_since = NULL WHERE id = ${webhook.id}`;
    else await this.#failedWebhook(webhook, status);
    return answer;
  }

  async #failedWebhook(webhook: FoundWebhook, status: number | null): Promise<void> {
    const { sql, now } = this.#options;
    const since = webhook.failingSince ?? new Date(now());
    await sql`
      UPDATE webhooks SET failed = failed + 1, failing_since = coalesce(failing_since, ${since}) WHERE id = ${webhook.id}`;
    if (status === GONE) await disableWebhook(sql, webhook, DISABLED_FOR.gone, now());
    else if (now() - since.getTime() >= GIVE_UP_MS)
      await disableWebhook(sql, webhook, DISABLED_FOR.failing, now());
  }

  async #failed(message: Message, answer: Omit<Answer, 'ms' | 'status'>): Promise<void> {
    const { sql, log, now } = this.#options;
    const { id, channel, type } = message;
    const tries = message.tries + 1;
    this.stats[channel].failed += 1;
    if (now() - message.createdAt.getTime() >= GIVE_UP_MS) {
      await sql`DELETE FROM delivery_messages WHERE id = ${id}`;
      this.stats[channel].dropped += 1;
      log.error({ channel, type, problem: answer.problem }, 'delivery: message given up after 72 hours');
      return;
    }
    const next = new Date(now() + waitAfter(tries, answer.retryAfterMs, Math.random()));
    await sql`
      UPDATE delivery_messages SET tries = ${tries}, next_try_at = ${next}, problem = ${answer.problem} WHERE id = ${id}`;
    if (tries === 1) log.warn({ channel, type, problem: answer.problem }, 'delivery: failed, retrying');
  }
}

/** Messages of an app in the bin wait until it is restored, those of a suspended one until it is resumed. */
const ofLiveApp = (sql: Sql) =>
  sql`NOT EXISTS (
    SELECT FROM apps WHERE apps.id = app_id AND (removed_at IS NOT NULL OR suspended_at IS NOT NULL))`;

interface FoundWebhook {
  readonly id: number;
  readonly appId: number;
  readonly webhookId: string;
  readonly url: string;
  readonly state: 'active' | 'paused' | 'disabled';
  readonly failingSince: Date | null;
  readonly sendsEvents: boolean;
}
