/** A load generator in a process of its own, so that its CPU time is measured apart. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { LoadJob, LoadReport } from './load-job.ts';

type Message = { readonly report: LoadReport } | { readonly error: string };

interface Waiting {
  readonly resolve: (report: LoadReport) => void;
  readonly reject: (error: Error) => void;
}

export class LoadGenerator {
  readonly #child: ChildProcess;
  #waiting: Waiting | null = null;

  constructor() {
    this.#child = fork(fileURLToPath(new URL('./load.js', import.meta.url)), { execArgv: [] });
    this.#child.on('message', (message: Message) => {
      const waiting = this.#waiting;
      this.#waiting = null;
      if ('report' in message) waiting?.resolve(message.report);
      else waiting?.reject(new Error(`The load generator failed: ${message.error}`));
    });
    this.#child.on('exit', () => this.#waiting?.reject(new Error('The load generator has ended.')));
  }

  /** One job at a time. @throws where the generator itself fails; refusals are in the report */
  run(job: LoadJob): Promise<LoadReport> {
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#child.send(job);
    });
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = once(this.#child, 'exit');
    this.#child.disconnect();
    await exited;
  }
}
