/** The latest requests of apps that were refused although their token is valid: what was wrong, who sent it, and what it was. */

import type { Usage } from '../api-types/answers.ts';
import { grouped } from '../base/grouped.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../base/time-units.ts';
import type { BodyBeginning } from '../http/request-body.ts';
import type { Sql, Transaction } from '../storage/database/connect.ts';
import { FIRST_NAME } from './producers.ts';

/** Requests that are shown of an app: of each producer, and of each code among its own, the latest. */
const MAX_SHOWN = 20;
const SHOWN_MS = 7 * DAY_MS;
/** Requests that wait to be written, of all apps. */
const MAX_WAITING = 1_000;
const MAX_BODY_CHARACTERS = 1_000;

export interface RefusedRequest {
  /** Internal ids; the producer is 0 for the app's first one, null for a browser key. */
  readonly appId: number;
  readonly producerId: number | null;
  readonly at: number;
  /** The path, as declared. */
  readonly route: string;
  readonly code: string;
  /** What is wrong, as the producer was told. */
  readonly details: string;
  /** Null: it was not read. */
  readonly body: BodyBeginning | null;
}

/** What waits to be written: of each app at most what is shown of it, and less of those with the most where there is no room. */
export class WaitingRefusals {
  #byApp = new Map<number, RefusedRequest[]>();
  #count = 0;
  /** The apps that went beyond their limit in a minute, by its number since 1970. */
  #limited = { minute: Number.NaN, apps: new Set<number>() };

