/** Makes bench/RESULTS.md from bench/results/*.json. Every scenario renews it; `npm run bench:report` does nothing else. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ROOT, readResults, type StoredResult } from './results.ts';
import { formatResult } from './table.ts';

const INTRODUCTION = `# Results

Made by \`npm run bench\` from \`bench/results/*.json\`: change nothing here by hand. Medians of interleaved rounds, with the
smallest and the largest beside them. The machines are shared and noisy, and load generator, server and database share
their cores: a ratio of neighbouring rounds says more than any absolute figure. Every 201 is durable. A check that failed
would be named; a goal that was missed is.
`;

function section(result: StoredResult): string {
  const { scenario, about, at, commit, machine, loadBefore, versions, length } = result;
  const circumstances =
    `${at.slice(0, 16).replace('T', ' ')} UTC, commit ${commit}${length === 'full' ? '' : `, ${length} run`}; ` +
    `${machine.cpu}, ${machine.cores} cores, ${machine.memoryGb} GB, load ${loadBefore.toFixed(1)} before; ` +
    Object.entries(versions)
      .map(([name, version]) => (name === 'database' ? version : `${name} ${version}`))
      .join(', ');
  return `## ${scenario}\n\n${about}\n\n${formatResult(result)}\n\n<sub>${circumstances}</sub>\n`;
}

/** @param order names of the scenarios; results of others follow */
export function formatReport(results: readonly StoredResult[], order: readonly string[]): string {
  const place = ({ scenario }: StoredResult): number => {
    const index = order.indexOf(scenario);
    return index < 0 ? order.length : index;
  };
  const sorted = [...results].sort((a, b) => place(a) - place(b));
  return [INTRODUCTION, ...sorted.map(section)].join('\n');
}

export async function writeReport(order: readonly string[]): Promise<void> {
  await writeFile(join(ROOT, 'bench', 'RESULTS.md'), formatReport(await readResults(), order));
}
