import { describe, expect, test } from 'vitest';
import { Findings } from '../../bench/findings.ts';
import { AcknowledgedEvents, addSums } from '../../bench/load/ledger.ts';
import type { LoadReport } from '../../bench/load/load-job.ts';
import { checkLedger, checkStatuses } from '../../bench/measure.ts';
import { type CpuProfile, heaviest } from '../../bench/report/cpu-profile.ts';
import { formatResult } from '../../bench/report/table.ts';
import { accountBetween, parseMetrics } from '../../bench/servers/metrics.ts';

function report(statuses: Record<string, number>, acknowledged = { events: 0, idSum: 0 }): LoadReport {
  return {
    seconds: 1,
    statuses,
    unanswered: 0,
    dropped: 0,
    acknowledged,
    latency: null,
    generatorMicros: 0,
    refusals: ['{"success":false}'],
  };
}

const holds = (findings: Findings): boolean[] => findings.result().checks.map((check) => check.holds);

describe('checks of the work', () => {
  test('acknowledged = stored needs the number, the ids, and no id twice', () => {
    const findings = new Findings();
    const told = [report({}, { events: 2, idSum: 30 }), report({}, { events: 1, idSum: 12 })];
    checkLedger(findings, 'same', told, { events: 3, idSum: 42, twice: 0 });
    checkLedger(findings, 'lost', told, { events: 2, idSum: 42, twice: 0 });
    checkLedger(findings, 'another id', told, { events: 3, idSum: 43, twice: 0 });
    checkLedger(findings, 'twice', told, { events: 3, idSum: 42, twice: 1 });
    checkLedger(findings, 'nothing sent', [], { events: 0, idSum: 0, twice: 0 });
    expect(holds(findings)).toEqual([true, false, false, false, false]);
  });

  test('one unexpected status fails, and so does silence', () => {
    const findings = new Findings();
    checkStatuses(findings, 'good', [report({ 201: 9 })], [201]);
    checkStatuses(findings, 'one refused', [report({ 201: 9, 429: 1 })], [201]);
    checkStatuses(findings, 'no answer', [{ ...report({ 201: 9 }), unanswered: 1 }], [201]);
    checkStatuses(findings, 'nothing', [report({})], [201]);
    expect(holds(findings)).toEqual([true, false, false, false]);
    expect(formatResult(findings.result())).toContain('FAILED: one refused: every answer is 201 (1 × 429');
  });

  test('a claim that failed once has failed', () => {
    const findings = new Findings();
    for (const one of [true, false, true]) findings.checkAll('it works', one);
    expect(holds(findings)).toEqual([false]);
  });
});

test('only acknowledgements count, by the last 32 bits of their ids', () => {
  const events = new AcknowledgedEvents();
  events.note('{"success":true,"eventId":"019a0000-0000-7000-8000-0000000000ff","typeId":"t"}');
  events.note('{"success":false,"error":"Rate limit exceeded"}');
  expect(events.sum()).toEqual({ events: 1, idSum: 255 });
  expect(addSums([events.sum(), { events: 1, idSum: 2 ** 48 - 1 }])).toEqual({ events: 2, idSum: 254 });
});

test('the service accounts for its time between two readings', () => {
  const text = (events: number): string =>
    [
      '# TYPE tidemark_stage_seconds histogram',
      `tidemark_stage_seconds_sum{stage="commit"} ${events * 0.002}`,
      `tidemark_stage_seconds_count{stage="commit"} ${events}`,
      `tidemark_batch_events_sum ${events}`,
      `tidemark_batch_events_count ${events / 10}`,
      `tidemark_events_stored_total ${events}`,
      'tidemark_event_loop_delay_seconds{stat="p99"} 0.004',
    ].join('\n');
  const account = accountBetween(parseMetrics(text(1_000)), parseMetrics(text(3_000)));
  expect(account.stageMicros.commit).toBeCloseTo(2_000);
  expect(account.eventsPerBatch).toBeCloseTo(10);
  expect(account.eventsStored).toBe(2_000);
  expect(account.eventLoopLateMs).toBe(4);
  expect(account.stageMicros.validate).toBeNaN();
});

test('the heaviest functions are those with the most time of their own; waiting does not count', () => {
  const frame = (id: number, functionName: string) => ({
    id,
    callFrame: { functionName, url: functionName === '(idle)' ? '' : 'file:///src/a.js', lineNumber: 1 },
  });
  const profile: CpuProfile = {
    // The same function on two paths of calls.
    nodes: [
      frame(1, '(root)'),
      frame(2, 'handle'),
      frame(3, 'parse'),
      frame(4, '(idle)'),
      frame(5, 'handle'),
    ],
    samples: [3, 2, 4, 5, 3],
    timeDeltas: [10, 20, 500, 10, 10],
  };
  expect(heaviest(profile, 1)).toEqual([{ name: 'handle src/a.js:2', share: 0.6 }]);
  expect(heaviest(profile, 9).map(({ name }) => name)).toEqual(['handle src/a.js:2', 'parse src/a.js:2']);
});
