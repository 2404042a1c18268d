/**
 * The command line. An answer goes to standard output, with `--json` as exactly one JSON object; everything else goes to
 * standard error. A failure is one line there, leaves standard output empty, and ends with exit code 1; 2
 * where what was typed is wrong.
 */
import { readArguments } from './cli/arguments.ts';
import { commandLine } from './cli/command-line.ts';
import { printFailure } from './cli/failure.ts';
import { exitCodeOf } from './errors.ts';

// Their readers may be gone, and disks full. A service goes on without; a command has failed to answer.
process.stderr.on('error', () => undefined);
process.stdout.on('error', () => {
  if (!process.argv.includes('serve')) process.exitCode = 1;
});

try {
  const program = commandLine();
  await program.parseAsync(readArguments(program, process.argv.slice(2), process.env), { from: 'user' });
} catch (error) {
  printFailure(error);
  process.exitCode = exitCodeOf(error);
}
