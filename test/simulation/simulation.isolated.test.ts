/**
 * Seeds of the simulation. One that fails is printed with what happened, and does the same again:
 *
 *     SEED=77 npm run simulate
 *     SEEDS=50000 npm run simulate
 */
import { expect, test } from 'vitest';
import { sized } from '../support/fuzz.ts';
import { type Run, simulate } from './simulation.ts';

const SEED = process.env.SEED === undefined ? null : Number(process.env.SEED);
const SEEDS = Number(process.env.SEEDS ?? sized(100, 400));
/** Where the seeds of this run begin: the same in every run, so that a failure is that of a change. */
const FIRST = Number(process.env.FIRST_SEED ?? 1);
const LAST_LINES = 150;

/** Runs a seed again and tells what happened. */
async function report({ seed, failure }: Run): Promise<string> {
  const { trace } = await simulate(seed, true);
  return [
    `Seed ${seed}: ${failure?.message}`,
    ...trace.slice(-LAST_LINES),
    `Seed ${seed}: ${failure?.stack}`,
    `Again: SEED=${seed} npm run simulate`,
  ].join('\n');
}

test('whatever goes wrong, nothing acknowledged is lost or stored twice, and nothing refused is stored', async () => {
  const sums = { steps: 0, seconds: 0, events: 0, acknowledged: 0, stored: 0 };
  const seeds = SEED === null ? Array.from({ length: SEEDS }, (_, index) => FIRST + index) : [SEED];
  const startedAt = performance.now();
  for (const seed of seeds) {
    const run = await simulate(seed);
    if (run.failure !== null) expect.fail(await report(run));
    for (const name of Object.keys(sums) as (keyof typeof sums)[]) sums[name] += run[name];
  }
  const took = Math.round(performance.now() - startedAt);
  console.log(`${seeds.length} seeds in ${took} ms:`, JSON.stringify(sums));
}, 3_600_000);

test('a seed does the same each time', async () => {
  for (const seed of [FIRST, FIRST + 1, FIRST + 2]) {
    const [one, other] = [await simulate(seed, true), await simulate(seed, true)];
    expect(other.trace).toEqual(one.trace);
    expect(one.trace.length).toBeGreaterThan(100);
  }
});
