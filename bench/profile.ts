/** CPU profiles of the service, and flame graphs made from them. */
import { mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Findings } from './findings.ts';
import { type CpuProfile, flameGraph, heaviest } from './flame-graph.ts';
import type { RunOptions } from './scenario.ts';

/** Microseconds between samples. */
const INTERVAL_MICROS = 500;

/** Options of Node for the service. The profile is written when it ends, and begins with its start. */
export function profileOptions({ profileFolder }: RunOptions): string[] {
  if (profileFolder === null) return [];
  return ['--cpu-prof', `--cpu-prof-dir=${profileFolder}`, `--cpu-prof-interval=${INTERVAL_MICROS}`];
}

/** After the service has ended: names its profile for the scenario, and draws it. */
export async function endProfile(
  findings: Findings,
  { profileFolder }: RunOptions,
  scenario: string,
): Promise<void> {
  if (profileFolder === null) return;
  await mkdir(profileFolder, { recursive: true });
  const fresh = (await readdir(profileFolder)).filter((name) => /^CPU\..*\.cpuprofile$/.test(name)).sort();
  const last = fresh.at(-1);
  if (last === undefined) throw new Error('The service has left no profile.');
  const path = join(profileFolder, `${scenario}.cpuprofile`);
  await rename(join(profileFolder, last), path);
  // Written by Node itself.
  const profile = JSON.parse(await readFile(path, 'utf8')) as CpuProfile;
  await writeFile(path.replace(/cpuprofile$/, 'svg'), flameGraph(profile, `tidemark: ${scenario}`));
  findings.note(`CPU profile: ${path}; flame graph beside it as ${scenario}.svg.`);
  findings.note('Measured while being profiled: figures of this run are lower than without.');
  for (const { name, share } of heaviest(profile, 12)) {
    findings.figure(`self time: ${name}`, '% of busy time', [share * 100]);
  }
}
