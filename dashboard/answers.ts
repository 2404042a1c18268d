/** The shapes of the server's answers under /api, as far as the dashboard reads them. */

export interface User {
  readonly userId: string;
  readonly email: string;
  readonly emailProved: boolean;
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
  readonly today: number;
  readonly total: number;
  /** Counts of the last 24 hours, oldest first. */
  readonly sparkline: readonly number[];
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
  /** False where the account came by a link and never confirmed its address. */
  readonly emailProved: boolean;
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

/** What an app uses, beside what it may. */
export interface Usage {
  /** Requests per minute of the app and of a resource token; 0: no limit. */
  readonly limits: { readonly create: number; readonly read: number };
  /** Of the last hour, the current one last. */
  readonly minutes: readonly { readonly at: string; readonly accepted: number; readonly refused: number }[];
  readonly refused: readonly { readonly code: string; readonly requests: number }[];
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
  readonly types: readonly {
    readonly typeId: string | null;
    readonly name: string;
    readonly counts: readonly number[];
    readonly total: number;
    /** A number that the type keeps: types of an app are numbered in the order in which they were created. */
    readonly number: number;
  }[];
  readonly all: readonly number[];
  /** Sum of the types beyond the top ones. */
  readonly other: readonly number[] | null;
  readonly before: { readonly all: number; readonly byType: Readonly<Record<string, number>> };
  /** Retention boundary: older events are removed, their counts kept. */
  readonly countsOnlyBefore: number | null;
  /** The same counts of an earlier interval; null where none was asked for or where so fine ones are not kept. */
  readonly compared: Compared | null;
  /** Whether the conditions on payloads are in the counts. */
  readonly isFiltered?: boolean;
}

export interface Compared {
  readonly starts: readonly number[];
  readonly all: readonly number[];
  readonly byType: Readonly<Record<string, readonly number[]>>;
}
