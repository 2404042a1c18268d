/** What a page of events is asked for, and what it holds. */
import type { FieldScope } from '../fields/field-scope.ts';
import type { TypeScope } from '../retention.ts';

/** By time of creation, then id. */
export type Order = 'asc' | 'desc';

/** Which events: of one app (internal id), of some types or all, of an interval. */
export interface EventScope extends TypeScope {
  readonly appId: number;
  /** First millisecond since 1970; null: from the beginning. */
  readonly from: number | null;
  /** The end in milliseconds since 1970, not included; null: to the end. */
  readonly until: number | null;
}

export interface Scope extends EventScope {
  /** Only events whose payload passes its filter, which the counts of a declared field answer; types are then not used. */
  readonly field?: FieldScope;
}

export interface PageRequest {
  readonly scope: Scope;
  /** Events to skip. */
  readonly offset: number;
  /** Most events of the page, at least 1. */
  readonly limit: number;
  readonly order: Order;
  /** The page ends before the event whose payload would take it beyond this many bytes, unless it is the first. */
  readonly maxBytes: number;
}

export interface StoredEvent {
  readonly id: string;
  readonly typeId: string;
  readonly createdAt: Date;
  /** The very JSON text that was sent. */
  readonly payload: string;
}

export interface EventPage {
  /** All events of the scope that can be read. */
  readonly total: number;
  readonly events: readonly StoredEvent[];
  /** True where there are events after this page. */
  readonly hasMore: boolean;
}
