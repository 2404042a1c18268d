/**
 * Sends the messages that wait: those of alerts, and what owners are told of webhooks. They are committed with what they tell of. Those
 * of an app for one target are sent in order, in turns by account; a message is deleted once its receiver has taken it, and has the same
 * id at each try.
 */

import type { Mail, Mailer } from '../accounts/mail/mail.ts';
import { type Email, mailboxOf, parseEmail } from '../accounts/people/email.ts';
import { hasMaker } from '../accounts/people/senders.ts';
import { may, type Role } from '../base/roles.ts';
import { Rounds } from '../base/rounds.ts';
import { Ending, Slots } from '../base/slots.ts';
import { HOUR_MS } from '../base/time-units.ts';
import { MOST_CLIENTS, Window } from '../base/window.ts';
import { errorCode, type Fragment, type Sql } from '../storage/database/connect.ts';
import type { Storage } from '../storage/storage.ts';
import { bodyOf, type Channel, type Hook, type Trail, watchedBy } from './alerts/messages.ts';
import { tryRule } from './alerts/trial.ts';
import { postedTo } from './chat.ts';
import { DIGEST_MESSAGE, isDigestWanted } from './digest/digests.ts';
import { drawPicture, type Picture } from './picture.ts';
import { areDeliveriesStopped } from './restored.ts';
import { type Answer, GIVE_UP_MS, isDue, LONGEST_WAIT_MS, waitAfter } from './signed-post.ts';
import type { WebhookWorkerOptions } from './webhook-worker.ts';
import { DISABLED_FOR, disableWebhook, noteTries, signingKeys, type Webhook } from './webhooks.ts';

export interface OutboxOptions extends Omit<WebhookWorkerOptions, 'store' | 'publicIdOf'> {
  readonly storage: Pick<Storage, 'reader'>;
  /** Null: there is no mail server. */
  readonly mailer: Pick<Mailer, 'deliver'> | null;
  readonly publicUrl: string;
  /** Milliseconds of a monotonic clock, for the limits of mails. */
  readonly monotonic: () => number;
}

/** For metrics, by channel. */
export type OutboxStats = Readonly<Record<Channel, { sent: number; failed: number; dropped: number }>>;

/** Messages of one app for one receiver: they are sent in order. */
interface Target {
  readonly appId: number;
  readonly channel: Channel;
  readonly target: string;
}

interface DueTarget extends Target {
  /** The account of the app; null: it has no owner. */
  readonly accountId: number | null;
}

interface Message extends Target {
  readonly id: string;
  /** What it says, where its body is made when it is sent; null: its body is stored. */
  readonly said: string | null;
  readonly messageId: string;
  readonly type: string;
  readonly body: string;
  readonly createdAt: Date;
  readonly failingSince: Date | null;
  readonly tries: number;
  readonly nextTryAt: Date;
}

interface StoredMessage extends Omit<Message, 'body'> {
  /** Null: what it says is stored. */
  readonly body: string | null;
  /** The webhook that it is for; null: it is gone, or the message is for others. */
  readonly hook: Hook | null;
}

/** What became of a try: `gone` where there is nobody to send it to, `later` where it was not its turn yet. */
type Tried = Omit<Answer, 'ms' | 'status'> | 'gone' | { readonly laterMs: number };

const ROUND_MS = 500;
/** Targets that are sent to at once. While others wait, one account has half of them at most, and never all. */
const MOST_RUNNING = 64;
/** Targets that wait for a place; those beyond it are found again in the next round. */
const MOST_WAITING = 10_000;
/** Messages of one turn of a target. */
const MOST_OF_TURN = 100;
/** No further message of a turn begins after that. */
const TURN_MS = 5_000;
/** Mails to one mailbox in an hour: all, of apps that its reader does not own, and of one app. The others wait. */
const MAILS_PER_HOUR = { ofAll: 60, ofOthers: 40, ofApp: 20 };
const GONE = 410;

export class Outbox extends Rounds {
  readonly #options: OutboxOptions;
  readonly #mails: Readonly<Record<keyof typeof MAILS_PER_HOUR, Window>>;
  readonly #places = new Slots(MOST_RUNNING, MOST_WAITING);
  /** Targets that are sent to, or wait for a place. */
  readonly #running = new Map<string, Promise<void>>();
  readonly #ending = new Ending();
  readonly stats: OutboxStats = {
    webhook: { sent: 0, failed: 0, dropped: 0 },
    mail: { sent: 0, failed: 0, dropped: 0 },
    alertmanager: { sent: 0, failed: 0, dropped: 0 },
  };

