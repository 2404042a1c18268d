/**
 * The shapes of the service's own answers. Handlers satisfy them (`done` in src/http/data.ts), the dashboard reads them, and the
 * API's description has their fields. Times are ISO 8601 in UTC, unless they are said to be milliseconds; in the service they are dates,
 * where a shape has a `Time`.
 */

import type { MeasureStat } from '../base/measures.ts';
import type { Permission, Role } from '../base/roles.ts';
import type { SearchedBy } from '../base/searched-by.ts';
import type { WebhookFormat } from '../base/webhook-formats.ts';

export type { MeasureStat } from '../base/measures.ts';
export type { Role } from '../base/roles.ts';

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
  /** Null: there is no issuer. */
  readonly oidc: OidcShown | null;
  readonly version: string;
}

/** Sign-in at an OIDC issuer, as the page offers it. */
export interface OidcShown {
  /** Text of the button, after "Sign in with". */
  readonly name: string;
  /** Whether passwords are for break-glass accounts alone. */
  readonly only: boolean;
  /** Whether the issuer answered the last time. */
  readonly available: boolean;
}

/** The account's identity at the issuer. */
export interface IdentityState {
  readonly issuer: string;
  readonly joined: boolean;
}

export interface AppRow {
  readonly appId: string;
  readonly name: string;
  readonly role: Role;
  readonly createdAt: string;
  /** Since when the operator has suspended the app; null: it is not suspended. */
  readonly suspendedAt: string | null;
  /** Absent, like the others, while the app is suspended, and while the database node that holds it does not answer. */
  readonly today?: number;
  readonly total?: number;
  /** Counts of the last 24 hours, oldest first. */
  readonly sparkline?: readonly number[];
  readonly lastEventAt?: string | null;
}

export interface AppList {
  readonly apps: readonly AppRow[];
}

/** An app that a resource token reads. */
export type ReadableApp = Pick<App, 'appId' | 'name' | 'createdAt'>;

export interface ReadableApps {
  readonly apps: readonly ReadableApp[];
}

export interface CreatedApp {
  readonly appId: string;
  readonly name: string;
  readonly loggingToken: string;
}

export interface AppReference {
  readonly appId: string;
}

export interface App {
  readonly appId: string;
  readonly name: string;
  readonly role: Role;
  /** What the role may do. */
  readonly may: readonly Permission[];
  readonly createdAt: string;
  readonly total: number;
  readonly firstEventAt: string | null;
  readonly lastEventAt: string | null;
  /** Whether requests with one of its tokens were refused in the last hour. */
  readonly refusedLately: boolean;
}

export interface EventType {
  readonly typeId: string;
  readonly name: string;
  readonly createdAt: string;
  readonly count: number;
  readonly lastEventAt: string | null;
  /** Whether chart, list and completion leave it out until they are asked for it. */
  readonly hidden: boolean;
  /** Whether charts mark each of its events, as an annotation. */
  readonly annotation: boolean;
}

/** What has changed of a type. */
export interface ChangedType {
  readonly typeId: string;
  readonly name?: string | undefined;
  readonly hidden?: boolean | undefined;
  readonly annotation?: boolean | undefined;
}

export interface EventTypeList {
  readonly types: readonly EventType[];
}

/** Counts of the last 24 hours by public id of the type, oldest first. */
export interface TypeActivity {
  readonly activity: Readonly<Record<string, readonly number[]>>;
}

/** A path of payloads whose values are counted. */
export interface DeclaredField<Time = string> {
  /** In the grammar of filters. */
  readonly path: string;
  readonly kind: FieldKind;
  /** Another path by whose values it is counted apart, in the grammar of filters; null: none. */
  readonly by: string | null;
  /** Null: of all types. */
  readonly typeId: string | null;
  readonly typeName: string | null;
  readonly createdAt: Time;
  /** From then on its counts are complete; null: counting has not begun. */
  readonly completeFrom: Time | null;
  /** Whether the time before is being counted. */
  readonly backfill: boolean;
  /** Events of that time that are not counted yet; null: not known. */
  readonly eventsLeft?: number | null;
  readonly values: number;
  /** Since when further values are counted together; null: all have counts of their own. */
  readonly otherSince: Time | null;
  /** How its numbers are shown: what they are of, and digits after the decimal point; null: not said. */
  readonly unit: string | null;
  readonly decimals: number | null;
}

export type FieldKind = 'value' | 'number' | 'distinct';

export interface DeclaredFields {
  readonly fields: readonly DeclaredField[];
  /** As many as an app may have. */
  readonly most: number;
}

