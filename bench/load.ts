/** The process of a load generator: takes jobs from its parent, one after the other, and reports. */
import { runClosedLoop } from './closed-loop.ts';
import type { LoadJob } from './load-job.ts';
import { runOpenLoop } from './open-loop.ts';

let numbers = 0;
const nextGlobal = (): number => numbers++;

process.on('message', async (job: LoadJob) => {
  try {
    const report =
      job.kind === 'closed' ? await runClosedLoop(job, nextGlobal) : await runOpenLoop(job, nextGlobal);
    process.send?.({ report });
  } catch (error) {
    process.send?.({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  }
});
process.on('disconnect', () => process.exit(0));
