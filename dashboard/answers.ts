/** The shapes of the server's answers under /api, as far as the dashboard reads them. */
import type { Stat } from './measure.ts';

export interface User {
  readonly userId: string;
  readonly email: string;
  readonly emailVerified: boolean;
}

export interface Session {
  readonly user: User | null;
  /** How the first account is created: directly, or through the printed link; null: one exists. */
  readonly setup: 'open' | 'link' | null;
  readonly signup: 'first' | 'open' | 'closed';
  readonly mail: boolean;
  readonly version: string;
}

export type Role = 'owner' | 'maintainer' | 'viewer';

export interface AppRow {
  readonly appId: string;
  readonly name: string;
  readonly role: Role;
  readonly createdAt: string;
  /** Absent, like the others, while the database node that holds the app does not answer. */
  readonly today?: number;
  readonly total?: number;
  /** Counts of the last 24 hours, oldest first. */
  readonly sparkline?: readonly number[];
  readonly lastEventAt?: string | null;
}

export interface App {
  readonly appId: string;
  readonly name: string;
  readonly role: Role;
  readonly createdAt: string;
  readonly total: number;
  readonly firstEventAt: string | null;
  readonly lastEventAt: string | null;
}

export interface EventType {
  readonly typeId: string;
  readonly name: string;
  readonly createdAt: string;
  readonly count: number;
  readonly lastEventAt: string | null;
  /** Whether chart, list and completion leave it out until they are asked for it. */
  readonly hidden: boolean;
}

/** A path of payloads whose values are counted. */
export interface DeclaredField {
  /** In the grammar of filters. */
  readonly path: string;
  readonly kind: FieldKind;
  /** Null: of all types. */
  readonly typeId: string | null;
  readonly typeName: string | null;
  readonly createdAt: string;
  /** From then on its counts are complete; null: counting has not begun. */
  readonly completeFrom: string | null;
  /** Whether the time before is being counted. */
  readonly backfill: boolean;
  /** Events of that time that are not counted yet, where the server tells. */
  readonly eventsLeft?: number;
  readonly values: number;
  /** Since when further values are counted together; null: all have counts of their own. */
  readonly otherSince: string | null;
}

export type FieldKind = 'value' | 'number';

export interface DeclaredFields {
  readonly fields: readonly DeclaredField[];
  /** As many as an app may have. */
  readonly most: number;
}

/** What recent payloads contain at a path. */
export interface SeenField {
  readonly typeId: string;
  readonly typeName: string;
  /** In the grammar of filters. */
  readonly path: string;
  readonly events: number;
  /** Of the type's events in the sample, from 0 to 1. */
  readonly share: number;
  readonly kinds: readonly { readonly kind: string; readonly events: number }[];
  readonly kindChange: { readonly earlier: string; readonly recent: string } | null;
  /** JSON texts, as they were sent. */
  readonly examples: readonly string[];
  readonly lastSeenAt: string;
}

export interface Catalog {
  readonly fields: readonly SeenField[];
  readonly truncated: boolean;
  readonly sample: { readonly events: number; readonly from: string | null; readonly to: string | null };
}

/** The values of a field among events that pass a filter. */
export interface FieldValues {
  /** Most events first. A number that a double cannot hold is a text. */
  readonly values: readonly { readonly value: string | number | boolean | null; readonly events: number }[];
  /** Events with other values, several or none. */
  readonly otherEvents: number;
  /** Whether all events that pass are counted, and not a sample of the newest. */
  readonly exact: boolean;
  /** The sample; null where counts have answered. */
  readonly sample: { readonly events: number } | null;
}

/** What the checks of a type's JSON Schema have found since it was set. */
export interface SchemaSummary {
  readonly typeId: string;
  readonly mode: SchemaMode;
  readonly setAt: string;
  /** Since when payloads are not checked, and why; null while they are. */
  readonly suspendedAt: string | null;
  readonly suspendedReason: string | null;
  readonly checked: number;
  readonly violations: number;
  readonly unchecked: number;
  readonly lastViolation: { readonly path: string; readonly message: string; readonly at: string } | null;
}

export type SchemaMode = 'warn' | 'refuse';

export interface TypeSchema extends SchemaSummary {
  readonly schema: object;
}

export interface LoggingToken {
  /** Null where it is sealed under another SECRET. */
  readonly loggingToken: string | null;
  readonly createdAt: string;
  readonly previousValidUntil: string | null;
}

export interface ResourceToken {
  readonly tokenId: string;
  readonly name: string;
  readonly appIds: readonly string[];
  /** Null: created on the command line. */
  readonly createdBy: { readonly userId: string; readonly email: string } | null;
  readonly createdAt: string;
  readonly expiresAt: string | null;
  readonly revokedAt: string | null;
  readonly lastUsedAt: string | null;
}

export interface Member {
  readonly userId: string;
  readonly email: string;
  /** False where the account came by a link and never verified its address. */
  readonly emailVerified: boolean;
  readonly role: Role;
  readonly addedAt: string;
}

export interface Invitation {
  readonly invitationId: string;
  readonly email: string;
  readonly role: Role;
  readonly createdAt: string;
  readonly expiresAt: string;
}