/** What recent payloads contain at a path. */
export interface SeenField<Time = string> {
  readonly typeId: string;
  readonly typeName: string;
  /** In the grammar of filters. */
  readonly path: string;
  readonly events: number;
  /** Share of the type's events in the sample, from 0 to 1. */
  readonly share: number;
  readonly kinds: readonly { readonly kind: string; readonly events: number }[];
  readonly kindChange: { readonly earlier: string; readonly recent: string } | null;
  /** JSON texts, as they were sent. */
  readonly examples: readonly string[];
  /** The kinds with which the app has declared the field, for this type or for all. */
  readonly declaredAs: readonly FieldKind[];
  /** How its numbers are shown, where a declaration says so. */
  readonly unit: string | null;
  readonly decimals: number | null;
  readonly lastSeenAt: Time;
}

export interface FieldCatalog {
  readonly fields: readonly SeenField[];
  readonly truncated: boolean;
  readonly sample: { readonly events: number; readonly from: string | null; readonly to: string | null };
}

/** The values of a field among events that pass a filter. */
export interface FieldValues {
  /** Most events first. A number that a double cannot hold is a text, and `valueIsNumber` says so. */
  readonly values: readonly {
    readonly value: string | number | boolean | null;
    readonly valueIsNumber?: true;
    readonly events: number;
  }[];
  /** Events with other values, several or none. */
  readonly otherEvents: number;
  /** Whether all events that pass are counted, and not a sample of the newest. */
  readonly exact: boolean;
  /** The sample; null where counts have answered. */
  readonly sample: {
    readonly events: number;
    readonly from: string | null;
    readonly to: string | null;
  } | null;
}

/** What the checks of a type's JSON Schema have found since it was set. */
export interface SchemaSummary<Time = string> {
  readonly typeId: string;
  readonly mode: SchemaMode;
  readonly setAt: Time;
  /** Since when payloads are not checked, and why; null while they are. */
  readonly suspendedAt: Time | null;
  readonly suspendedReason: string | null;
  readonly checked: number;
  readonly violations: number;
  readonly unchecked: number;
  readonly lastViolation: { readonly path: string; readonly message: string; readonly at: Time } | null;
}

export type SchemaMode = 'warn' | 'refuse';

export interface SchemaList {
  readonly schemas: readonly SchemaSummary[];
}

export interface TypeSchema extends SchemaSummary {
  readonly schema: object;
}

export interface LoggingToken {
  /** Null where it is sealed under another SECRET. */
  readonly loggingToken: string | null;
  /** Null: the app has none. */
  readonly createdAt: string | null;
  readonly previousValidUntil: string | null;
}

/** The apps that wait in the bin. */
export interface RemovedAppList<Time = string> {
  readonly apps: readonly {
    readonly appId: string;
    readonly name: string;
    readonly removedAt: Time;
    /** When it is deleted with its events and counts. */
    readonly erasedAt: Time;
  }[];
}

/** A program that writes an app's events, with a logging token of its own. */
export interface Producer<Time = string> extends ListedToken<Time> {
  /** To the minute; null: never. */
  readonly firstUsedAt: Time | null;
  readonly lastUsedAt: Time | null;
  /** Events of the last full minute. */
  readonly eventsPerMinute: number;
  /** Refused requests of the last hour. */
  readonly refused: number;
  /** Until when an earlier token of it is accepted; null: there is none. */
  readonly previousValidUntil: Time | null;
}

export interface ProducerList {
  readonly producers: readonly Producer[];
}

export interface NewProducer {
  readonly tokenId: string;
  readonly name: string;
  /** Null where another SECRET sealed it. */
  readonly loggingToken: string | null;
}

/** What all tokens have in lists. */
interface ListedToken<Time> {
  readonly tokenId: string;
  readonly name: string;
  /** Null: created on the command line. */
  readonly createdBy: { readonly userId: string; readonly email: string } | null;
  readonly createdAt: Time;
  readonly revokedAt: Time | null;
  /** Until when this user can undo its revocation; absent: that is not possible. */
  readonly restorableUntil?: Time;
}

export interface ResourceToken<Time = string> extends ListedToken<Time> {
  readonly appIds: readonly string[];
  readonly expiresAt: Time | null;
  readonly lastUsedAt: Time | null;
}

export interface ResourceTokenList {
  readonly tokens: readonly ResourceToken[];
}

/** A key that web pages write events with. */
export interface BrowserKey<Time = string> extends ListedToken<Time> {
  /** Names of the event types that it may write. */
  readonly types: readonly string[];
  /** Origins of the pages that may use it. */
  readonly origins: readonly string[];
  /** The key's own text, which is no secret; null where another SECRET sealed it. */
  readonly browserKey: string | null;
}

