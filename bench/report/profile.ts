/** CPU profiles of the service: the file that Node writes, and a table of the functions that take the most time. */
import { readdir, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import type { Findings } from '../findings.ts';
import { type CpuProfile, heaviest } from './cpu-profile.ts';

/** Microseconds between samples. */
const INTERVAL_MICROS = 500;
/** Functions in the table; the rest is in the profile. */
const HEAVIEST = 20;

/** Options of Node for the service. The profile is written when it ends, and begins with its start. */
export function profileOptions(folder: string): string[] {
  return ['--cpu-prof', `--cpu-prof-dir=${folder}`, `--cpu-prof-interval=${INTERVAL_MICROS}`];
}

/** After the service has ended: names its profile after the scenario, and reads it. @returns the profile's path */
export async function endProfile(findings: Findings, folder: string, scenario: string): Promise<string> {
  const fresh = (await readdir(folder)).filter((name) => /^CPU\..*\.cpuprofile$/.test(name)).sort();
  const last = fresh.at(-1);
  if (last === undefined) throw new Error('The service has left no profile.');
  const path = join(folder, `${scenario}.cpuprofile`);
  await rename(join(folder, last), path);
  // Written by Node itself.
  const profile = JSON.parse(await readFile(path, 'utf8')) as CpuProfile;
  findings.note('Measured while being profiled: the other figures of this run are lower than without.');
  for (const { name, share } of heaviest(profile, HEAVIEST)) {
    findings.figure(`self time: ${name}`, '% of busy time', [share * 100]);
  }
  return path;
}
