/** bench/thresholds.json: what a judged run runs, and what it judges by. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Threshold, thresholdOf, type Verdict } from './judge.ts';
import { ROOT } from './report/results.ts';

export interface JudgedSet {
  /** The commit that the thresholds were recorded with, or one soon after. */
  readonly control: string;
  readonly scenarios: readonly string[];
  readonly thresholds: readonly Threshold[];
}

const FILE = join(ROOT, 'bench', 'thresholds.json');

export async function readJudgedSet(): Promise<JudgedSet> {
  return JSON.parse(await readFile(FILE, 'utf8'));
}

/**
 * Makes what several runs have measured the measure of later ones, with margins as narrow as their spread allows.
 * @param control the commit that was measured
 */
export async function record(runs: readonly (readonly Verdict[])[], control: string): Promise<void> {
  const set = await readJudgedSet();
  const thresholds = set.thresholds.map((threshold) => {
    const { scenario, ratio } = threshold;
    const medians = runs.map(
      (verdicts) =>
        verdicts.find((one) => one.threshold.scenario === scenario && one.threshold.ratio === ratio)?.measured
          ?.median ?? Number.NaN,
    );
    return thresholdOf(threshold, medians);
  });
  await writeFile(FILE, `${JSON.stringify({ ...set, control, thresholds }, null, 2)}\n`);
}