export interface BrowserKeyList {
  readonly keys: readonly BrowserKey[];
}

export interface NewResourceToken {
  readonly tokenId: string;
  /** Shown this once. */
  readonly resourceToken: string;
}

export interface Member<Time = string> {
  readonly userId: string;
  readonly email: string;
  /** False where the account came by a link and never verified its address. */
  readonly emailVerified: boolean;
  readonly role: Role;
  /** The group of the issuer that gives the role; null: a person gave it. */
  readonly byGroup: string | null;
  readonly addedAt: Time;
}

export interface Invitation<Time = string> {
  readonly invitationId: string;
  readonly email: string;
  readonly role: Role;
  readonly createdAt: Time;
  readonly expiresAt: Time;
}

export interface MemberList {
  readonly members: readonly Member[];
  readonly invitations: readonly Invitation[];
}

/** One answer for every address: an account that has verified it has the app at once, any other needs the link. */
export interface NewMember {
  readonly invited: true;
  readonly link: string;
  readonly mailed: boolean;
}

/** What a removed member had made. */
export interface MemberRemoval {
  readonly revokedTokens: readonly { readonly tokenId: string; readonly name: string }[];
  readonly keptTokens: readonly { readonly tokenId: string; readonly name: string }[];
  /** Disabled. */
  readonly endedWebhooks: readonly { readonly webhookId: string; readonly url: string }[];
  readonly keptWebhooks: readonly { readonly webhookId: string; readonly url: string }[];
  /** They do not tell their Alertmanager any more. */
  readonly endedAlerts: readonly { readonly alertId: string; readonly name: string }[];
  readonly keptAlerts: readonly { readonly alertId: string; readonly name: string }[];
}

/** An invitation as its link shows it. */
export interface InvitationDetails {
  readonly appName: string;
  readonly email: string;
  readonly role: Role;
}

/** A sign-up: the account, or a message that was sent to its address. */
export interface NewAccount {
  readonly user?: User;
  readonly checkMail?: true;
  /** The app of the invitation. */
  readonly appId?: string;
}

export interface VerificationDetails {
  readonly email: string;
  /** True for a pending sign-up: the password verifies that the owner of the mailbox is the one who signed up. */
  readonly needsPassword: boolean;
}

/** The first step of a sign-in: it is complete, or its challenge needs a code. */
export type SignInStep = { readonly user: User } | { readonly challenge: string };

/** A sign-in by a code. */
export interface CodeSignIn {
  readonly user: User;
  readonly recoveryCodesLeft: number;
  /** Entered since the last right code: those of another person show that the password is known. */
  readonly wrongCodes: number;
}

export interface ListedSession<Time = string> {
  readonly sessionId: string;
  /** "Firefox on Linux"; null: an earlier release did not store it. */
  readonly device: string | null;
  readonly address: string | null;
  readonly createdAt: Time;
  /** Exact to some minutes. */
  readonly lastUsedAt: Time;
  readonly isCurrent: boolean;
}

export interface SessionList {
  readonly sessions: readonly ListedSession[];
}

export interface EndedSessions {
  /** How many. */
  readonly ended: number;
}

export interface SecondFactorState<Time = string> {
  /** Null: sign-ins need no code. */
  readonly enabledAt: Time | null;
  readonly recoveryCodesLeft: number;
  /** After too many wrong codes: until a recovery code is used, codes of the authenticator are refused. */
  readonly recoveryCodeNeeded: boolean;
}

/** A second factor that is to be confirmed by a code. */
export interface Enrollment {
  /** In base32, for typing. */
  readonly secret: string;
  readonly uri: string;
  /** The path of an SVG, and its width and height in units of it. */
  readonly qr: { readonly size: number; readonly path: string };
}

export interface NewRecoveryCodes {
  readonly recoveryCodes: readonly string[];
}

export interface AuditPage {
  readonly entries: readonly AuditEntry[];
  readonly hasMore: boolean;
}

export interface AuditEntry {
  readonly entryId: number;
  readonly at: string;
  readonly actor: string;
  readonly action: string;
  readonly details: Readonly<Record<string, unknown>>;
  /** What happened. Of an app it goes on after the actor's name; of an account it is a sentence of its own. */
  readonly text: string;
}

/** A view of an app's page under a name. */
export interface SavedView<Time = string> {
  readonly viewId: string;
  readonly name: string;
  /** The query of the page's address, without the question mark. */
  readonly search: string;
  readonly savedBy: string | null;
  readonly savedAt: Time;
}

