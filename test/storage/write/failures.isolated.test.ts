/** What each failure of PostgreSQL means for a commit group, and for how long the group is tried again. */
import pg from 'pg';
import { afterEach, expect, test, vi } from 'vitest';
import { ConnectionLost } from '../../../src/storage/database/copy-connection.ts';
import {
  backOff,
  classify,
  type Failure,
  JOURNALING,
  REFUSING,
  REFUSING_PAST,
  REPLAYING,
  timeoutMs,
} from '../../../src/storage/write/failures.ts';

afterEach(() => vi.useRealTimers());

function sqlError(code: string, fields: Partial<pg.DatabaseError> = {}): pg.DatabaseError {
  return Object.assign(new pg.DatabaseError(code, 0, 'error'), { code }, fields);
}

// SQLSTATEs by name, PostgreSQL's documentation, appendix A. What a class means must not change what a member of it means.
test.each<[string, string, Failure]>([
  ['connection_failure', '08006', 'lost'],
  ['protocol_violation', '08P01', 'fault'],
  ['invalid_text_representation', '22P02', 'data'],
  ['untranslatable_character', '22P05', 'data'],
  ['not_null_violation', '23502', 'data'],
  ['unique_violation', '23505', 'duplicate'],
  ['read_only_sql_transaction', '25006', 'unreachable'],
  ['active_sql_transaction', '25001', 'fault'],
  ['serialization_failure', '40001', 'transient'],
  ['deadlock_detected', '40P01', 'transient'],
  ['insufficient_privilege', '42501', 'unreachable'],
  ['undefined_table', '42P01', 'fault'],
  ['disk_full', '53100', 'unreachable'],
  ['out_of_memory', '53200', 'unreachable'],
  ['too_many_connections', '53300', 'unreachable'],
  ['program_limit_exceeded', '54000', 'data'],
  ['object_in_use', '55006', 'transient'],
  ['object_not_in_prerequisite_state', '55000', 'fault'],
  ['lock_not_available', '55P03', 'blocked'],
  ['query_canceled', '57014', 'blocked'],
  ['idle_session_timeout', '57P05', 'unreachable'],
  ['admin_shutdown', '57P01', 'unreachable'],
  ['cannot_connect_now', '57P03', 'unreachable'],
  ['operator_intervention', '57000', 'transient'],
  ['io_error', '58030', 'unreachable'],
  ['internal_error', 'XX000', 'fault'],
])('%s (%s) is "%s"', (_, code, failure) => {
  expect(classify(sqlError(code))).toBe(failure);
});

test('a row without a partition is told from a row that a CHECK constraint refuses', () => {
  expect(classify(sqlError('23514'))).toBe('missing-partition');
  expect(classify(sqlError('23514', { constraint: 'no_poison' }))).toBe('data');
  expect(classify(sqlError('23505', { constraint: 'events_pkey' }))).toBe('duplicate');
});

test('a connection that broke leaves the outcome open only if the statement was sent', () => {
  expect(classify(new ConnectionLost('reset', true))).toBe('lost');
  expect(classify(new ConnectionLost('refused', false))).toBe('unreachable');
});

test('what is no answer of PostgreSQL is a fault', () => {
  expect(classify(new Error('a mistake in the code'))).toBe('fault');
  expect(classify(Object.assign(new Error('not from pg'), { code: '40001' }))).toBe('fault');
  expect(classify(new pg.DatabaseError('without a code', 0, 'error'))).toBe('fault');
});

test.each([
  ['with a journal', JOURNALING, { unreachable: 100, blocked: 300, transient: 300, uncertain: 300 }],
  ['without one', REFUSING, { unreachable: 700, blocked: 1_500, transient: 12_000, uncertain: 12_000 }],
  ['of past days', REFUSING_PAST, { unreachable: 700, blocked: 0, transient: 12_000, uncertain: 12_000 }],
  ['of a replay', REPLAYING, { unreachable: 0, blocked: 0, transient: 1_000, uncertain: 1_000 }],
] as const)('a group %s is tried for as long as its failure may pass', (_, timeouts, expected) => {
  for (const failure of ['unreachable', 'blocked', 'transient'] as const)
    expect(timeoutMs(timeouts, failure, false)).toBe(expected[failure]);
  // What may be committed is tried for longest, whatever fails meanwhile.
  for (const failure of ['unreachable', 'blocked', 'lost', 'duplicate'] as const)
    expect(timeoutMs(timeouts, failure, true)).toBe(expected.uncertain);
  // A day that can have no partition has none in a second either.
  for (const uncertain of [false, true]) expect(timeoutMs(timeouts, 'no-partition', uncertain)).toBe(0);
});

test('retries wait twice as long each time, and half a second at most', async () => {
  vi.useFakeTimers();
  for (const [retries, ms] of [20, 40, 80, 160, 320, 500, 500].entries()) {
    let isOver = false;
    const waiting = backOff(retries).then(() => {
      isOver = true;
    });
    await vi.advanceTimersByTimeAsync(ms - 1);
    expect(isOver).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(isOver).toBe(true);
    await waiting;
  }
});
