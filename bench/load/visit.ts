/** A visit to a page of the dashboard in Chromium, with the times that the page itself takes down. */
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  chromium,
  type Page,
} from 'playwright-core';
import { CHROMIUM, hasChromium } from '../../test/support/chromium.ts';

export { hasChromium };

/** Loopback only, and nothing of the browser's own that would go on beside the page. */
const ARGUMENTS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export function openBrowser(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: ARGUMENTS });
}

/**
 * Runs in each page before its own scripts. `opened` is when the chart, its legend and the list have been painted, in
 * milliseconds since the navigation; `changed` is the time from an input event until the last of what it led to was painted.
 * What happened is taken down by observers when it happens; the timer only decides that nothing more comes.
 */
const WATCH = `(() => {
  const SETTLED_MS = 200;
  const painted = (then) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => then(performance.now());
    port2.postMessage(null);
  });
  const PARTS = ['.chart-card[aria-busy=false] .plot[data-buckets]', '.legend .line', '.event-list article'];
  let open;
  const watch = { opened: new Promise((resolve) => { open = resolve; }) };
  let isOpen = false;
  let flying = 0;
  let touched = 0;
  let drawn = 0;
  let since = NaN;
  const sent = fetch;
  window.fetch = async (...asked) => {
    flying += 1;
    try {
      return await sent(...asked);
    } finally {
      flying -= 1;
      touched = performance.now();
    }
  };
  new MutationObserver((changes) => {
    if (!isOpen && PARTS.every((part) => document.querySelector(part) !== null)) {
      isOpen = true;
      painted(open);
    }
    // Ages of events change by themselves.
    const isOwn = ({ target }) => (target.parentElement ?? target).closest?.('main') && !(target.parentElement ?? target).closest('.page-head p, time');
    if (!changes.some(isOwn)) return;
    touched = performance.now();
    painted((at) => { drawn = at; touched = at; });
  }).observe(document, { childList: true, subtree: true, attributes: true, characterData: true });
  watch.await = (kind) => {
    since = NaN;
    addEventListener(kind, (event) => { since = event.timeStamp; drawn = since; touched = performance.now(); }, { capture: true, once: true });
  };
  watch.still = () => new Promise((resolve) => {
    touched = performance.now();
    const timer = setInterval(() => {
      if (flying > 0 || performance.now() - touched < SETTLED_MS) return;
      clearInterval(timer);
      resolve();
    }, 20);
  });
  watch.changed = () => new Promise((resolve) => {
    const timer = setInterval(() => {
      if (!(since >= 0) || flying > 0 || drawn <= since || performance.now() - touched < SETTLED_MS) return;
      clearInterval(timer);
      resolve(drawn - since);
    }, 20);
  });
  window.watch = watch;
})()`;

/** What opening a page took, until its parts were painted. */
export interface Opened {
  readonly ms: number;
  /** Of the main thread, until the page was still. */
  readonly scriptMs: number;
  readonly layoutMs: number;
  /** When no answer was on its way any more that was asked for before the page was painted; and how long the first byte of one was waited for. */
  readonly networkMs: number;
  readonly waitMs: number;
  readonly requests: number;
  /** Of all of them, as sent. */
  readonly kilobytes: number;
}

export type InputEvent = 'click' | 'change' | 'pointerup' | 'wheel';

/** A profile of its own: no cache, one session. */
export class Visitor {
  readonly #context: BrowserContext;
  readonly page: Page;
  readonly complaints: string[] = [];

  private constructor(context: BrowserContext, page: Page) {
    this.#context = context;
    this.page = page;
    page.on('pageerror', (error) => this.complaints.push(String(error)));
  }

  /** @param line how slow its line and its processor are made */
  static async open(
    browser: Browser,
    { url, cookie }: { readonly url: string; readonly cookie: string },
    { line, ...options }: BrowserContextOptions & { readonly line?: SlowLine } = {},
  ): Promise<Visitor> {
    const context = await browser.newContext({
      baseURL: url,
      locale: 'en-GB',
      timezoneId: 'Europe/Berlin',
      viewport: { width: 1440, height: 900 },
      ...options,
    });
    const [name = '', value = ''] = cookie.split('=');
    await context.addCookies([{ name, value, url }]);
    await context.addInitScript(WATCH);
    const page = await context.newPage();
    if (line !== undefined) {
      const developer = await context.newCDPSession(page);
      const { latency, bytesPerSecond, cpuRate } = line;
      await developer.send('Network.emulateNetworkConditions', {
        offline: false,
        latency,
        downloadThroughput: bytesPerSecond,
        uploadThroughput: bytesPerSecond,
      });
      await developer.send('Emulation.setCPUThrottlingRate', { rate: cpuRate });
    }
    return new Visitor(context, page);
  }

  /** Goes to an address, in a page that has shown nothing since it was made or has left what it showed. */
  async goTo(path: string): Promise<Opened> {
    const developer = await this.#context.newCDPSession(this.page);
    await developer.send('Performance.enable');
    await this.page.goto(path, { waitUntil: 'commit' });
    const ms = await this.page.evaluate<number>('watch.opened');
    const { metrics } = await developer.send('Performance.getMetrics');
    await developer.detach();
    const metric = (name: string): number =>
      (metrics.find((one) => one.name === name)?.value ?? Number.NaN) * 1_000;
    const timings = await this.page.evaluate<readonly Timing[]>(
      `[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
        .filter(({ startTime }) => startTime < ${ms})
        .map(({ requestStart, responseStart, responseEnd, transferSize }) => ({ requestStart, responseStart, responseEnd, transferSize }))`,
    );
    const before = timings.filter(({ responseEnd }) => responseEnd > 0 && responseEnd <= ms);
    return {
      ms,
      scriptMs: metric('ScriptDuration'),
      layoutMs: metric('LayoutDuration') + metric('RecalcStyleDuration'),
      networkMs: union(before.map(({ requestStart, responseEnd }) => [requestStart, responseEnd])),
      waitMs: union(before.map(({ requestStart, responseStart }) => [requestStart, responseStart])),
      requests: timings.length,
      kilobytes: timings.reduce((sum, { transferSize }) => sum + transferSize, 0) / 1_000,
    };
  }

  /** @param event what begins it; the time from there until the last of what it led to was painted, in milliseconds */
  async change(event: InputEvent, work: () => Promise<unknown>): Promise<number> {
    await this.page.evaluate(`watch.await('${event}')`);
    await work();
    return await this.page.evaluate<number>('watch.changed()');
  }

  /** Waits until nothing is on its way and nothing changes. */
  async still(): Promise<void> {
    await this.page.evaluate('watch.still()');
  }

  async close(): Promise<void> {
    await this.#context.close();
  }
}

export interface SlowLine {
  /** Milliseconds of each request. */
  readonly latency: number;
  readonly bytesPerSecond: number;
  /** How many times slower than this machine's. */
  readonly cpuRate: number;
}

/** Of PerformanceResourceTiming. */
interface Timing {
  readonly requestStart: number;
  readonly responseStart: number;
  readonly responseEnd: number;
  readonly transferSize: number;
}

/** The length of what intervals cover together. */
function union(intervals: readonly (readonly [from: number, to: number])[]): number {
  let [sum, end] = [0, 0];
  for (const [from, to] of [...intervals].sort(([a], [b]) => a - b)) {
    sum += Math.max(0, to - Math.max(from, end));
    end = Math.max(end, to);
  }
  return sum;
}