export interface SavedViewList {
  readonly views: readonly SavedView[];
}

export interface BoardReference {
  readonly boardId: string;
}

/** A saved view on a board. */
export type BoardView = Pick<SavedView, 'viewId' | 'name' | 'search'>;

/** Saved views on one page. */
export interface Board extends BoardReference {
  readonly name: string;
  /** In their order. Fewer than two where views were removed since. */
  readonly views: readonly BoardView[];
}

export interface BoardList {
  readonly boards: readonly Board[];
}

/** A view of a board with its numbers; all charts are of one snapshot. */
export interface BoardChart extends BoardView {
  readonly series: Series | null;
  /** The events that are a part of the others, for a ratio. */
  readonly part: Series | null;
  /** The name of their type; null: they are those that meet a condition. */
  readonly partType: string | null;
  /** The statistics of a field, for a statistic. */
  readonly numbers: NumberStats | null;
  /** Its own, as addresses have it, where each chart has its own; null: all have one. */
  readonly range: string | null;
  /** Why there is nothing to show; null: there is. */
  readonly problem: string | null;
}

export interface BoardData extends BoardReference {
  readonly name: string;
  readonly charts: readonly BoardChart[];
  /** What all charts mark: annotations, and the newest events of the types that are shown as annotations. */
  readonly annotations: readonly Annotation[];
  readonly marks: readonly EventMark[];
}

/** A value, or an event type, whose share of a part of a range differs from that of the rest. */
export interface Difference {
  /** Null: the event type. */
  readonly path: string | null;
  /** The id of a type, or the JSON of a value. */
  readonly key: string;
  readonly name: string;
  /** Events in the part and in the rest, and which share of these they are. */
  readonly inPart: number;
  readonly inRest: number;
  readonly partShare: number;
  readonly restShare: number;
}

export interface Explanation {
  /** What differs most, most first. */
  readonly differences: readonly Difference[];
  /** Whether some fields were compared by samples. */
  readonly isSample: boolean;
  /** Fields that were looked through. */
  readonly fields: number;
}

/** Events of an interval, and of the one before it; null where its counts are not kept. */
export interface NumberAndBefore {
  readonly total: number;
  readonly before: number | null;
}

/** A type or a value whose number differs from that of the week before. */
export interface MovedLine {
  /** Null: an event type. */
  readonly path: string | null;
  /** The id of a type, or the JSON of a value. */
  readonly key: string;
  readonly name: string;
  readonly counts: readonly number[];
  readonly total: number;
  readonly before: number;
}

export interface SilentType {
  readonly typeId: string;
  readonly name: string;
  /** Since its last event. */
  readonly hours: number;
  /** Events that it sent at the same hours of the week before. */
  readonly missed: number;
}

export interface Overview {
  readonly hour: NumberAndBefore;
  readonly day: NumberAndBefore;
  readonly week: NumberAndBefore;
  /** The week by the hour. */
  readonly byHour: readonly number[];
  /** Types that sent something in the week, and in the week before; of the most frequent ones, where it is not the whole. */
  readonly types: { readonly sent: number; readonly before: number; readonly isWhole: boolean };
  readonly moved: readonly MovedLine[];
  readonly silent: readonly SilentType[];
  readonly annotations: readonly Pick<Annotation, 'annotationId' | 'at' | 'text'>[];
}

/** A view or a board for anyone with its link, which is not in the list. */
export interface ShareEntry<Time = string> {
  readonly shareId: string;
  /** Null: it is of a board. */
  readonly viewId: string | null;
  readonly boardId: string | null;
  /** Name of the view or the board. */
  readonly name: string;
  /** As addresses of pages have it: `7d` moves, two instants stay. */
  readonly range: string;
  readonly timezone: string;
  /** Conditions that all charts of a board have. */
  readonly filters: readonly string[];
  /** What it shows beside charts: nothing, the latest events without their payloads, or with them. */
  readonly list: 'none' | 'times' | 'payloads';
  /** Sites that may show it in a frame. */
  readonly origins: readonly string[];
  readonly endsAt: Time | null;
  readonly hasPassword: boolean;
  /** Email of its maker. */
  readonly createdBy: string;
  readonly createdAt: Time;
  /** False while its maker may not share: the link is refused. */
  readonly isAllowed: boolean;
}

export interface ShareCollection {
  readonly shares: readonly ShareEntry[];
}

/** Its link is in this answer alone. */
export interface NewShare {
  readonly shareId: string;
  readonly url: string;
}

