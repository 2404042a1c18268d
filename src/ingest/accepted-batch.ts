/**
 * The steps between the events that a request has brought and their commit, in the order in which they may refuse one of
 * them: its type, the schema of its type, its time.
 */
import type { KeyObject } from 'node:crypto';
import type { EventType, EventTypes } from '../apps/event-type-lookup.ts';
import type { TypeReference } from '../apps/event-types.ts';
import type { SchemaMode } from '../apps/type-schemas.ts';
import { TimeSlice } from '../base/time-slice.ts';
import { Rejection } from '../errors.ts';
import { type AcceptedEvent, dayOf } from '../storage/write/accepted-event.ts';
import type { Outcomes, WriteOutcome } from '../storage/write/event-writer.ts';
import type { Result } from './batch-answer.ts';
import type { ByteLimitSteps } from './byte-limit.ts';
import { createEventIds, keyedEventId } from './event-id.ts';
import { refusalOfTime } from './event-time.ts';
import type { FirstTimes } from './first-times.ts';
import type { Events } from './formats/format.ts';
import type { BatchEvent } from './parse/batch-event.ts';
import type { PayloadChecks } from './payload-checks.ts';
import { startOfCurrentDay } from './queue/past-writer.ts';
import type { AcceptedEvents } from './queue/write-queues.ts';
import type { RetentionBoundary } from './retention-boundary.ts';

export interface AcceptSteps extends ByteLimitSteps {
  readonly eventTypes: EventTypes;
  readonly payloadChecks: PayloadChecks;
  readonly retentionBoundary: RetentionBoundary;
  readonly firstTimes: FirstTimes;
  /** Key of the digests that take the place of redacted values. */
  readonly redactionKey: KeyObject;
  /** A new event id for an event of this time. */
  readonly newEventId: (now: number) => string;
  readonly now: () => number;
}

/** Limit of days in one batch: each is a partition or a chunk, and each of those takes some locks. */
const MAX_DAYS = 1_000;

const TOO_MANY_DAYS = new Rejection(
  'invalidBody',
  `The events of a batch may be on at most ${MAX_DAYS} days.`,
);
export const OVERDUE = new Rejection('outcomeUnknown', 'The commit took too long: events may be stored.');
/** A batch whose events have been accepted, or refused one by one. */
export interface Batch extends AcceptedEvents {
  readonly appId: number;
  readonly acceptedAt: number;
  readonly types: Types;
  /** Whether payloads that are stored are checked against schemas that warn. */
  readonly warns: boolean;
  /** One for each event of the request, in its order: the result if it is stored. */
  readonly results: readonly Result[];
  /** The index in `results` of each accepted event. */
  readonly indexes: readonly number[];
  /** Public ids of the types, by internal ids. */
  readonly publicIds: ReadonlyMap<number, string>;
}

/** Accepts the events of an app. @returns the refusal of all of them if they are on too many days */
export async function acceptEvents(
  steps: AcceptSteps,
  appId: number,
  sent: Events,
): Promise<Batch | Rejection> {
  const types = await resolveTypes(steps.eventTypes, appId, sent);
  // Nothing behind this line sees payloads as they were sent.
  const redacted = await redactedEvents(steps, { appId, events: sent, types });
  const schemas = schemasOf(types);
  const events = schemas.has('refuse')
    ? await withoutViolations(steps, { appId, events: redacted, types })
    : redacted;
  return await accept(steps, { appId, events, types, warns: schemas.has('warn') });
}

/** The events of a batch with what the rules of their types leave of their payloads. */
async function redactedEvents(
  { accounts, redactionKey }: AcceptSteps,
  { appId, events, types }: { appId: number; events: Events; types: Types },
): Promise<Events> {
  const isRedacted = [...types.values()].some(
    (type) => !(type instanceof Rejection) && type.redaction !== null,
  );
  if (!isRedacted) return events;
  const slices = new TimeSlice(accounts.holderOf(appId));
  const redacted: (BatchEvent | Rejection)[] = [];
  for (const event of events) {
    const type = event instanceof Rejection ? undefined : types.get(event.type);
    const redaction = type === undefined || type instanceof Rejection ? null : type.redaction;
    redacted.push(
      redaction === null || event instanceof Rejection
        ? event
        : { ...event, payload: redaction.apply(event.payload, redactionKey) },
    );
    if (slices.isOverAfterStep) await slices.next();
  }
  return redacted;
}

/** How the schemas of a batch's types are meant; most batches have none. */
function schemasOf(types: Types): ReadonlySet<SchemaMode> {
  const modes = new Set<SchemaMode>();
  for (const type of types.values())
    if (!(type instanceof Rejection) && type.schema !== null) modes.add(type.schema.mode);
  return modes;
}

/** The events of a batch, with a refusal in place of each that violates the schema of its type. */
async function withoutViolations(
  { payloadChecks }: AcceptSteps,
  { appId, events, types }: { appId: number; events: Events; types: Types },
): Promise<Events> {
  const typed = events.map((event) => {
    const type = event instanceof Rejection ? event : types.get(event.type);
    return event instanceof Rejection || type === undefined || type instanceof Rejection
      ? null
      : { type, payload: event.payload };
  });
  const violations = await payloadChecks.refusalsOf(appId, typed);
  return events.map((event, index) => violations[index] ?? event);
}

