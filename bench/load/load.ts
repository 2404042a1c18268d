/** The process of a load generator: takes jobs from its parent, one after the other, and reports. */
import { runClosedLoop } from './closed-loop.ts';
import { runCommits } from './commits.ts';
import type { LoadJob, LoadReport } from './load-job.ts';
import { runOpenLoop } from './open-loop.ts';
import { runHeldResponses, runSilentBodies } from './silent-bodies.ts';

let numbers = 0;
const nextGlobal = (): number => numbers++;

function run(job: LoadJob): Promise<LoadReport> {
  if (job.kind === 'closed') return runClosedLoop(job, nextGlobal);
  if (job.kind === 'silent') return runSilentBodies(job);
  if (job.kind === 'held') return runHeldResponses(job);
  return job.kind === 'open' ? runOpenLoop(job, nextGlobal) : runCommits(job);
}

process.on('message', async (job: LoadJob) => {
  try {
    process.send?.({ report: await run(job) });
  } catch (error) {
    process.send?.({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) });
  }
});
process.on('disconnect', () => process.exit(0));
