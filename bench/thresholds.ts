/** bench/thresholds.json: what a judged run runs, and what it judges by. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Threshold, Verdict } from './judge.ts';
import { ROOT } from './results.ts';

export interface JudgedSet {
  readonly scenarios: readonly string[];
  readonly thresholds: readonly Threshold[];
}

type Sets = Readonly<Record<'guard' | 'smoke', JudgedSet>>;

const FILE = join(ROOT, 'bench', 'thresholds.json');

async function readSets(): Promise<Sets> {
  return JSON.parse(await readFile(FILE, 'utf8'));
}

export async function readJudgedSet(name: 'guard' | 'smoke'): Promise<JudgedSet> {
  return (await readSets())[name];
}

/** Makes what was measured now the measure of later runs; margins stay. */
export async function record(name: 'guard' | 'smoke', verdicts: readonly Verdict[]): Promise<void> {
  const sets = await readSets();
  const thresholds = sets[name].thresholds.map((threshold) => {
    const found = verdicts.find(
      (one) => one.threshold.scenario === threshold.scenario && one.threshold.ratio === threshold.ratio,
    );
    const median = found?.measured?.median ?? Number.NaN;
    return Number.isNaN(median) ? threshold : { ...threshold, recorded: Number(median.toPrecision(3)) };
  });
  await writeFile(FILE, `${JSON.stringify({ ...sets, [name]: { ...sets[name], thresholds } }, null, 2)}\n`);
}