/** Has the payloads checked that were stored, against schemas that warn. */
export function noteStored({ payloadChecks }: AcceptSteps, batch: Batch, outcomes: Outcomes): void {
  const { appId, types, warns } = batch;
  if (!warns) return;
  const byId = new Map<number, EventType>();
  for (const type of types.values()) if (!(type instanceof Rejection)) byId.set(type.id, type);
  for (const [index, { typeId, payload }] of batch.accepted.entries()) {
    const type = byId.get(typeId);
    if (type !== undefined && outcomes[index] === null) payloadChecks.note(appId, { type, payload });
  }
}

type Types = ReadonlyMap<TypeReference, EventType | Rejection>;

/** Looks up each type of the events once, all together: the lookups take turns with those of others. */
async function resolveTypes(eventTypes: EventTypes, appId: number, events: Events): Promise<Types> {
  const named = new Set<TypeReference>();
  for (const event of events) if (!(event instanceof Rejection)) named.add(event.type);
  const types = new Map<TypeReference, EventType | Rejection>();
  const waiting: Promise<unknown>[] = [];
  for (const reference of named) {
    const found = eventTypes.find(appId, reference);
    if (found instanceof Promise) waiting.push(found.then((type) => types.set(reference, type)));
    else types.set(reference, found);
  }
  await Promise.all(waiting);
  return types;
}

async function accept(
  steps: AcceptSteps,
  batch: { readonly appId: number; readonly events: Events; readonly types: Types; readonly warns: boolean },
): Promise<Batch | Rejection> {
  const { appId, events, types, warns } = batch;
  const slices = new TimeSlice(steps.accounts.holderOf(appId));
  const acceptedAt = steps.now();
  const isDated = events.some((event) => !(event instanceof Rejection) && event.createdAt !== null);
  const ids = [...types.values()].flatMap((type) => (type instanceof Rejection ? [] : [type.id]));
  const behind = steps.retentionBoundary.refusalOfNow(appId, ids, acceptedAt);
  const refusal = behind && (await behind);
  if (refusal !== null) return refusal;
  const boundary = isDated ? await steps.retentionBoundary.of(appId) : NO_BOUNDARY;
  // Ids begin with the time: ids of past events come from a generator of their own, in order of time.
  const newPastId = createEventIds();
  const results = new Array<Result>(events.length);
  const good: { readonly index: number; readonly event: BatchEvent; readonly type: EventType }[] = [];
  // entries() would make a pair for each event.
  let index = 0;
  for (const event of events) {
    const type = typeOf(event, types, acceptedAt, boundary);
    if (type instanceof Rejection) results[index] = type;
    // The cast: it has a type.
    else good.push({ index, event: steps.firstTimes.of(event as BatchEvent, type.source), type });
    index += 1;
    if (slices.isOverAfterStep) await slices.next();
  }
  if (isDated) good.sort((a, b) => (a.event.createdAt ?? acceptedAt) - (b.event.createdAt ?? acceptedAt));
  const accepted: AcceptedEvent[] = [];
  const now = startOfCurrentDay(acceptedAt);
  let past = 0;
  let keyed = 0;
  let days = 0;
  let day = Number.NaN;
  for (const { index: place, event, type } of good) {
    const createdAt = event.createdAt ?? acceptedAt;
    const { payload, key } = event;
    let id: string;
    if (key !== null) id = keyedEventId(createdAt, type.source, key);
    else id = event.createdAt === null ? steps.newEventId(createdAt) : newPastId(createdAt);
    if (key !== null) keyed += 1;
    const acceptedEvent = { id, appId, typeId: type.id, createdAt, payload, source: type.source };
    accepted.push(acceptedEvent);
    if (createdAt < now) past += 1;
    results[place] = acceptedEvent;
    if (dayOf(createdAt) !== day) days += 1;
    day = dayOf(createdAt);
    if (slices.isOverAfterStep) await slices.next();
  }
  if (days > MAX_DAYS) return TOO_MANY_DAYS;
  const publicIds = new Map<number, string>();
  for (const type of types.values()) if (!(type instanceof Rejection)) publicIds.set(type.id, type.publicId);
  const indexes = good.map(({ index: place }) => place);
  return { appId, acceptedAt, types, warns, accepted, past, keyed, results, indexes, publicIds };
}

const NO_BOUNDARY = (): number => 0;

/** The type of an event, or the first thing that is wrong with the event. */
function typeOf(
  event: BatchEvent | Rejection,
  types: Types,
  acceptedAt: number,
  boundary: (typeId: number) => number,
): EventType | Rejection {
  if (event instanceof Rejection) return event;
  const type = types.get(event.type);
  if (type === undefined) throw new Error('A type was not looked up.');
  if (type instanceof Rejection || event.createdAt === null) return type;
  return refusalOfTime(event.createdAt, acceptedAt, boundary(type.id)) ?? type;
}

/** @param index of an accepted event among them */
export type OutcomeOf = (event: AcceptedEvent, index: number) => WriteOutcome;

export const NONE_REPEATED: ReadonlySet<Result> = new Set();

export function repeatedOf(batch: Batch, outcomeOf: OutcomeOf): ReadonlySet<Result> {
  return new Set(batch.accepted.filter((event, index) => outcomeOf(event, index) === 'repeated'));
}

export function resultsOf(batch: Batch, outcomeOf: OutcomeOf): readonly Result[] {
  const results = [...batch.results];
  let at = 0;
  for (const event of batch.accepted) {
    const outcome = outcomeOf(event, at);
    const index = batch.indexes[at];
    at += 1;
    if (outcome instanceof Rejection && index !== undefined) results[index] = outcome;
  }
  return results;
}
