/** Clients: they send events in every way that the service offers, and repeat what they may repeat until it is answered. */
import { Rejection } from '../../src/errors.ts';
import { CLOSED } from '../../src/ingest/queue/commit-buffer.ts';
import { startOfCurrentDay } from '../../src/ingest/queue/past-writer.ts';
import type { AcceptedEvents } from '../../src/ingest/queue/write-queues.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import type { WriteOutcome } from '../../src/storage/write/event-writer.ts';
import { POISON } from '../../src/storage/write/failures.ts';
import type { IdempotentRequest, KeptAnswer } from '../../src/storage/write/idempotent-writer.ts';
import { POISON_WORD } from './database.ts';
import type { Wish } from './ledger.ts';
import { type SimulatedProcess, START } from './process.ts';
import type { World } from './world.ts';

const DAY_MS = 86_400_000;
export const APPS = 4;
export const TYPES = 2;
const MOST_TRIES = 6;
/** More than the changes of the day that a commit group may have. */
export const MIXED_EVENTS = 130;
/** Chance of an event with a key to be that of an earlier request. */
const REPEATED_EVENTS = 0.1;
const BODY = Buffer.from('body');
const RETRY_MS = [50, 2_000] as const;

type Kind = 'single' | 'batch' | 'keyed' | 'idempotent';

interface Request {
  readonly kind: Kind;
  readonly wishes: readonly Wish[];
  /** Of the Idempotency-Key. */
  readonly digest: Buffer;
  /** Handed on in the order in which it is, as of now, although its events are of two days in turns. */
  readonly isMixed: boolean;
  tries: number;
  isSettled: boolean;
}

/** The share of each kind, and what requests consist of. */
export interface Habits {
  readonly kinds: readonly Kind[];
  readonly mostEvents: number;
  /** Chances of events: of past days, with keys of their own, and such that the database refuses. */
  readonly past: number;
  readonly keyed: number;
  readonly poison: number;
  readonly fillers: readonly number[];
  /** Chance of a batch that changes its day from one event to the next. */
  readonly mixedDays: number;
}

export class Clients {
  readonly wishes: Wish[] = [];
  readonly #world: World;
  readonly #habits: Habits;
  readonly #pickProcess: () => SimulatedProcess | null;
  readonly #requests = new Map<SimulatedProcess, Set<Request>>();
  #made = 0;
  #sent = 0;
  #isUnreachable = false;

  constructor(world: World, habits: Habits, pickProcess: () => SimulatedProcess | null) {
    this.#world = world;
    this.#habits = habits;
    this.#pickProcess = pickProcess;
  }

