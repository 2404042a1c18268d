/** What the short commands have in common: the settings, the database with its schema, and one answer. */
import { checkFingerprint, openSecret, type Secret } from '../apps/secret.ts';
import { type Config, readConfig } from '../config.ts';
import { connect, type Sql } from '../storage/connect.ts';
import { openDatabase } from '../storage/open.ts';
import { openStorage } from '../storage/storage.ts';
import { commandLog } from './output.ts';

/** What a command works with. */
export interface Session {
  readonly config: Config;
  readonly sql: Sql;
  /** The migrations that this command applied on its way. */
  readonly applied: readonly string[];
  /** SECRET, with a warning where it is not this database's own. */
  secret(): Promise<Secret>;
}

/** One command's answer, in both of its forms. */
export interface Answer {
  /** What `--json` prints. */
  readonly json: object;
  /** What people read. */
  readonly text: string;
}

/**
 * Runs a command on the database of this installation, whether a server runs on it or not, and prints its answer on
 * standard output.
 */
export async function runCommand(
  options: { readonly json?: boolean },
  command: (session: Session) => Promise<Answer>,
): Promise<void> {
  const config = readConfig(process.env);
  const log = commandLog(config.LOG_LEVEL);
  const database = await openDatabase(config, log, { supervise: false });
  const sql = connect(database.address, { connections: 1, name: 'tidemark command' });
  try {
    const storage = await openStorage(sql);
    const { applied } = await storage.migrate(sql);
    const secret = async (): Promise<Secret> => {
      const opened = await openSecret({ configured: config.SECRET, dataDir: config.DATA_DIR });
      await checkFingerprint(sql, opened, log);
      return opened;
    };
    const answer = await command({ config, sql, applied, secret });
    // Before anything else can fail: what was made is committed, and a token is shown only this once.
    process.stdout.write(`${options.json === true ? JSON.stringify(answer.json) : answer.text}\n`);
  } finally {
    await sql.end({ timeout: 5 });
    await database.close();
  }
}