  add(request: RefusedRequest): void {
    const { appId, at, code } = request;
    const own = this.#byApp.get(appId) ?? [];
    // What came beyond a limit is much and alike, and would hide the mistakes.
    if (code === 'RATE_LIMIT_EXCEEDED') {
      const minute = Math.floor(at / MINUTE_MS);
      if (this.#limited.minute !== minute) this.#limited = { minute, apps: new Set() };
      if (this.#limited.apps.has(appId)) return;
      this.#limited.apps.add(appId);
    }
    const isFull = own.length === MAX_SHOWN;
    if (!isFull && this.#count === MAX_WAITING && !this.#makeRoom(own.length)) return;
    if (!isFull && this.#count < MAX_WAITING) this.#count += 1;
    own.push(request);
    if (isFull) giveUpOne(own);
    this.#byApp.set(appId, own);
  }

  /** Gives up a request of the app with the most. @param own requests of the app that needs room */
  #makeRoom(own: number): boolean {
    let most: RefusedRequest[] = [];
    for (const requests of this.#byApp.values()) if (requests.length > most.length) most = requests;
    if (most.length <= own + 1) return false;
    giveUpOne(most);
    return true;
  }

  take(): readonly RefusedRequest[] {
    const taken = [...this.#byApp.values()].flat();
    this.#byApp = new Map();
    this.#count = 0;
    return taken;
  }
}

/** Gives up the oldest request of the producer with the most, among those with its most frequent code. */
function giveUpOne(requests: RefusedRequest[]): void {
  const ofProducer = largest(grouped(requests, ({ producerId }) => producerId));
  const [oldest] = largest(grouped(ofProducer, ({ code }) => code));
  if (oldest !== undefined) requests.splice(requests.indexOf(oldest), 1);
}

function largest(groups: ReadonlyMap<unknown, readonly RefusedRequest[]>): readonly RefusedRequest[] {
  return [...groups.values()].reduce((a, b) => (b.length > a.length ? b : a), []);
}

/** Writes refused requests, and keeps of each app {@link MAX_SHOWN}: a producer with many takes what others leave. Of apps that are gone nothing is written. */
export async function addRefusals(sql: Sql, requests: readonly RefusedRequest[]): Promise<void> {
  if (requests.length > 0)
    await sql.begin('isolation level read committed', (tx) => addAndTrim(tx, requests));
}

async function addAndTrim(tx: Transaction, requests: readonly RefusedRequest[]): Promise<void> {
  // Rules and erasures that are made meanwhile wait, and then forget what is written here.
  await tx`LOCK TABLE redaction_rules IN SHARE MODE`;
  const apps = [...new Set(requests.map(({ appId }) => appId))];
  const rules = await tx<{ appId: number; paths: readonly (readonly string[])[] }[]>`
    SELECT app_id AS "appId", json_agg(path::json) AS paths
      FROM redaction_rules JOIN event_types ON event_types.id = type_id WHERE app_id = ANY(${apps}) GROUP BY 1`;
  const redacted = new Map(
    rules.map(({ appId, paths }) => [appId, new Set(paths.flatMap((path) => path.at(-1) ?? []))]),
  );
  const rows = requests.map(({ appId, details, body, ...request }) => {
    const shown = shownBody(body, redacted.get(appId) ?? null);
    return {
      ...request,
      ...{ appId, details: storable(details), body: shown?.text ?? null, isCut: shown?.isCut ?? false },
    };
  });
  await tx`
    INSERT INTO refused_requests (app_id, producer_id, at, route, code, details, body, is_cut)
    SELECT apps.id, "producerId", to_timestamp(at / 1000), route, code, details, body, "isCut"
      FROM ROWS FROM (json_to_recordset(${JSON.stringify(rows)}::text::json)
             AS ("appId" int, "producerId" int, at float8, route text, code text, details text, body text, "isCut" bool))
             WITH ORDINALITY AS new ("appId", "producerId", at, route, code, details, body, "isCut", place)
      JOIN apps ON apps.id = "appId"
     WHERE NOT EXISTS (SELECT FROM erasures WHERE erasures.app_id = apps.id AND asked_at >= to_timestamp(at / 1000))
     ORDER BY place`;
  await tx`
    WITH by_code AS (
           SELECT id, app_id, producer_id, at, row_number() OVER (PARTITION BY app_id, producer_id, code ORDER BY at DESC, id DESC) AS place
             FROM refused_requests WHERE app_id = ANY(${apps})),
         by_producer AS (
           SELECT id, app_id, at, row_number() OVER (PARTITION BY app_id, producer_id ORDER BY place, at DESC, id DESC) AS place FROM by_code),
         by_app AS (
           SELECT id, row_number() OVER (PARTITION BY app_id ORDER BY place, at DESC, id DESC) AS place FROM by_producer)
    DELETE FROM refused_requests WHERE id IN (SELECT id FROM by_app WHERE place > ${MAX_SHOWN})`;
}

/** Removes what is not shown any more. */
export async function removeOldRefusals(sql: Sql, now: number): Promise<void> {
  await sql`DELETE FROM refused_requests WHERE at < ${new Date(now - SHOWN_MS)}`;
}

/** Forgets the refused requests of an app: what is redacted or erased from now on may be in them. */
export async function forgetRefusals(tx: Transaction, appId: number): Promise<void> {
  await tx`LOCK TABLE redaction_rules IN ROW EXCLUSIVE MODE`;
  await tx`DELETE FROM refused_requests WHERE app_id = ${appId}`;
}

type ShownRefusal = Usage<Date>['lastRefused'][number];

/** The latest refused requests of an app, the last one first. */
export async function readRefusals(sql: Sql, appId: number): Promise<ShownRefusal[]> {
  return await sql<ShownRefusal[]>`
    SELECT at, CASE producer_id WHEN 0 THEN ${FIRST_NAME} ELSE producers.name END AS producer, route, code, details,
           body, is_cut AS "isCut"
      FROM refused_requests AS refused LEFT JOIN producers ON producers.id = producer_id
     WHERE refused.app_id = ${appId} ORDER BY at DESC, refused.id DESC LIMIT ${MAX_SHOWN}`;
}

/** Whether requests of an app were refused in the last hour. */
export async function wasRefusedLately(sql: Sql, appId: number, now: number): Promise<boolean> {
  const rows = await sql`
    SELECT FROM refused_requests WHERE app_id = ${appId} AND at > ${new Date(now - HOUR_MS)} LIMIT 1`;
  return rows.length > 0;
}

const MASK = '***';
/** Tokens of any kind, also such as are cut off. */
const TOKENS = /\btd[a-z]_\w+/g;

/**
 * What may be shown of a body. Of an app with rules of redaction the values of their names are masked wherever they stand, as a body
 * that is refused may have them anywhere; a body that is not whole, or no JSON, is not shown then.
 * @param redacted last names of the paths of the app's rules; null: it has none
 */
function shownBody(
  body: RefusedRequest['body'],
  redacted: ReadonlySet<string> | null,
): { readonly text: string; readonly isCut: boolean } | null {
  if (body === null) return null;
  let { text } = body;
  if (redacted !== null) {
    if (!body.isWhole) return null;
    try {
      text = JSON.stringify(JSON.parse(text), (name, value: unknown) => (redacted.has(name) ? MASK : value));
    } catch {
      return null;
    }
  }
  const shown = text.replaceAll(TOKENS, (token) => `${token.slice(0, 4)}${MASK}`);
  const isCut = !body.isWhole || shown.length > MAX_BODY_CHARACTERS;
  return { text: storable(shown.slice(0, MAX_BODY_CHARACTERS)), isCut };
}

/** PostgreSQL stores neither NUL nor half a surrogate pair. */
function storable(text: string): string {
  return Buffer.from(text.replaceAll('\0', '\uFFFD')).toString();
}