  constructor(options: OutboxOptions) {
    super({
      work: () => this.#look(),
      pauseMs: () => ROUND_MS,
      onFailure: (error, isFirst) => {
        const code = errorCode(error);
        if (isFirst) options.log.warn({ code, err: error }, 'delivery: cannot look for messages, retrying');
      },
    });
    this.#options = options;
    const limit = (mails: number): Window =>
      new Window({ limit: mails, ms: HOUR_MS, maxKeys: MOST_CLIENTS, now: options.monotonic });
    const { ofAll, ofOthers, ofApp } = MAILS_PER_HOUR;
    this.#mails = { ofAll: limit(ofAll), ofOthers: limit(ofOthers), ofApp: limit(ofApp) };
  }

  /** Waits for the tries in flight; no other begins. */
  override async stop(): Promise<void> {
    const stopped = super.stop();
    this.#ending.settle();
    await stopped;
    await Promise.all(this.#running.values());
  }

  async #look(): Promise<void> {
    const { isLeader, sql } = this.#options;
    if (!isLeader()) return;
    const due = await this.#due();
    if (due.length > 0 && (await areDeliveriesStopped(sql))) return;
    for (const one of due) {
      const key = `${one.appId} ${one.channel} ${one.target}`;
      if (this.#running.has(key)) continue;
      const path = [one.accountId ?? `app ${one.appId}`, one.appId, key];
      const turn = this.#places.run(path, this.#ending, () => this.#turn(one));
      this.#running.set(
        key,
        turn.then(() => undefined).finally(() => this.#running.delete(key)),
      );
    }
  }

  /** Targets whose oldest message is due, and that nobody has ordered to wait. Found one by one, however many messages wait. */
  async #due(): Promise<readonly DueTarget[]> {
    const { sql, now } = this.#options;
    // Mostly none waits: to plan the statement below costs several times as much.
    const any = await sql`SELECT FROM delivery_messages ORDER BY app_id, channel, target, id LIMIT 1`;
    if (any.length === 0) return [];
    const first = (after: Fragment) => sql`
      SELECT app_id, channel, target, created_at, next_try_at FROM delivery_messages ${after}
       ORDER BY app_id, channel, target, id LIMIT 1`;
    return await sql<DueTarget[]>`
      WITH RECURSIVE oldest AS (
        (${first(sql``)})
        UNION ALL
        SELECT next.* FROM oldest CROSS JOIN LATERAL (${first(sql`
          WHERE (delivery_messages.app_id, delivery_messages.channel, delivery_messages.target) > (oldest.app_id, oldest.channel, oldest.target)`)}
        ) AS next)
      SELECT app_id AS "appId", channel, target,
             (SELECT min(user_id) FROM app_members WHERE app_members.app_id = oldest.app_id AND role = 'owner') AS "accountId"
        FROM oldest
       WHERE (next_try_at <= greatest(created_at, ${new Date(now())}) OR next_try_at > ${new Date(now() + LONGEST_WAIT_MS)})
         AND ${isNotHeld(sql)}
       ORDER BY next_try_at`;
  }

  async #turn({ appId, channel, target }: Target): Promise<void> {
    const { sql, log, now, isLeader } = this.#options;
    try {
      const messages = await sql<StoredMessage[]>`
        SELECT id, app_id AS "appId", channel, target, message_id AS "messageId", type, body, said, created_at AS "createdAt",
               failing_since AS "failingSince", tries, next_try_at AS "nextTryAt",
               (SELECT json_build_object('url', url, 'format', format) FROM webhooks WHERE channel = 'webhook' AND public_id = target) AS hook
          FROM delivery_messages AS oldest
         WHERE app_id = ${appId} AND channel = ${channel} AND target = ${target} AND ${isNotHeld(sql)}
         ORDER BY id LIMIT ${MOST_OF_TURN}`;
      const until = now() + TURN_MS;
      for (const message of messages) {
        if (this.isStopped || !isLeader() || now() > until) return;
        // One that was never tried waits for nothing, also where it was made by a clock that was ahead.
        const isNew = message.nextTryAt.getTime() <= message.createdAt.getTime();
        if (!(isNew || isDue(message.nextTryAt, now())) || !(await this.#send(message))) return;
      }
    } catch (error) {
      log.warn({ channel, code: errorCode(error), err: error }, 'delivery: turn failed, retrying');
    }
  }

  /** @returns whether the next one can follow */
  async #send(stored: StoredMessage): Promise<boolean> {
    const { channel, said, hook } = stored;
    const body = said === null ? stored.body : bodyOf(channel, said, this.#options.publicUrl, { hook });
    const message = { ...stored, body: body ?? '' };
    const answer = body === null ? 'gone' : await this.#hand(message);
    if (answer === 'gone') {
      await this.#options.sql`DELETE FROM delivery_messages WHERE id = ${message.id}`;
      this.stats[channel].dropped += 1;
      return true;
    }
    if ('laterMs' in answer) return await this.#wait(message, answer.laterMs);
    if (answer.problem === null) {
      await this.#options.sql`DELETE FROM delivery_messages WHERE id = ${message.id}`;
      this.stats[channel].sent += 1;
      return true;
    }
    await this.#failed(message, answer);
    return false;
  }

  async #hand(message: Message): Promise<Tried> {
    if (message.channel === 'mail') return await this.#mail(message);
    if (message.channel === 'webhook') return await this.#post(message);
    // The operator may have left the path to us.
    const url = new URL(message.target);
    if (url.pathname === '/') url.pathname = '/api/v2/alerts';
    return await this.#options.poster.post(url.href, message.body, {});
  }

