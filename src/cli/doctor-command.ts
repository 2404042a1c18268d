/** `tidemark doctor`: what is right and wrong with this installation, and what to change. */
import type { Command } from 'commander';
import { readConfig } from '../config.ts';
import type { Finding, Level } from './doctor/finding.ts';
import { commandLog } from './output.ts';

/** Exit code where something is wrong, as against 1, where the examination itself failed. */
const PROBLEMS = 2;

export function addDoctorCommand(program: Command): void {
  program
    .command('doctor')
    .description('look at this installation and say what to change; exit code 2 where something is wrong')
    .option('--json', 'print one JSON object')
    .action(async (options: { json?: true }) => {
      // The other commands start without loading what it looks at.
      const { examine } = await import('./doctor/examine.ts');
      const found = await examine(process.env, commandLog(readConfig(process.env).LOG_LEVEL));
      const healthy = !found.some(({ level }) => level === 'problem');
      process.stdout.write(
        options.json === true ? `${JSON.stringify({ healthy, findings: found })}\n` : `${report(found)}\n`,
      );
      if (!healthy) process.exitCode = PROBLEMS;
    });
}

const MARKS: Readonly<Record<Level, string>> = {
  ok: 'ok',
  note: 'note',
  warning: 'warning',
  problem: 'PROBLEM',
};
const MARK_WIDTH = 9;

/** A line a finding, the advice below it. */
function report(found: readonly Finding[]): string {
  const width = Math.max(...found.map(({ check }) => check.length)) + 2;
  const indent = ' '.repeat(MARK_WIDTH + width);
  const lines = found.map(({ check, level, found: what, advice }) => {
    const line = `${MARKS[level].padEnd(MARK_WIDTH)}${check.padEnd(width)}${what}`;
    return advice === null ? line : `${line}\n${indent}→ ${advice}`;
  });
  return [...lines, '', summary(found)].join('\n');
}

function summary(found: readonly Finding[]): string {
  const count = (level: Level): number => found.filter((finding) => finding.level === level).length;
  const [problems, warnings] = [count('problem'), count('warning')];
  if (problems + warnings === 0) return 'Nothing to change.';
  return `${problems} ${problems === 1 ? 'problem' : 'problems'}, ${warnings} ${warnings === 1 ? 'warning' : 'warnings'}.`;
}