  /** Makes up a request and sends it. */
  send(): void {
    const { random } = this.#world;
    const kind = random.pick(this.#habits.kinds);
    const isMany = kind === 'batch' || (kind === 'idempotent' && random.chance(0.6));
    const events = isMany ? random.int(1, this.#habits.mostEvents) : 1;
    const appId = random.int(1, APPS);
    const isMixed = kind === 'batch' && random.chance(this.#habits.mixedDays);
    const wishes = Array.from({ length: isMixed ? MIXED_EVENTS : events }, (_, index) =>
      isMixed
        ? this.#wish(appId, 'single', START - (index % 2) * DAY_MS)
        : (this.#known(appId, kind) ?? this.#wish(appId, kind)),
    );
    this.#made += 1;
    const digest = Buffer.from(`key ${this.#made}`);
    this.#try({ kind, wishes, digest, isMixed, tries: 0, isSettled: false });
  }

  /** An event with a key that another request has, too. */
  #known(appId: number, kind: Kind): Wish | null {
    const { random } = this.#world;
    if (kind === 'single' || !random.chance(REPEATED_EVENTS)) return null;
    const keyed = this.wishes.filter((wish) => wish.appId === appId && isKeyed(wish));
    return keyed.length === 0 ? null : random.pick(keyed);
  }

  #wish(appId: number, kind: Kind, day: number | null = null): Wish {
    const { random } = this.#world;
    const { past, keyed, poison, fillers } = this.#habits;
    const number = this.wishes.length + 1;
    const hasKey = kind === 'keyed' || (kind !== 'single' && day === null && random.chance(keyed));
    const daysAgo = random.chance(past) ? random.int(1, 6) : 0;
    const named = Math.floor(START + this.#world.now - daysAgo * DAY_MS - random.int(0, 100_000));
    const isDated = hasKey || (kind !== 'single' && daysAgo > 0);
    const filler = random.chance(poison) ? POISON_WORD : 'x'.repeat(random.pick(fillers));
    const wish: Wish = {
      number,
      appId,
      typeId: 10 * appId + random.int(1, TYPES),
      payload: `{"n":${number},"key":${hasKey},"filler":"${filler}"}`,
      createdAt: day ?? (isDated ? named : null),
      acknowledged: false,
      ids: new Set(),
      open: 0,
      refusals: new Set(),
    };
    this.wishes.push(wish);
    return wish;
  }

  /** They repeat nothing more. */
  goAway(): void {
    this.#isUnreachable = true;
  }

  #try(request: Request): void {
    if (this.#isUnreachable) return;
    const process = this.#pickProcess();
    request.tries += 1;
    if (process === null) {
      this.#again(request);
      return;
    }
    for (const wish of request.wishes) wish.open += 1;
    this.#world.as(process.owner, () => void this.#sendTo(process, request));
    // An impatient client: the same request is under way twice.
    if (mayRepeat(request) && request.tries < MOST_TRIES && this.#world.random.chance(0.15))
      this.#world.after(this.#world.random.between(0, 30), () => this.#try(request), null);
  }

  async #sendTo(process: SimulatedProcess, request: Request): Promise<void> {
    this.#sent += 1;
    const acceptedAt = Math.floor(START + this.#world.now);
    const events = request.wishes.map((wish, index) => eventOf(wish, acceptedAt, this.#sent, index));
    const underWay = this.#underWay(process);
    underWay.add(request);
    let outcomes: readonly Heard[];
    try {
      outcomes = await outcomesOf(process, request, events, acceptedAt);
      for (const [index, event] of events.entries())
        note(request.wishes[index], outcomes[index], process.stored.get(event) ?? 0);
    } catch (error) {
      this.#world.fail(error);
      return;
    }
    underWay.delete(request);
    this.#world.note(() => `answer to ${request.kind} ${request.wishes[0]?.number}: ${describe(outcomes)}`);
    const isFinal = outcomes.every((outcome) => !(outcome instanceof Rejection) || outcome.status < 500);
    if (isFinal) request.isSettled = true;
    else if (outcomes.every((outcome) => outcome !== CLOSED)) this.#again(request);
  }

  #underWay(process: SimulatedProcess): Set<Request> {
    const underWay = this.#requests.get(process) ?? new Set();
    this.#requests.set(process, underWay);
    return underWay;
  }

  /** Requests that a process has not answered. */
  unanswered(process: SimulatedProcess): number {
    return this.#underWay(process).size;
  }

  /** A client that may repeat does so; others are lost to it. */
  #again(request: Request): void {
    if (request.isSettled || request.tries >= MOST_TRIES || !mayRepeat(request)) return;
    this.#world.after(this.#world.random.between(...RETRY_MS), () => this.#try(request), null);
  }
}

/** What a client hears of an event: the id under which it is stored, or a refusal. */
type Heard = { readonly id: string } | Rejection;

/** Whether repeating the request stores nothing twice. */
function mayRepeat({ kind, wishes }: Request): boolean {
  return kind === 'idempotent' || wishes.every(isKeyed);
}

function isKeyed({ payload }: Pick<Wish, 'payload'>): boolean {
  return payload.includes('"key":true');
}

/** @param stored how often the event was reported as stored */
function note(wish: Wish | undefined, outcome: Heard | undefined, stored: number): void {
  if (wish === undefined || outcome === undefined)
    throw new Error('A request was answered without an outcome for each event.');
  if (stored > 1) throw new Error(`Event ${wish.number} was reported as stored ${stored} times.`);
  if (!(outcome instanceof Rejection)) {
    wish.acknowledged = true;
    wish.ids.add(outcome.id);
    wish.open -= 1;
    return;
  }
  if (stored > 0) throw new Error(`Event ${wish.number} was refused, and reported as stored.`);
  wish.refusals.add(`${outcome.reason}: ${outcome.details}`);
  if (outcome.reason !== 'outcomeUnknown') wish.open -= 1;
}

function describe(outcomes: readonly Heard[]): string {
  const counts = new Map<string, number>();
  for (const outcome of outcomes) {
    const name = outcome instanceof Rejection ? outcome.details : 'acknowledged';
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].map(([name, count]) => `${count} × ${name}`).join(', ');
}

function eventOf(wish: Wish, acceptedAt: number, sent: number, index: number): AcceptedEvent {
  const { number, appId, typeId, payload } = wish;
  const createdAt = wish.createdAt ?? acceptedAt;
  const hasKey = isKeyed(wish);
  const end = (hasKey ? number : sent * 0x1_0000 + index).toString(16).padStart(12, '0');
  return {
    id: `00000000-0000-${hasKey ? '8' : '7'}000-8000-${end}`,
    appId,
    typeId,
    createdAt,
    payload,
    source: { appId: `app_${appId}`, typeId: `typ_${typeId}`, typeName: `type ${typeId}` },
  };
}

async function outcomesOf(
  process: SimulatedProcess,
  { kind, digest, isMixed }: Request,
  events: readonly AcceptedEvent[],
  acceptedAt: number,
): Promise<readonly Heard[]> {
  const heard = (event: AcceptedEvent, outcome: WriteOutcome | undefined): Heard => {
    if (outcome === undefined) throw new Error('An event has no outcome.');
    if (outcome === 'repeated' && event.id.charAt(14) !== '8')
      throw new Error('A new event counts as repeated.');
    return outcome instanceof Rejection ? outcome : { id: event.id };
  };
  const { queues } = process;
  const [only] = events;
  if (kind === 'single' && only !== undefined) return [heard(only, await queues.add(only))];
  const accepted = inOrder(events, acceptedAt, isMixed);
  if (kind === 'idempotent') {
    const outcome = await queues.storeTogether(keyedEvents(accepted, digest, acceptedAt), accepted.past);
    if (outcome instanceof Rejection) return events.map(() => outcome);
    const results: Record<string, Result> = JSON.parse(String(outcome.body));
    return events.map(({ payload }) => {
      const result = results[numberIn(payload)];
      if (result === undefined) throw new Error('An answer lacks an event.');
      return 'id' in result ? result : new Rejection('invalidBody', result.refused);
    });
  }
  const outcomes = await queues.storeApart(accepted);
  const byEvent = new Map(accepted.accepted.map((event, index) => [event, outcomes[index]]));
  return events.map((event) => heard(event, byEvent.get(event)));
}

/** As the routes hand events on. A batch that changes its days is handed on as it is. */
function inOrder(events: readonly AcceptedEvent[], acceptedAt: number, isMixed: boolean): AcceptedEvents {
  const isPast = ({ createdAt }: AcceptedEvent): boolean => createdAt < startOfCurrentDay(acceptedAt);
  const accepted = isMixed ? events : events.toSorted((a, b) => a.createdAt - b.createdAt);
  return {
    accepted,
    past: isMixed ? 0 : accepted.filter(isPast).length,
    keyed: accepted.filter(({ id }) => id.charAt(14) === '8').length,
  };
}

function keyedEvents({ accepted }: AcceptedEvents, keyDigest: Buffer, acceptedAt: number): IdempotentRequest {
  const only = accepted.length === 1 ? accepted[0] : undefined;
  const answer = (refused: ReadonlyMap<AcceptedEvent, Rejection> = new Map()): KeptAnswer => ({
    status: 201,
    body: JSON.stringify(
      Object.fromEntries(
        accepted.map((event) => [numberIn(event.payload), resultOf(event, refused.get(event))]),
      ),
    ),
  });
  return {
    appId: accepted[0]?.appId ?? 0,
    identity: { keyDigest, bodyDigest: BODY },
    acceptedAt,
    events: accepted,
    answer: answer(),
    answerRepeated: () => answer(),
    answerWithout: (refused) => (only === undefined ? answer(refused) : (refused.get(only) ?? POISON)),
  };
}

/** What the answer to a request with an Idempotency-Key says of an event. */
type Result = { readonly id: string } | { readonly refused: string };

function resultOf({ id }: AcceptedEvent, refusal: Rejection | undefined): Result {
  return refusal === undefined ? { id } : { refused: refusal.details };
}

function numberIn(payload: string): string {
  return /"n":(\d+)/.exec(payload)?.[1] ?? '';
}
