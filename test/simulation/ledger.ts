/** What clients were told of their events, compared with what is stored. */
import { readSegment } from '../../src/ingest/journal/segment.ts';
import { dateOf, dayOf } from '../../src/storage/write/accepted-event.ts';
import { POISON } from '../../src/storage/write/failures.ts';
import { type Database, MINUTE, POISON_WORD, type Row } from './database.ts';
import type { Disk } from './disk.ts';

/** What a client wants to have stored, however often it sends that. */
export interface Wish {
  /** In the payload, by which it is found again. */
  readonly number: number;
  readonly appId: number;
  readonly typeId: number;
  readonly payload: string;
  /** Fixed where the client names the event; otherwise the service dates each try. */
  readonly createdAt: number | null;
  /** Answers of all tries. */
  acknowledged: boolean;
  /** Ids that were acknowledged; one, unless the service is wrong. */
  readonly ids: Set<string>;
  /** Tries without an answer, or with one that says that the event may be stored. */
  open: number;
  refusals: Set<string>;
}

export interface Allowances {
  /** Apps that were deleted while events were on their way. */
  readonly deletedApps: ReadonlySet<number>;
  /** Days for which no partition could be made at some time. */
  readonly impossibleDays: ReadonlySet<number>;
}

/** @throws where a promise is broken */
export function compare(
  wishes: readonly Wish[],
  database: Database,
  disk: Disk,
  { deletedApps, impossibleDays }: Allowances,
): void {
  const stored = byNumber(database.rows.values());
  const aside = setAside(disk);
  for (const wish of wishes) {
    if (deletedApps.has(wish.appId)) continue;
    checkRefusals(wish, impossibleDays);
    const rows = stored.get(wish.number) ?? [];
    const kept = aside.get(wish.number);
    const name = `Event ${wish.number}`;
    if (rows.length > 1) throw new Error(`${name} is stored ${rows.length} times.`);
    if (wish.ids.size > 1) throw new Error(`${name} was acknowledged under ${wish.ids.size} ids.`);
    const [row] = rows;
    if (row !== undefined) checkRow(name, wish, row);
    if (wish.acknowledged && row === undefined && !isExcused(kept, wish, impossibleDays))
      throw new Error(`${name} was acknowledged and is lost (${kept ?? 'found nowhere'}).`);
    if (wish.acknowledged || wish.open > 0) continue;
    if (row !== undefined)
      throw new Error(`${name} was refused (${[...wish.refusals].join()}) and is stored.`);
    if (kept !== undefined) throw new Error(`${name} was refused and kept for later: ${kept}.`);
  }
  compareCounts(database);
}

/** What says that the event itself is wrong must be true. */
function checkRefusals(
  { number, refusals, payload, createdAt }: Wish,
  impossibleDays: ReadonlySet<number>,
): void {
  for (const refusal of refusals) {
    if (!refusal.startsWith('invalidBody')) continue;
    const isTrue = refusal.endsWith(POISON.details)
      ? payload.includes(POISON_WORD)
      : createdAt !== null && impossibleDays.has(dayOf(createdAt));
    if (!isTrue) throw new Error(`Event ${number} is not wrong, and was refused: ${refusal}`);
  }
}

function checkRow(name: string, wish: Wish, row: Row): void {
  const [id] = wish.ids;
  if (id !== undefined && id !== row.id)
    throw new Error(`${name} was acknowledged as ${id}, stored as ${row.id}.`);
  if (row.payload !== wish.payload || row.appId !== wish.appId || row.typeId !== wish.typeId)
    throw new Error(`${name} was changed: ${JSON.stringify(row)}`);
}

/** Whether there is a good reason for what was acknowledged to be in quarantine. */
function isExcused(
  kept: string | undefined,
  { payload, createdAt }: Wish,
  impossibleDays: ReadonlySet<number>,
): boolean {
  if (kept === 'corrupt') return true;
  if (kept === 'refused') return payload.includes(POISON_WORD);
  if (kept === 'no-partition') return createdAt === null || impossibleDays.has(dayOf(createdAt));
  return false;
}

function byNumber(rows: Iterable<Row>): ReadonlyMap<number, Row[]> {
  const found = new Map<number, Row[]>();
  for (const row of rows) {
    const number = numberOf(row.payload);
    const others = found.get(number);
    if (others === undefined) found.set(number, [row]);
    else others.push(row);
  }
  return found;
}

function numberOf(payload: string): number {
  return Number(/"n":(\d+)/.exec(payload)?.[1]);
}

/** Events that the service has kept on the disk for the operator, and why. */
function setAside(disk: Disk): ReadonlyMap<number, string> {
  const found = new Map<number, string>();
  for (const [path, bytes] of disk.files()) {
    if (path.endsWith('.corrupt'))
      for (const { payload } of readSegment(bytes).batches.flat()) found.set(numberOf(payload), 'corrupt');
    if (!path.endsWith('quarantine.ndjson')) continue;
    for (const line of bytes.toString().split('\n')) {
      const parsed = parseLine(line);
      if (parsed !== null) found.set(numberOf(parsed.payload), parsed.reason);
    }
  }
  return found;
}

function parseLine(line: string): { readonly payload: string; readonly reason: string } | null {
  try {
    return JSON.parse(line);
  } catch {
    return null; // The disk has failed in the middle of it; it was not relied on.
  }
}

function compareCounts({ engine, rows, counted, marked }: Database): void {
  const expected = new Map<string, number>();
  for (const { appId, typeId, createdAt } of rows.values()) {
    const minute = Math.floor(createdAt / MINUTE) * MINUTE;
    const key = `${appId} ${typeId} ${minute}`;
    expected.set(key, (expected.get(key) ?? 0) + 1);
    if (engine === 'timescale' && !marked.has(minute))
      throw new Error(
        `A minute of ${dateOf(dayOf(minute))} has rows, and the aggregates are not told of it.`,
      );
  }
  if (engine === 'timescale') return;
  for (const key of new Set([...expected.keys(), ...counted.keys()]))
    if ((expected.get(key) ?? 0) !== (counted.get(key) ?? 0))
      throw new Error(`${key}: ${expected.get(key) ?? 0} rows, counted as ${counted.get(key) ?? 0}.`);
}