/** Says for a day that the password of a link was right, as the header `X-Share-Key`. */
export interface ShareKey {
  readonly key: string;
}

/** What a link shows. */
export interface SharedData {
  /** Name of the view or the board. */
  readonly name: string;
  /** As addresses of pages have it: `7d` moves, two instants stay; `views`: each chart has its own. */
  readonly range: string;
  readonly timezone: string;
  readonly charts: readonly BoardChart[];
  /** Why there are no events where the share has them; null: there are, or it has none. */
  readonly problem: string | null;
  /** Names of the types of the events, by id. */
  readonly types: Readonly<Record<string, string>>;
  /** The latest first. `payload` is its text as it was sent, and absent where the share leaves it out. */
  readonly events: readonly {
    readonly id: string;
    readonly typeId: string;
    readonly createdAt: string;
    readonly payload?: string;
  }[];
}

/** Whether a member gets the weekly digest of an app. */
export interface DigestState {
  readonly sendsMail: boolean;
  readonly digest: { readonly timezone: string; readonly nextAt: string } | null;
}

export type AnnotationKind = 'deployment' | 'incident' | 'note';

/** What happened to an app at a time. */
export interface Annotation<Time = string> {
  readonly annotationId: string;
  readonly kind: AnnotationKind;
  readonly at: Time;
  /** Null: it happened at one instant. */
  readonly until: Time | null;
  readonly text: string;
  readonly createdAt: Time;
  /** Email of the account that wrote it; null: a logging token did, or the account is gone. For members alone. */
  readonly createdBy?: string | null;
}

export interface AnnotationPage {
  readonly annotations: readonly Annotation[];
  readonly hasMore: boolean;
}

/** For how long events of an app are kept. */
export interface RetentionAnswer {
  /** The rule of the app first, then those of its types that have their own. */
  readonly rules: readonly RetentionEntry[];
  /** The most days that an app may choose; null: any. */
  readonly longest: number | null;
}

export interface RetentionEntry {
  readonly appId: string;
  /** Null: all types without a rule of their own. */
  readonly typeId: string | null;
  readonly typeName: string | null;
  readonly days: number | 'forever' | 'default';
  /** Earlier events cannot be read; null: all can. */
  readonly readableFrom: string | null;
  /** Whether the rows of earlier events are all removed. */
  readonly isRemoved: boolean;
}

/** What a change would hide. */
export interface RetentionPreview {
  readonly readableFrom: string | null;
  /** Events that could no longer be read. */
  readonly hidden: number;
}

/** Limits of an app; null: none. */
export interface AppLimits extends LimitValues {
  readonly appId: string;
  /** What was set for this app; null: the default applies. */
  readonly own: LimitValues;
  /** The highest that the operator lets an app have; null: any. */
  readonly highest: LimitValues;
}

export interface LimitValues {
  /** Accepted create requests in any 60 seconds. */
  readonly createPerMinute: number | null;
  /** Bytes of payloads on a UTC day. */
  readonly bytesPerDay: number | null;
  /** Event types that the app may have. */
  readonly types: number | null;
}

