/** What the payloads of a sample have in common: the paths of each event type, with kinds and examples. */
import type { SeenField } from '../../api-types/answers.ts';
import { ownText } from '../../base/own-text.ts';
import { TimeSlice } from '../../base/time-slice.ts';
import type { StoredEvent } from '../../storage/read/page-request.ts';
import { KINDS, type Kind, visitPaths } from './payload-paths.ts';

export interface CatalogField extends Omit<SeenField<Date>, 'typeName' | 'declaredAs' | 'unit' | 'decimals'> {
  /** By how many events have a value of the kind, most first. */
  readonly kinds: readonly { readonly kind: Kind; readonly events: number }[];
  /** The kind that most earlier events of the sample have, and the one that most recent ones have; null if they are the same. */
  readonly kindChange: { readonly earlier: Kind; readonly recent: Kind } | null;
}

export interface Catalog {
  readonly fields: readonly CatalogField[];
  /** True where there are more paths than are listed. */
  readonly isTruncated: boolean;
}

/** Paths of one type, and of all types together. */
const MAX_PATHS_OF_TYPE = 200;
const MAX_PATHS = 1_000;
const MAX_EXAMPLES = 3;
/** Longer texts are no examples. */
const MAX_EXAMPLE = 100;

/** @param events newest first */
export async function catalogOf(events: readonly StoredEvent[]): Promise<Catalog> {
  const sampled = new Map<string, number>();
  for (const { typeId } of events) sampled.set(typeId, (sampled.get(typeId) ?? 0) + 1);
  const catalog = new Builder(sampled);
  const slices = new TimeSlice();
  for (const event of events) {
    catalog.add(event);
    if (slices.isOver) await slices.next();
  }
  return { fields: catalog.fields(), isTruncated: catalog.isTruncated };
}

/** Events that have a value of a kind. */
interface KindCount {
  recent: number;
  earlier: number;
  /** Number of the last event that was counted. */
  counted: number;
}

interface Entry {
  readonly typeId: string;
  readonly path: string;
  readonly lastSeenAt: Date;
  events: number;
  counted: number;
  readonly kinds: Map<Kind, KindCount>;
  readonly examples: Set<string>;
}

class Builder {
  isTruncated = false;
  readonly #sampled: ReadonlyMap<string, number>;
  /** By type, then by path. */
  readonly #types = new Map<string, { events: number; readonly entries: Map<string, Entry> }>();
  #paths = 0;
  #event = 0;

  /** @param sampled the number of events of each type */
  constructor(sampled: ReadonlyMap<string, number>) {
    this.#sampled = sampled;
  }

  add({ typeId, createdAt, payload }: StoredEvent): void {
    const type = this.#types.get(typeId) ?? { events: 0, entries: new Map<string, Entry>() };
    this.#types.set(typeId, type);
    this.#event += 1;
    type.events += 1;
    const isRecent = 2 * type.events <= (this.#sampled.get(typeId) ?? 0) + 1;
    visitPaths(payload, (path, kind, text) => {
      const entry =
        type.entries.get(path) ?? this.#newEntry(type.entries, { typeId, path, lastSeenAt: createdAt });
      if (entry !== null) this.#count(entry, { kind, text, isRecent });
    });
  }

  /** In order of types, as they were met, and of paths by how often they occur. */
  fields(): CatalogField[] {
    return [...this.#types.values()].flatMap(({ events, entries }) =>
      [...entries.values()].toSorted((a, b) => b.events - a.events).map((entry) => fieldOf(entry, events)),
    );
  }

  #newEntry(entries: Map<string, Entry>, made: Pick<Entry, 'typeId' | 'path' | 'lastSeenAt'>): Entry | null {
    if (entries.size >= MAX_PATHS_OF_TYPE || this.#paths >= MAX_PATHS) {
      this.isTruncated = true;
      return null;
    }
    const entry: Entry = { ...made, events: 0, counted: 0, kinds: new Map(), examples: new Set() };
    entries.set(made.path, entry);
    this.#paths += 1;
    return entry;
  }

  #count(entry: Entry, { kind, text, isRecent }: { kind: Kind; text: string; isRecent: boolean }): void {
    if (entry.counted !== this.#event) entry.events += 1;
    entry.counted = this.#event;
    const count = entry.kinds.get(kind) ?? { recent: 0, earlier: 0, counted: 0 };
    if (count.counted !== this.#event) count[isRecent ? 'recent' : 'earlier'] += 1;
    count.counted = this.#event;
    entry.kinds.set(kind, count);
    const isExample = text !== '' && kind !== 'null' && text.length <= MAX_EXAMPLE;
    if (isExample && entry.examples.size < MAX_EXAMPLES) entry.examples.add(ownText(text));
  }
}

function fieldOf(entry: Entry, sampled: number): CatalogField {
  const { typeId, path, events, kinds, examples, lastSeenAt } = entry;
  const counted = KINDS.flatMap((kind) => {
    const count = kinds.get(kind);
    return count === undefined ? [] : [{ kind, events: count.recent + count.earlier }];
  });
  return {
    ...{ typeId, path, events, lastSeenAt },
    share: events / sampled,
    kinds: counted.toSorted((a, b) => b.events - a.events),
    kindChange: changeOf(kinds),
    examples: [...examples],
  };
}

/** Null values say nothing of a kind. */
function changeOf(kinds: ReadonlyMap<Kind, KindCount>): CatalogField['kindChange'] {
  const earlier = mostFrequent(kinds, 'earlier');
  const recent = mostFrequent(kinds, 'recent');
  return earlier === null || recent === null || earlier === recent ? null : { earlier, recent };
}

function mostFrequent(kinds: ReadonlyMap<Kind, KindCount>, half: 'recent' | 'earlier'): Kind | null {
  let found: Kind | null = null;
  let most = 0;
  for (const [kind, count] of kinds) {
    if (kind === 'null' || count[half] <= most) continue;
    found = kind;
    most = count[half];
  }
  return found;
}
