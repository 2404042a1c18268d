/** A result as Markdown, which is also what the terminal shows. */
import type { ScenarioResult } from '../findings.ts';
import { type Bound, keeps, type Spread, spreadOf } from '../judge.ts';

/** Three significant digits, and no more than the number needs. */
export function formatNumber(value: number): string {
  if (Number.isNaN(value)) return '–';
  if (Math.abs(value) >= 1_000) return Math.round(value).toLocaleString('en-GB');
  return String(Number(value.toPrecision(3)));
}

export function formatSpread({ min, max }: Spread): string {
  return min === max || Number.isNaN(min) ? '' : `${formatNumber(min)} to ${formatNumber(max)}`;
}

function formatBound({ atLeast, atMost }: Bound): string {
  const parts = [];
  if (atLeast !== undefined) parts.push(`≥ ${formatNumber(atLeast)}`);
  if (atMost !== undefined) parts.push(`≤ ${formatNumber(atMost)}`);
  return parts.join(', ');
}

/** A Markdown table whose columns line up. */
export function formatTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)),
  );
  const line = (cells: readonly string[]): string =>
    `| ${widths.map((width, column) => (cells[column] ?? '').padEnd(width)).join(' | ')} |`;
  return [line(head), `|${widths.map((width) => '-'.repeat(width + 2)).join('|')}|`, ...rows.map(line)].join(
    '\n',
  );
}

/** Figures, ratios and goals with medians and spreads, then every check that failed and the number of those that hold. */
export function formatResult(result: ScenarioResult): string {
  const rows: string[][] = [];
  for (const { name, unit, values } of result.figures) {
    const spread = spreadOf(values);
    rows.push([name, `${formatNumber(spread.median)} ${unit}`.trim(), formatSpread(spread), '', '']);
  }
  for (const { name, values, goal } of result.ratios) {
    const spread = spreadOf(values);
    const verdict = goal === undefined ? '' : keeps(spread.median, goal) ? 'met' : 'missed';
    rows.push([
      `ratio: ${name}`,
      `${formatNumber(spread.median)} ×`,
      formatSpread(spread),
      goal === undefined ? '' : formatBound(goal),
      verdict,
    ]);
  }
  for (const { name, unit, value, bound } of result.goals) {
    const verdict = keeps(value, bound) ? 'met' : 'missed';
    rows.push([`goal: ${name}`, `${formatNumber(value)} ${unit}`, '', formatBound(bound), verdict]);
  }
  const failed = result.checks.filter(({ holds }) => !holds);
  const checks = [
    ...failed.map(({ claim, seen }) => `FAILED: ${claim} (${seen})`),
    `${result.checks.length - failed.length} of ${result.checks.length} checks of the work itself hold.`,
  ];
  const notes = result.notes.map((note) => `- ${note}`);
  const table = formatTable(['What', 'Median', 'Spread', 'Goal', ''], rows);
  return [rows.length === 0 ? '' : `${table}\n`, checks.join('\n'), '', ...notes].join('\n').trim();
}

/** @param stolen see `Circumstances` */
export function stolenText(stolen: number | undefined): string {
  return Number.isFinite(stolen) ? `, ${((stolen ?? 0) * 100).toFixed(1)} % of the CPU time stolen` : '';
}
