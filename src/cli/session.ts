/** Common parts of the short commands: settings, database with schema, and one result. */
import { checkFingerprint, openSecret, type Secret } from '../apps/secret.ts';
import type { Config } from '../config.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { Storage } from '../storage/storage.ts';
import { commandLog } from './output.ts';
import { withInstallation } from './transfer/installation.ts';

/** The context of a command. */
export interface Session {
  readonly config: Config;
  readonly sql: Sql;
  readonly storage: Storage;
  /** SECRET, with a warning if it is not the original one of the database. */
  secret(): Promise<Secret>;
}

/** The result of a command, in both forms. */
export interface Answer {
  /** Printed with `--json`. */
  readonly json: object;
  /** Printed otherwise. */
  readonly text: string;
  /** What remains to be done once the result is printed. */
  readonly afterwards?: () => Promise<void>;
}

/**
 * Runs a command on the database of this installation, whether or not a server is running, and prints its result on
 * standard output.
 */
export async function runCommand(
  options: { readonly json?: boolean },
  command: (session: Session) => Promise<Answer>,
): Promise<void> {
  await withInstallation(async ({ config, sql, storage }) => {
    const secret = async (): Promise<Secret> => {
      const opened = await openSecret({ configured: config.SECRET, dataDir: config.DATA_DIR });
      await checkFingerprint(sql, opened, commandLog(config.LOG_LEVEL));
      return opened;
    };
    const answer = await command({ config, sql, storage, secret });
    // Before later steps can fail: the change is committed, and a token is shown only once.
    process.stdout.write(`${options.json === true ? JSON.stringify(answer.json) : answer.text}\n`);
    await answer.afterwards?.();
  });
}