  async #mail({ appId, target, body, said, type, messageId }: Message): Promise<Tried> {
    const { mailer, sql, publicUrl } = this.#options;
    if (mailer === null) return 'gone';
    // It may have waited for a mail server since its reader stopped it, or left the app.
    if (type === DIGEST_MESSAGE && !(await isDigestWanted(sql, messageId))) return 'gone';
    const email: Email = parseEmail(target) ?? { text: target, key: target };
    const reader = await this.#readerOf(appId, email, type);
    if (reader === 'nobody') return 'gone';
    const laterMs = this.#mailboxWait(mailboxOf(email), appId, reader === 'owner');
    if (laterMs > 0) return { laterMs };
    const trail = said === null ? null : await this.#trailOf(appId, said);
    const shown = said === null ? null : bodyOf('mail', said, publicUrl, { trail });
    // As it was stored with what it tells of.
    const { pictures = [], ...mail } = JSON.parse(shown ?? body) as Omit<Mail, 'to'> & {
      pictures?: Picture[];
    };
    const images: { cid: string; png: Buffer }[] = [];
    // One after the other: other requests are served between two.
    for (const picture of pictures) images.push({ cid: picture.id, png: await drawPicture(picture) });
    const problem = await mailer.deliver({ to: target, ...mail, images });
    if (problem !== null)
      for (const [limit, key] of mailboxLimits(mailboxOf(email), appId, reader === 'owner'))
        this.#mails[limit].giveBack(key);
    return { problem, text: '', retryAfterMs: null };
  }

  /** What an alert watched, for its mail. Null where it cannot be read now: the mail says everything without it. */
  async #trailOf(appId: number, said: string): Promise<Trail | null> {
    const { sql, storage, log } = this.#options;
    const watched = watchedBy(said);
    if (watched === null) return null;
    try {
      const trial = await tryRule({ sql, events: storage.reader(sql) }, { ...watched, appId }, watched);
      if (trial === null || trial.to < trial.from) return null;
      const { curve, fires, from, to } = trial;
      const { values, low, high } = curve;
      return { values, low, high, fires, from, to };
    } catch (error) {
      log.debug({ code: errorCode(error), err: error }, 'delivery: an alert is mailed without its picture');
      return null;
    }
  }

  /**
   * Who reads a mail of an app. An address that has an account gets it as a present member alone, of alerts once it has opened the app;
   * others are those that the operator wrote.
   */
  async #readerOf(appId: number, { key }: Email, type: string): Promise<'owner' | 'other' | 'nobody'> {
    const [account] = await this.#options.sql<{ role: Role | null; isOpened: boolean }[]>`
      SELECT role, opened_at IS NOT NULL AS "isOpened"
        FROM users LEFT JOIN app_members ON user_id = users.id AND app_id = ${appId} AND users.suspended_at IS NULL
       WHERE email_key = ${key} AND email_verified_at IS NOT NULL`;
    if (account?.role === 'owner') return 'owner';
    if (account === undefined) return 'other';
    return may(account.role, 'read') && (account.isOpened || !type.startsWith('alert.')) ? 'other' : 'nobody';
  }

  /** Counts a mail to a mailbox. @returns 0 where it may be sent now; else milliseconds, and it is not counted */
  #mailboxWait(mailbox: string, appId: number, isOwn: boolean): number {
    const limits = mailboxLimits(mailbox, appId, isOwn);
    for (const [index, [limit, key]] of limits.entries()) {
      const wait = this.#mails[limit].wait(key);
      if (wait === 0) continue;
      for (const [other, itsKey] of limits.slice(0, index)) this.#mails[other].giveBack(itsKey);
      return wait;
    }
    return 0;
  }

  async #post({ target, messageId, type, body }: Message): Promise<Tried> {
    const { sql, secret, poster, now } = this.#options;
    const [webhook] = await sql<FoundWebhook[]>`
      SELECT id, app_id AS "appId", public_id AS "webhookId", url, format, state, failing_since AS "failingSince", sends_events AS "sendsEvents"
        FROM webhooks WHERE public_id = ${target}`;
    if (webhook === undefined) return 'gone';
    // Stopped in this moment: it is not looked at again before it goes on.
    if (webhook.state !== 'active') return { laterMs: ROUND_MS };
    const keys = await signingKeys(sql, secret, webhook.id, now());
    if (keys.length === 0) {
      await disableWebhook(sql, webhook, 'another SECRET has sealed its signing secret', now());
      return { laterMs: ROUND_MS };
    }
    const answer = await poster.send(
      postedTo(webhook.format, webhook.url),
      { id: messageId, type, body },
      keys,
    );
    const { status, problem, ms } = answer;
    await noteTries(sql, webhook.id, [{ messageId, type, at: new Date(now()), status, problem, ms }]);
    if (problem === null)
      await sql`UPDATE webhooks SET delivered = delivered + 1, failing_since = NULL WHERE id = ${webhook.id}`;
    else await this.#failedWebhook(webhook, status);
    return answer;
  }

  async #failedWebhook(webhook: FoundWebhook, status: number | null): Promise<void> {
    const { sql, now, judged = now } = this.#options;
    const since = webhook.failingSince ?? new Date(now());
    await sql`
      UPDATE webhooks SET failed = failed + 1, failing_since = coalesce(failing_since, ${since}) WHERE id = ${webhook.id}`;
    if (status === GONE) await disableWebhook(sql, webhook, DISABLED_FOR.gone, now());
    else if (judged() - since.getTime() >= GIVE_UP_MS)
      await disableWebhook(sql, webhook, DISABLED_FOR.failing, now());
  }

  /** It is not its turn yet: that is no failure. */
  async #wait({ id, channel, createdAt }: Message, ms: number): Promise<false> {
    const { sql, log, now, judged = now } = this.#options;
    if (channel === 'mail' && judged() - createdAt.getTime() >= GIVE_UP_MS) {
      await sql`DELETE FROM delivery_messages WHERE id = ${id}`;
      this.stats[channel].dropped += 1;
      log.error({ channel }, 'delivery: mail given up, its mailbox has had too many for 72 hours');
    } else await sql`UPDATE delivery_messages SET next_try_at = ${new Date(now() + ms)} WHERE id = ${id}`;
    return false;
  }

  async #failed(message: Message, answer: Omit<Answer, 'ms' | 'status'>): Promise<void> {
    const { sql, log, now, judged = now } = this.#options;
    const { id, channel, type } = message;
    const tries = message.tries + 1;
    const since = message.failingSince ?? new Date(now());
    this.stats[channel].failed += 1;
    if (judged() - since.getTime() >= GIVE_UP_MS) {
      await sql`DELETE FROM delivery_messages WHERE id = ${id}`;
      this.stats[channel].dropped += 1;
      log.error({ channel, type, problem: answer.problem }, 'delivery: message given up after 72 hours');
      return;
    }
    const next = new Date(now() + waitAfter(tries, answer.retryAfterMs, Math.random()));
    await sql`
      UPDATE delivery_messages SET tries = ${tries}, failing_since = ${since}, next_try_at = ${next}, problem = ${answer.problem}
       WHERE id = ${id}`;
    if (tries === 1) log.warn({ channel, type, problem: answer.problem }, 'delivery: failed, retrying');
  }
}

/** The limits that a mail counts in, and under which keys. */
function mailboxLimits(
  mailbox: string,
  appId: number,
  isOwn: boolean,
): readonly (readonly [keyof typeof MAILS_PER_HOUR, string])[] {
  const ofApp = ['ofApp', `${appId} ${mailbox}`] as const;
  const ofAll = ['ofAll', mailbox] as const;
  return isOwn ? [ofApp, ofAll] : [ofApp, ['ofOthers', mailbox], ofAll];
}

/**
 * Whether a message may be sent: it waits while its app is in the bin or suspended, while its webhook is paused or disabled, and while
 * the one who made the webhook, or the alert that names the Alertmanager, may not use the app.
 */
const isNotHeld = (sql: Sql) => sql`
  NOT EXISTS (SELECT FROM apps WHERE apps.id = oldest.app_id AND (removed_at IS NOT NULL OR suspended_at IS NOT NULL))
  AND NOT (channel = 'webhook' AND EXISTS (
    SELECT FROM webhooks WHERE public_id = target AND (state <> 'active' OR NOT ${hasMaker(sql, 'webhooks')})))
  AND NOT (channel = 'alertmanager' AND (
    SELECT bool_and(NOT ${hasMaker(sql, 'alert_rules')}) FROM alert_rules
     WHERE alert_rules.app_id = oldest.app_id AND alertmanager = target) IS TRUE)`;

type FoundWebhook = Pick<
  Webhook,
  'id' | 'appId' | 'webhookId' | 'url' | 'format' | 'state' | 'failingSince' | 'sendsEvents'
>;
