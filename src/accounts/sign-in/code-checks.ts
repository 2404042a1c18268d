/**
 * Codes that are entered for an account, at a sign-in or for a change of the second factor: throttled in this process, counted
 * in the database, and written to the logs.
 */
import { Rejection } from '../../errors.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { writeAccountAudit } from '../log/audit.ts';
import type { AuthEvent, AuthFields, Note } from '../log/auth-log.ts';
import { parseEmail } from '../people/email.ts';
import { lockUser, type User } from '../people/users.ts';
import { deviceText } from '../sessions/device.ts';
import type { Client } from '../sessions/networks.ts';
import type { SessionOrigin } from '../sessions/sessions.ts';
import { throttled } from './backoff.ts';
import { countRecoveryCodes } from './recovery-codes.ts';
import {
  type AcceptedCode,
  MOST_WRONG_CODES,
  type SecondFactors,
  TOLD_WRONG_CODES,
} from './second-factors.ts';
import type { SharedAttempt, SharedSignInLimits } from './sign-in-limits.ts';

export interface CodeChecksOptions {
  readonly sql: Sql;
  readonly limits: SharedSignInLimits;
  readonly secondFactors: SecondFactors;
}

/** Where a code comes from. */
export interface CodeSource {
  readonly client: Client;
  readonly origin: SessionOrigin;
  /** Writes to the authentication log, and mails the owner. */
  readonly note: Note;
}

export interface RightCode {
  readonly accepted: AcceptedCode;
  readonly recoveryCodesLeft: number;
  /** Wrong codes that were entered since the last right one. */
  readonly wrongCodes: number;
}

/** Why a code is refused where nothing asks for one. */
export const IS_OFF = new Rejection('secondFactorOff', 'Sign-ins to this account need no code.');
const WRONG_CODE = new Rejection(
  'wrongCode',
  'The code is wrong, was used already, or is not of this moment. Enter the one that the app shows now, or a recovery code.',
);
const RECOVERY_CODE_NEEDED = new Rejection(
  'recoveryCodeNeeded',
  `${MOST_WRONG_CODES} wrong codes were entered in a row, so codes of the authenticator are refused until a recovery code is used. ` +
    'Enter one of these, then set a new password: those who tried the codes know the present one.',
);

/** Events of a code, with their fields in the authentication log. */
type LogEntry = readonly [event: AuthEvent, fields: AuthFields];

export class CodeChecks {
  readonly #options: CodeChecksOptions;

  constructor(options: CodeChecksOptions) {
    this.#options = options;
  }

  /**
   * Runs a transaction that a code decides about, with the account's row locked.
   * @param user of whom the client has shown the password or a session
   * @param work a refusal of its own is no guess: only what its {@link CodeCheck} refuses is
   */
  async run<T>(
    user: User,
    source: CodeSource,
    work: (check: CodeCheck) => Promise<T | Rejection>,
  ): Promise<T | Rejection> {
    const attempt = await this.#admit(user, source.client);
    if (attempt instanceof Rejection) return attempt;
    const checked = this.#options.sql.begin('isolation level read committed', async (tx) => {
      await lockUser(tx, user.id);
      const check = new CodeCheck(tx, this.#options.secondFactors, user, source.origin);
      return { outcome: await work(check), check };
    });
    // What fails for want of the database is no guess.
    const { outcome, check } = await checked.catch(async (error: unknown) => {
      await attempt.notChecked();
      throw error;
    });
    // Committed: what is logged has happened.
    for (const [event, fields] of check.entries)
      source.note(event, { userId: user.userId, email: user.email, ...fields });
    if (!(outcome instanceof Rejection)) await attempt.succeeded();
    else if (!check.isRefused) await attempt.notChecked();
    return outcome;
  }

  async #admit(user: User, client: Client): Promise<SharedAttempt | Rejection> {
    const email = parseEmail(user.email) ?? { text: user.email, key: user.emailKey };
    const attempt = await this.#options.limits.admitCode(email, client.networks);
    return typeof attempt === 'number' ? throttled(attempt) : attempt;
  }
}

/** One code, in the transaction that it decides about. */
export class CodeCheck {
  readonly tx: Transaction;
  readonly #secondFactors: SecondFactors;
  readonly #user: User;
  readonly #origin: SessionOrigin;
  /** What to write to the authentication log once the transaction has committed. */
  readonly entries: LogEntry[] = [];
  /** Whether the code was refused: a guess. */
  isRefused = false;

  constructor(tx: Transaction, secondFactors: SecondFactors, user: User, origin: SessionOrigin) {
    this.tx = tx;
    this.#secondFactors = secondFactors;
    this.#user = user;
    this.#origin = origin;
  }

  /** Checks a code of the second factor, and uses it up. */
  async accept(entered: string): Promise<RightCode | Rejection> {
    const found = await this.#secondFactors.accept(this.tx, this.#user, entered);
    if (found === 'off') return IS_OFF;
    if (found === 'recovery-code-needed') return this.#refuse(RECOVERY_CODE_NEEDED);
    if (!('accepted' in found)) {
      const refusal = this.wrong();
      if (found.wrongCodes === TOLD_WRONG_CODES) await this.#warn('second-factor.guessing', found.wrongCodes);
      if (found.wrongCodes === MOST_WRONG_CODES) await this.#warn('second-factor.lock', found.wrongCodes);
      return refusal;
    }
    const recoveryCodesLeft = await countRecoveryCodes(this.tx, this.#user.id);
    if (found.accepted === 'recovery-code') {
      await this.#audit('recovery-code.use', { left: recoveryCodesLeft });
      this.entries.push(['recovery-code.use', {}]);
    }
    return { ...found, recoveryCodesLeft };
  }

  /** Refuses a code that was found to be wrong elsewhere: a guess too. */
  wrong(): Rejection {
    return this.#refuse(WRONG_CODE);
  }

  #refuse(refusal: Rejection): Rejection {
    this.isRefused = true;
    this.entries.push(['second-factor.failure', { reason: refusal.code }]);
    return refusal;
  }

  async #warn(event: 'second-factor.guessing' | 'second-factor.lock', wrongCodes: number): Promise<void> {
    const { device, address } = this.#origin;
    await this.#audit(event, { wrongCodes, device: deviceText(device), address });
    this.entries.push([event, { device: deviceText(device) }]);
  }

  async #audit(
    action: Parameters<typeof writeAccountAudit>[1]['action'],
    details: Parameters<typeof writeAccountAudit>[1]['details'],
  ): Promise<void> {
    const user = this.#user;
    const by = { userId: user.id, email: user.email };
    await writeAccountAudit(this.tx, { user, by, action, details });
  }
}