/** What an app uses, and its limits. */
export interface Usage<Time = string> {
  readonly limits: {
    /** Requests per minute of the app and of a resource token; 0: no limit. */
    readonly create: number;
    readonly read: number;
    /** Bytes of payloads on a UTC day; null: no limit. */
    readonly bytesPerDay: number | null;
    readonly types: number | null;
  };
  /** Event types that the app has. */
  readonly types: number;
  /** Minutes of the last hour, the current one last. */
  readonly minutes: readonly { readonly at: Time; readonly accepted: number; readonly refused: number }[];
  readonly refused: readonly { readonly code: string; readonly requests: number }[];
  /** Events that were refused inside of accepted requests. */
  readonly refusedEvents: readonly { readonly code: string; readonly events: number }[];
  /** The latest requests with a valid token that were refused, at most 20, the last one first. */
  readonly lastRefused: readonly {
    readonly at: Time;
    /** Name of the producer; null: a browser key, or a producer that is gone. */
    readonly producer: string | null;
    /** The path. */
    readonly route: string;
    readonly code: string;
    /** What is wrong, as the producer was told; of a batch the first event that is refused. */
    readonly details: string;
    /** The beginning of the body, tokens and redacted values masked; null: it is not shown. */
    readonly body: string | null;
    readonly isCut: boolean;
  }[];
  /** What these codes mean to the owner of an app; those that are not here are in the documentation of the API. */
  readonly meanings: Readonly<Record<string, string>>;
  /** What comes near a limit or went beyond it, and what to do, which a command follows; null: nothing. */
  readonly warning: { readonly problem: string; readonly advice: string } | null;
  /** UTC days, today last. */
  readonly days: readonly { readonly day: string; readonly events: number; readonly bytes: number }[];
  /** Tokens that are still valid. */
  readonly tokens: readonly {
    readonly tokenId: string;
    readonly name: string;
    readonly lastUsedAt: Time | null;
    /** Reads of the current minute, of all apps of the token. */
    readonly reads: number;
    /** Refused reads of the last hour. */
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
  /** Counts of an earlier interval; null where none was asked for or where so fine ones are not kept. */
  readonly compared: Compared | null;
  /** The types that are hidden, as one line, in no other number; absent or null: none are, or types were chosen. */
  readonly hidden?: {
    readonly typeIds: readonly string[];
    readonly counts: readonly number[];
    readonly before: number;
    readonly compared: readonly number[] | null;
  } | null;
  /** Whether the conditions on payloads are in the counts. */
  readonly isFiltered?: boolean;
  /** Where the live feed goes on; absent: the interval has ended. */
  readonly feed?: string;
  /** The newest events of the types that are shown as annotations, newest first; absent: no type is. */
  readonly marks?: readonly EventMark[];
  /** Whether it was counted from rows: then nothing is known of what is before the interval. */
  readonly isScanned?: boolean;
  /** How long that took, of how many events, and how these were found. */
  readonly seconds?: number;
  readonly looked?: number;
  readonly searchedBy?: SearchedBy | null;
}

/** An event that charts show as an annotation. */
export interface EventMark {
  readonly eventId: string;
  readonly at: string;
  /** The type's name, and what the payload says. */
  readonly text: string;
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
  readonly hidden: (SparseColumn & { readonly typeIds: readonly string[] }) | null;
  /** Whether there are more values than are told apart. */
  readonly hasTooMany: boolean;
  /** Rows that were looked at. */
  readonly looked: number;
  /** Null: the part has no conditions. */
  readonly searchedBy: SearchedBy | null;
  /** Where the next part begins; null where this was the last. */
  readonly next: string | null;
  /** Everything newer has been looked at, in milliseconds since the Unix epoch. */
  readonly searchedUntil: number;
}

/** Lists of the words of an app's payloads. */
export interface WordSearch {
  readonly appId: string;
  readonly isOn: boolean;
  /** Events that are listed; null where the engine keeps no lists. */
  readonly listedEvents: number | null;
  /** Whether all events are listed but for those of the present day, and late ones. */
  readonly isComplete: boolean;
}

/** Statistics of a field: columns, as those of {@link Series}. */
export interface NumberStats
  extends StatColumns,
    Pick<Series, 'bucket' | 'timezone' | 'starts' | 'end' | 'interval' | 'countsOnlyBefore'> {
  readonly of: string;
  /** How they are shown; null: no declaration says so. */
  readonly format: Pick<DeclaredField, 'unit' | 'decimals'> | null;
  /** Whether the numbers of all events were counted, and not read from rows. */
  readonly counted: boolean;
  /** How long it took to read what was not counted from rows; null: nothing was. */
  readonly seconds: number | null;
  /** How many events that were. */
  readonly looked: number | null;
  /** How many numbers there are by size, for each bucket, where it is asked for. A bin is without the end that is nearer to 0. */
  readonly histogram: {
    readonly bins: readonly { readonly from: number; readonly to: number }[];
    readonly counts: readonly (readonly number[])[];
  } | null;
  /** The statistics by value of a field, or by event type, most events first; null: not asked for, or neither counted nor read. */
  readonly lines: readonly StatLine[] | null;
  /** All other events; null where there are no lines. */
  readonly rest: StatColumns | null;
  /** Why counts do not answer all that was asked for; null: they do. */
  readonly notBy: {
    readonly details: string /** Options of `tidemark field add`. */;
    readonly declare: string | null;
  } | null;
  /** The sums of all events before the interval, and of each line; null: not asked for, or not counted. */
  readonly before: { readonly all: number; readonly byKey: Readonly<Record<string, number>> } | null;
  /** Events that no statistic includes: with several numbers, or with a number out of range. */
  readonly leftOut: { readonly several: number; readonly unrepresentable: number };
}

/** Statistics of some events, by bucket and of the whole interval: those of numbers, or `distinct`. */
export interface StatColumns {
  readonly stats: Readonly<Partial<Record<MeasureStat, Values>>> & { readonly count: readonly number[] };
  readonly overall: Readonly<Partial<Record<MeasureStat, number | null>>> & {
    readonly count: number;
    /** With `distinct`: whether it is exact, and not an estimate. */
    readonly exact?: boolean;
  };
}

export interface StatLine extends StatColumns {
  /** The type's identifier, or the value as JSON. */
  readonly key: string;
  readonly name: string;
}

/** A number for each bucket; null where there is none. */
type Values = readonly (number | null)[];

/** A series for tools: a row for each bucket, or for each bucket and line. */
export interface SeriesRows {
  readonly series: readonly object[];
  /** The width of the buckets. */
  readonly interval: string;
  readonly timezone: string;
  readonly from: string;
  readonly to?: string;
  readonly countsOnlyBefore?: string;
  readonly completeFrom?: string;
  readonly bins?: readonly object[];
  readonly overall?: object;
  readonly leftOut?: object;
}

export interface Compared {
  /** What is compared with; null: other events of the same time. */
  readonly interval: Series['interval'] | null;
  readonly starts: readonly number[];
  readonly all: readonly number[];
  readonly byKey: Readonly<Record<string, readonly number[]>>;
}

/** Statistics of a path in an answer to a query, by their names. */
export type QueryStatistics = Readonly<Record<string, number | string | boolean | null>>;

/** A bucket of a group. */
export interface QueryRow {
  readonly start: string;
  readonly end: string;
  readonly count: number;
  /** By the path as it was sent. */
  readonly of?: Readonly<Record<string, QueryStatistics>>;
  readonly partial: boolean;
}

/** Events that have the same values, or all others. */
export interface QueryGroup {
  /** By the path as it was sent. */
  readonly by?: Readonly<Record<string, string | number | boolean | null>>;
  /** The paths of `by` whose values are numbers that a double cannot hold, which are given as texts. */
  readonly numbersIn?: readonly string[];
  readonly other?: true;
  readonly count: number;
  readonly of?: Readonly<Record<string, QueryStatistics>>;
  readonly missing?: number;
  readonly series?: readonly QueryRow[];
}

/** A line of the answer to POST /v1/apps/:appId/query. */
export interface QueryLine {
  readonly complete: boolean;
  readonly counted: boolean;
  readonly scannedFrom: string;
  readonly events: number;
  readonly looked: number;
  readonly searchedBy?: SearchedBy;
  readonly groups: readonly QueryGroup[];
  readonly truncated?: true;
  readonly leftOut?: Readonly<Record<string, { readonly several: number; readonly unrepresentable: number }>>;
  readonly from: string;
  readonly to?: string;
  readonly interval?: string;
  readonly timezone: string;
  readonly countsOnlyBefore?: string;
  readonly declare?: readonly string[];
  readonly stopped?: 'budget' | 'memory' | 'busy';
  readonly retryAfterSeconds?: number;
}

/** A webhook of an app. */
export interface WebhookRow<Time = string> {
  readonly webhookId: string;
  readonly url: string;
  readonly format: WebhookFormat;
  readonly isUnordered: boolean;
  readonly sendsEvents: boolean;
  readonly state: 'active' | 'paused' | 'disabled';
  /** Why it is disabled, or rests although it is active. */
  readonly reason: string | null;
  readonly createdAt: Time;
  readonly failingSince: Time | null;
  readonly failedTries: number;
  readonly nextTryAt: Time | null;
  /** The message that is tried again. */
  readonly blockedBy: string | null;
  readonly delivered: number;
  readonly failed: number;
  readonly skipped: number;
  /** The member that it sends for; null: the operator, or an account that is gone. */
  readonly createdBy: { readonly userId: string; readonly email: string } | null;
}

/** A try to send a message to a webhook. */
export interface WebhookTry<Time = string> {
  readonly messageId: string;
  readonly type: string;
  readonly at: Time;
  readonly status: number | null;
  readonly problem: string | null;
  readonly ms: number;
}

export interface ListedWebhook extends WebhookRow {
  /** Its last tries, newest first. */
  readonly history: readonly WebhookTry[];
}

export interface WebhookList {
  readonly webhooks: readonly ListedWebhook[];
  readonly most: number;
}

export interface NewWebhookAnswer {
  readonly webhookId: string;
  /** Shown once. */
  readonly secret: string;
}

/** An alert of an app. */
export interface AlertRow<Time = string> {
  readonly alertId: string;
  readonly name: string;
  /** As it was typed, parsed. */
  readonly rule: object;
  /** The rule in words. */
  readonly text: string;
  readonly timezone: string;
  /** Public ids. */
  readonly webhooks: readonly string[];
  readonly emails: readonly string[];
  readonly alertmanager: string | null;
  readonly state: 'ok' | 'firing' | 'paused' | 'problem';
  /** Series that fire now. */
  readonly firing: number;
  readonly createdAt: Time;
  /** The last minute that was judged. */
  readonly evaluatedAt: Time | null;
  /** Why it cannot be judged now; null: it can. */
  readonly problem: string | null;
  /** Says that its events come later than it is judged, and the delay that would do; null: they come in time. */
  readonly warning: string | null;
  /** The member that its Alertmanager is told for; null: the operator, or an account that is gone. */
  readonly createdBy: { readonly userId: string; readonly email: string } | null;
}

/** What an alert has said of a series. */
export interface AlertTransition<Time = string> {
  readonly messageId: string;
  readonly kind: 'firing' | 'resolved' | 'corrected';
  /** Value of `by` as JSON; empty: all events. */
  readonly series: string;
  readonly at: Time;
  readonly from: Time;
  readonly to: Time;
  readonly value: number | null;
  readonly threshold: number | null;
  readonly expected: number | null;
  readonly isCorrected: boolean;
}

/** The warning is that its events come later than it is judged. */
export type NewAlertAnswer = Pick<AlertRow, 'alertId' | 'warning'>;

export interface ListedAlert extends AlertRow {
  /** What it has said, newest first. */
  readonly transitions: readonly AlertTransition[];
}

export interface AlertList {
  readonly alerts: readonly ListedAlert[];
  readonly most: number;
  /** Whether there is a mail server. */
  readonly sendsMail: boolean;
}

/** What a rule would have said. */
export interface AlertTrial {
  /** The minutes that were judged, milliseconds since 1970: ends of windows. */
  readonly from: number;
  readonly to: number;
  /** Between two of them. */
  readonly stepMs: number;
  /** Firings in all, of which the last ones are told. */
  readonly total: number;
  readonly firings: readonly TrialFiring[];
  /** The interval in equal parts, each with its value that is nearest to firing, of all series, and with what it was compared with. */
  readonly curve: Readonly<Record<'values' | 'low' | 'high', readonly (number | null)[]>>;
  /** In which of these parts any of them fires. */
  readonly fires: readonly boolean[];
}

export interface TrialFiring {
  /** The value of `by` as JSON; empty: all events. */
  readonly series: string;
  readonly from: number;
  /** Null: it still fires at the end. */
  readonly to: number | null;
  readonly value: number | null;
  readonly threshold: number | null;
  readonly expected: number | null;
}

/** Events that meet the conditions of an erasure, before anything is erased. */
export interface ErasureMatch {
  readonly matching: number;
  /** All events of the app that can be read. */
  readonly total: number;
  /** By UTC day, as YYYY-MM-DD. */
  readonly days: readonly { readonly day: string; readonly events: number }[];
}

export interface ErasureState<Time = string> {
  readonly erasureId: string;
  readonly appId: string;
  readonly state: 'running' | 'finished';
  readonly action: 'delete' | 'anonymize';
  readonly by: string;
  readonly reason: string | null;
  /** HMAC-SHA-256 of the conditions, in hexadecimal. */
  readonly conditionHmac: string;
  readonly askedAt: Time;
  readonly finishedAt: Time | null;
  /** Events that are erased, or anonymized, so far. */
  readonly erased: number;
  readonly receipt: ErasureReceipt | null;
}

export interface ErasureReceipt {
  readonly events: number;
  readonly days: readonly { readonly day: string; readonly events: number }[];
  /** ISO 8601: events that were committed before this instant are erased. */
  readonly committedBefore: string;
  /** SHA-256 of the sorted ids, each with a line feed after it, in hexadecimal. */
  readonly idsSha256: string;
  readonly answers: number;
  readonly quarantined: number;
  /** Events of the archive that were erased. */
  readonly archived: number;
  readonly notDone: readonly {
    readonly kind: string;
    readonly name: string | null;
    readonly details: string;
  }[];
  readonly appliedAgain: readonly string[];
}

export interface Erasures {
  readonly erasures: readonly ErasureState[];
}

/** What was typed as conditions, in the grammar of filters: both are null where it is none, or has no value yet. */
export interface TypedConditions {
  readonly conditions: readonly string[] | null;
  /** What is wrong with it, and how it is written. */
  readonly mistake: string | null;
}

/** What was typed as a range or as instants, each null where it cannot be read as that. */
export interface TypedRange {
  /** As it stands in the address of a page. */
  readonly range: string | null;
  /** ISO 8601. */
  readonly at: string | null;
  /** Where it ends, if an end was typed. */
  readonly until: string | null;
}
