/** What the main thread of a page has to do, in its own time: what other tests do to the machine meanwhile is not the page's. */
import type { Browser, Page } from 'playwright-core';

/** An event of Chromium's trace format, as far as it is read here; times in microseconds. */
interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur?: number;
  /** How long the thread itself was at work. */
  readonly tdur?: number;
  readonly args?: { readonly name?: string };
}

export interface Task {
  /** Milliseconds of any clock. */
  readonly start: number;
  readonly end: number;
  /** Milliseconds of the thread's own time. */
  readonly spent: number;
}

/** The tasks of the busiest page during some work, in order; those within others are left out. */
export async function tasksOf(
  browser: Browser,
  page: Page,
  work: () => Promise<unknown>,
): Promise<readonly Task[]> {
  await browser.startTracing(page, { categories: ['toplevel', '__metadata'] });
  await work();
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as {
    traceEvents: TraceEvent[];
  }; // Its documented form.
  const threads = traceEvents.filter(
    ({ name, args }) => name === 'thread_name' && args?.name === 'CrRendererMain',
  );
  const ofThreads = threads.map(({ pid, tid }) =>
    outermost(traceEvents.filter((event) => event.pid === pid && event.tid === tid)),
  );
  const [busiest = []] = ofThreads.sort((a, b) => timeOf(b) - timeOf(a));
  if (busiest.length === 0) throw new Error('The trace has no task of a page.');
  return busiest;
}

function outermost(events: readonly TraceEvent[]): Task[] {
  const tasks: Task[] = [];
  for (const { ts, dur = 0, tdur } of events.toSorted((a, b) => a.ts - b.ts)) {
    if (tdur === undefined || ts < (tasks.at(-1)?.end ?? 0) * 1_000) continue;
    tasks.push({ start: ts / 1_000, end: (ts + dur) / 1_000, spent: tdur / 1_000 });
  }
  return tasks;
}

/** Milliseconds that tasks have taken together. */
export function timeOf(tasks: readonly Task[]): number {
  return tasks.reduce((sum, { spent }) => sum + spent, 0);
}

export function longestOf(tasks: readonly Task[]): number {
  return Math.max(...tasks.map(({ spent }) => spent));
}

/** Turns of the loop: some 10 ms on a machine of 2026. */
const LOOP_TURNS = 2_000_000;
export const LOOP_MS = 10;

/** What the page takes for a fixed loop, just before or after: a slow or busy machine is slow for both. */
export async function loopTime(browser: Browser, page: Page): Promise<number> {
  const tasks = await tasksOf(browser, page, () =>
    page.evaluate((turns) => {
      let sum = 0;
      for (let turn = 0; turn < turns; turn += 1) sum = (sum * 31 + turn) | 0;
      return sum;
    }, LOOP_TURNS),
  );
  return longestOf(tasks);
}
