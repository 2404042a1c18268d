/** `tidemark serve`: runs the service and handles a refused start. */
import { readConfig } from '../config.ts';
import { OperatorError } from '../errors.ts';
import { printFailure } from './failure.ts';
import { formatSettings } from './output.ts';
import type { Command } from './session.ts';
import { onStopSignal } from './stop-request.ts';

/** Exit code of a start that cannot succeed without a change: EX_CONFIG of sysexits.h. */
const NEEDS_A_CHANGE = 78;

const HELP = `
Exit codes: 0 after a complete stop, 1 after a failure that may pass, 78 where a setting or the database must be
changed first. With --hold the last of these waits for SIGTERM: a restart policy of Docker cannot stop at a code.

Settings, all of them environment variables:
`;

export function addServeCommand(program: Command): void {
  program
    .command('serve')
    .description('start the service')
    .option('--hold', 'wait for SIGTERM where a restart cannot help, instead of ending with exit code 78')
    .addHelpText('after', () => `${HELP}${formatSettings()}`)
    .action(async (options: { hold?: true }) => {
      try {
        const config = readConfig(process.env, { listens: true });
        // Loaded here to keep the start of short commands fast.
        const { serve } = await import('../serve.ts');
        await serve(config);
      } catch (error) {
        if (!(error instanceof OperatorError) || error.isRetryable) throw error;
        printFailure(error);
        process.exitCode = NEEDS_A_CHANGE;
        if (options.hold === true) await holdUntilSignal();
      }
    });
}

async function holdUntilSignal(): Promise<void> {
  // A pending promise alone does not keep the process alive.
  const alive = setInterval(() => undefined, 60_000);
  const stopped = new Promise<string>((resolve) => onStopSignal(resolve));
  // Whoever reads this may send the signal at once.
  process.stderr.write(
    'tidemark: a restart does not help; waiting for SIGTERM. Fix the cause, then start again.\n',
  );
  await stopped;
  clearInterval(alive);
}