export interface AuditEntry {
  readonly entryId: string | number;
  readonly at: string;
  readonly actor: string;
  readonly action: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/** A view of an app's page under a name. */
export interface SavedView {
  readonly viewId: string;
  readonly name: string;
  /** The query of the page's address, without the question mark. */
  readonly search: string;
  readonly savedBy: string | null;
  readonly savedAt: string;
}

export type AnnotationKind = 'deployment' | 'incident' | 'note';

/** What happened to an app at a time. */
export interface Annotation {
  readonly annotationId: string;
  readonly kind: AnnotationKind;
  readonly at: string;
  /** Null: it happened at one instant. */
  readonly until: string | null;
  readonly text: string;
  /** Null: a logging token wrote it. */
  readonly createdBy: string | null;
}

/** What an app uses, and its limits. */
export interface Usage {
  /** Requests per minute of the app and of a resource token; 0: no limit. */
  readonly limits: { readonly create: number; readonly read: number };
  /** Of the last hour, the current one last. */
  readonly minutes: readonly { readonly at: string; readonly accepted: number; readonly refused: number }[];
  readonly refused: readonly { readonly code: string; readonly requests: number }[];
  /** Events that were refused inside of accepted requests. */
  readonly refusedEvents: readonly { readonly code: string; readonly events: number }[];
  /** UTC days, today last. */
  readonly days: readonly { readonly day: string; readonly events: number; readonly bytes: number }[];
  readonly tokens: readonly {
    readonly tokenId: string;
    readonly name: string;
    readonly lastUsedAt: string | null;
    readonly reads: number;
    readonly refused: number;
  }[];
}

/** Columns: `starts[i]` goes with `counts[i]` of every type. */
export interface Series {
  readonly bucket: string;
  readonly timezone: string;
  /** Milliseconds since the Unix epoch. The first bucket may begin before the interval that is counted. */
  readonly starts: readonly number[];
  /** Where the last bucket ends. */
  readonly end: number;
  /** What is counted; buckets that reach beyond it are partial. */
  readonly interval: { readonly from: number; readonly until: number };
  /** The path of the field whose values the lines are; null: they are event types. */
  readonly by: string | null;
  readonly lines: readonly {
    /** The type's identifier, or the value as JSON. */
    readonly key: string;
    readonly name: string;
    readonly counts: readonly number[];
    readonly total: number;
    /** A stable number of the line: types and values are numbered in order of creation. */
    readonly number: number;
  }[];
  readonly all: readonly number[];
  /** Sum of what is beyond the top lines. */
  readonly other: readonly number[] | null;
  readonly before: { readonly all: number; readonly byKey: Readonly<Record<string, number>> };
  /** Retention boundary: older events are removed, their counts kept. */
  readonly countsOnlyBefore: number | null;
  /** The same counts of an earlier interval; null where none was asked for or where so fine ones are not kept. */
  readonly compared: Compared | null;
  /** The types that are hidden, as one line, in no other number; absent or null: none are, or types were chosen. */
  readonly hidden?: {
    readonly types: number;
    readonly counts: readonly number[];
    readonly before: number;
    readonly compared: readonly number[] | null;
  } | null;
  /** Whether the conditions on payloads are in the counts. */
  readonly isFiltered?: boolean;
  /** Whether it was counted from rows: then nothing is known of what is before the interval. */
  readonly isScanned?: boolean;
}

/** Events by bucket: `counts[i]` of them in the bucket of index `at[i]`; none in others. */
interface SparseColumn {
  readonly at: readonly number[];
  readonly counts: readonly number[];
}

/** A part of a chart that is counted from rows, newest first: the sum of all parts is the chart. */
export interface ScanPart
  extends Pick<Series, 'bucket' | 'timezone' | 'starts' | 'end' | 'interval' | 'countsOnlyBefore'> {
  /** By type, or by value of a field. The number is that of a type. */
  readonly lines: readonly (SparseColumn & {
    readonly key: string;
    readonly name: string;
    readonly number: number | null;
  })[];
  /** By value: events without one value in the field. */
  readonly rest: SparseColumn;
  readonly hidden: (SparseColumn & { readonly types: number }) | null;
  /** Whether there are more values than are told apart. */
  readonly hasTooMany: boolean;
  /** Rows that were looked at. */
  readonly looked: number;
  /** Where the next part begins; null where this was the last. */
  readonly next: string | null;
  /** Everything newer has been looked at, in milliseconds since the Unix epoch. */
  readonly searchedUntil: number;
}

/** Statistics of a number field: columns, as those of {@link Series}. */
export interface NumberStats {
  readonly of: string;
  /** Whether it was counted, and not read from rows. */
  readonly counted: boolean;
  readonly bucket: string;
  readonly starts: readonly number[];
  readonly stats: Readonly<Record<Stat, Values>>;
  /** Of the whole interval. */
  readonly overall: Readonly<Record<Stat, number | null>> & { readonly count: number };
  /** Events that no statistic includes: with several numbers, or with a number out of range. */
  readonly leftOut: { readonly several: number; readonly unrepresentable: number };
}

/** A number for each bucket; null where there is none. */
type Values = readonly (number | null)[];

export interface Compared {
  readonly starts: readonly number[];
  readonly all: readonly number[];
  readonly byKey: Readonly<Record<string, readonly number[]>>;
}
