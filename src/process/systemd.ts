/** Notifications to systemd for services with Type=notify: sd_notify(3), by systemd-notify(1). */
import { spawn } from 'node:child_process';
import type { Logger } from 'pino';
import { deadline } from '../base/timeout.ts';

export interface SupervisorOptions {
  /** The process's environment: NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are systemd's. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly log: Pick<Logger, 'warn'>;
  /** Sends one assignment, for example `READY=1`. */
  readonly notify?: (state: string) => void;
}

/** The supervisor that started this process, if it wants to know how it is. */
export class Supervisor {
  readonly #log: Pick<Logger, 'warn'>;
  readonly #notify: ((state: string) => void) | null;
  /** 0 without a watchdog. */
  readonly #watchdogMs: number;
  #timer: NodeJS.Timeout | null = null;
  #wasReady = true;

  constructor({ environment, log, notify }: SupervisorOptions) {
    const isAsked = (environment.NOTIFY_SOCKET ?? '') !== '';
    const isOurs = [undefined, String(process.pid)].includes(environment.WATCHDOG_PID);
    this.#log = log;
    this.#notify = isAsked ? (notify ?? ((state) => this.#send(state))) : null;
    this.#watchdogMs = isAsked && isOurs ? Math.floor(Number(environment.WATCHDOG_USEC ?? 0) / 1_000) : 0;
  }

  /**
   * The service listens. From now on the watchdog is fed while events can be accepted.
   * @param isReady whether they can; asked three times within the watchdog's time
   */
  ready(isReady: (timeoutMs: number) => Promise<boolean>): void {
    this.#notify?.('READY=1');
    if (this.#watchdogMs === 0) return;
    const interval = Math.max(1, Math.floor(this.#watchdogMs / 3));
    this.#timer = setInterval(() => {
      void isReady(interval).then((ready) => this.#feed(ready));
    }, interval);
    this.#timer.unref();
  }

  /** The start takes longer: it may take so much more time from now on. */
  extend(ms: number): void {
    this.#notify?.(`EXTEND_TIMEOUT_USEC=${ms * 1_000}`);
  }

  /** The stop has begun: it has a timeout of its own, and the watchdog ends. */
  stopping(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
    this.#notify?.('STOPPING=1');
  }

  #feed(ready: boolean): void {
    if (this.#timer === null) return;
    if (ready) this.#notify?.('WATCHDOG=1');
    else if (this.#wasReady)
      this.#log.warn(
        { restartAfterMs: this.#watchdogMs },
        'watchdog: events cannot be accepted; systemd restarts the service if that stays so',
      );
    this.#wasReady = ready;
  }

  /** Node has no datagram sockets of the UNIX domain; the program of systemd has. */
  #send(state: string): void {
    const child = spawn('systemd-notify', [state], { stdio: 'ignore' });
    child.on('error', (error) => this.#log.warn({ err: error, state }, 'systemd: notification failed'));
    child.on('exit', (code) => {
      if (code !== 0) this.#log.warn({ code, state }, 'systemd: notification failed');
    });
  }
}

/** Whether a service accepts events: GET /readyz?for=writing, as any supervisor asks. */
export async function acceptsEvents(origin: string, timeoutMs: number): Promise<boolean> {
  const late = new AbortController();
  const end = deadline(timeoutMs, () => late.abort());
  try {
    const response = await fetch(`${origin}/readyz?for=writing`, { signal: late.signal });
    await response.arrayBuffer();
    return response.status === 200;
  } catch {
    return false; // For any cause: it does not answer in time.
  } finally {
    end();
  }
}
