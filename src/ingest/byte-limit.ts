/** The limit of an app's bytes per day. */
import type { AppAccounts } from '../apps/app-accounts.ts';
import { Rejection } from '../errors.ts';
import type { DayDecision, DayLimiter } from '../limits/day-counts.ts';

/** What the limit of bytes per day needs. */
export interface ByteLimitSteps {
  readonly accounts: AppAccounts;
  /** Bytes of payloads on a UTC day, by the app's internal id. */
  readonly byteLimiter: DayLimiter;
}

/**
 * Counts the payloads of events that are about to be stored against the app's limit of bytes per day: all of them, or none.
 * Synchronous for apps without a limit.
 */
export function admitBytes(
  { accounts, byteLimiter }: ByteLimitSteps,
  appId: number,
  events: readonly { readonly payload: string }[],
): null | Rejection | Promise<Rejection | null> {
  if (events.length === 0 || accounts.limits.of(appId, 'bytesPerDay') === null) return null;
  let bytes = 0;
  for (const { payload } of events) bytes += Buffer.byteLength(payload);
  const decision = byteLimiter.take(appId, bytes);
  return decision instanceof Promise ? decision.then(overBytes) : overBytes(decision);
}

function overBytes(decision: DayDecision | null): Rejection | null {
  if (decision === null || decision.accepted) return null;
  return new Rejection(
    'rateLimitExceeded',
    `At most ${decision.limit} bytes of payloads per day (UTC) and app are accepted.`,
    { retryAfterSeconds: decision.resetSeconds },
  );
}
