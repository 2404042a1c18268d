/** `tidemark doctor`: checks the installation and advises what to change. */
import { readConfig } from '../config.ts';
import type { Finding, Level } from './doctor/finding.ts';
import { commandLog } from './output.ts';
import type { Command } from './session.ts';

/** Exit code if a problem is found; 1 means that the examination itself failed. */
const PROBLEMS = 2;

export function addDoctorCommand(program: Command): void {
  program
    .command('doctor')
    .description('check this installation and advise what to change; exit code 2 if a problem is found')
    .answer(async () => {
      // Loaded here to keep the start of other commands fast.
      const { examine } = await import('./doctor/examine.ts');
      const found = await examine(process.env, commandLog(readConfig(process.env).LOG_LEVEL));
      const healthy = !found.some(({ level }) => level === 'problem');
      if (!healthy) process.exitCode = PROBLEMS;
      return { json: { healthy, findings: found }, text: report(found) };
    });
}

const MARKS: Readonly<Record<Level, string>> = {
  ok: 'ok',
  note: 'note',
  warning: 'warning',
  problem: 'PROBLEM',
};
const MARK_WIDTH = 9;

/** One line per finding, with its advice below. */
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
