/** What all commands have in common: the database of this installation, `--json`, and one result. */
import { Command as Base } from 'commander';
import { checkFingerprint, openSecret, type Secret } from '../apps/secret.ts';
import { JSON_LIST, JSON_OPTION } from './options.ts';
import { commandLog } from './output.ts';
import { type Installation, withInstallation } from './transfer/installation.ts';

/** The context of a command. */
export interface Session extends Installation {
  /** SECRET, with a warning if it is not the original one of the database. */
  secret(): Promise<Secret>;
}

/** The result of a command, in both forms. */
export interface Answer {
  /** Printed with `--json`. */
  readonly json: object;
  /** Printed otherwise. */
  readonly text: string;
  /** Where standard output has the result itself. */
  readonly output?: NodeJS.WritableStream;
  /** What remains to be done once the result is printed. */
  readonly afterwards?: () => Promise<void>;
}

/** A command, or a group of them. What it does is given its arguments, then its options. */
export class Command extends Base {
  override createCommand(name?: string): Command {
    return new Command(name);
  }

  /** Adds `--json`, and what is done on the database of this installation, whether or not a server is running. */
  run<Given extends unknown[]>(
    work: (session: Session, ...given: Given) => Promise<Answer>,
    json: readonly [string, string] = JSON_OPTION,
  ): this {
    return this.option(...json).action((...given) =>
      this.onInstallation((session) => work(session, ...(given as Given))),
    );
  }

  /** Like {@link run}, for a list. */
  list<Given extends unknown[]>(work: (session: Session, ...given: Given) => Promise<Answer>): this {
    return this.run(work, JSON_LIST);
  }

  /** Like {@link run}, for what opens no database, or another one. */
  answer<Given extends unknown[]>(work: (...given: Given) => Promise<Answer>): this {
    return this.option(...JSON_OPTION).action(async (...given) =>
      this.#print(await work(...(given as Given))),
    );
  }

  /** Prints the result of work on this installation. */
  async onInstallation(work: (session: Session) => Promise<Answer>): Promise<void> {
    await withInstallation(async (installation) => {
      const { config, sql } = installation;
      const secret = async (): Promise<Secret> => {
        const opened = await openSecret({ configured: config.SECRET, dataDir: config.DATA_DIR });
        await checkFingerprint(sql, opened, commandLog(config.LOG_LEVEL));
        return opened;
      };
      await this.#print(await work({ ...installation, secret }));
    });
  }

  async #print({ json, text, output = process.stdout, afterwards }: Answer): Promise<void> {
    // Before later steps can fail: the change is committed, and a token is shown only once.
    output.write(`${this.opts().json === true ? JSON.stringify(json) : text}\n`);
    await afterwards?.();
  }
}
