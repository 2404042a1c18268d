/** The job of a load generator, and its report. Both are sent between processes unchanged. */
import type { Latency } from './latency.ts';
import type { LedgerSum } from './ledger.ts';

export interface LoadRequest {
  readonly method: 'GET' | 'POST' | 'PUT';
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** `{n}` becomes a number that no other request of the job has; `{g}` one that no other job of the generator has. */
  readonly body?: string;
  /** Closed loop: the body is sent compressed, as it is here, without numbers in it. */
  readonly gzip?: true;
  /** Closed loop: the body is Base64 of what is sent. */
  readonly base64?: true;
}

interface Job {
  readonly port: number;
  readonly connections: number;
  readonly seconds: number;
  /** Sent in turn; in a closed loop of fewer connections than requests each connection sends its share of them. */
  readonly requests: readonly LoadRequest[];
}

/**
 * Closed loop, by autocannon: every connection sends its next request when the answer to the last one is there. Finds
 * the most that the service can do; its latencies say what a fixed number of callers wait, not what users would.
 */
export interface ClosedJob extends Job {
  readonly kind: 'closed';
  /** Each request is sent once, whatever time that takes: every connection has its share of them. */
  readonly once?: true;
}

/**
 * Open loop: requests are due at fixed times whatever the service does, and a latency counts from the time at which its
 * request was due, so that a stall delays every request that was due meanwhile (no coordinated omission).
 */
export interface OpenJob extends Job {
  readonly kind: 'open';
  readonly perSecond: number;
  /** Seconds at the start whose latencies are not counted; their answers are. */
  readonly warmUpSeconds: number;
}

/** Bare commits: one row by a prepared INSERT at each intended time, and nothing else. */
export interface CommitsJob {
  readonly kind: 'commits';
  /** As pg takes it. */
  readonly address: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly database: string;
  };
  /** Of the rows in bench_rival_events. */
  readonly appId: number;
  readonly payload: string;
  readonly seconds: number;
  readonly perSecond: number;
  readonly warmUpSeconds: number;
}

/** Connections that send all but the last byte of the body that they have announced, and fall silent. */
export interface SilentJob extends Job {
  readonly kind: 'silent';
  readonly announcedBytes: number;
  /** Delay before an ended connection is replaced. */
  readonly againMs: number;
}

/** Connections that send one request each and keep its response open without reading more than its head. */
export interface HeldJob extends Job {
  readonly kind: 'held';
}

export type LoadJob = ClosedJob | OpenJob | CommitsJob | SilentJob | HeldJob;

export interface LoadReport {
  /** From the first request to the last answer. */
  readonly seconds: number;
  /** Answers by status. */
  readonly statuses: Readonly<Record<string, number>>;
  /** Requests that were sent and got no answer. */
  readonly unanswered: number;
  /** Open loop: requests that were due and never sent, as all connections were still waiting when the run ended. */
  readonly dropped: number;
  readonly acknowledged: LedgerSum;
  /** Null where nothing was answered. */
  readonly latency: Latency | null;
  /** CPU of the generator itself, microseconds a request. */
  readonly generatorMicros: number;
  /** The first few bodies of answers other than 2xx, for the person who has to find out why. */
  readonly refusals: readonly string[];
}
