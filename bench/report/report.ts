/** bench/RESULTS.md: every stored result in full. */
import type { StoredResult } from './results.ts';
import { formatResult, stolenText } from './table.ts';

const INTRODUCTION = `# Results

Generated from \`bench/results/*.json\` by \`npm run bench\` and \`npm run docs\`; do not edit. Medians of interleaved rounds,
with the smallest and the largest. The machine is shared and noisy, and load generator, service and database share its
cores: a ratio of neighboring rounds says more than an absolute figure. Every 201 is durable. A check that failed is
named, and so is a goal that was missed. [docs/performance.md](../docs/performance.md) explains the scenarios.
`;

function section(result: StoredResult): string {
  const { scenario, about, at, commit, machine, loadBefore, stolen, versions, length } = result;
  const circumstances =
    `${at.slice(0, 16).replace('T', ' ')} UTC, commit ${commit}${length === 'full' ? '' : `, ${length} run`}; ` +
    `${machine.cpu}, ${machine.cores} cores, ${machine.memoryGb} GB, load ${loadBefore.toFixed(1)} before${stolenText(stolen)}; ` +
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
