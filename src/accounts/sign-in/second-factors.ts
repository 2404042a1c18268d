/** Second factors: codes of an authenticator app, and recovery codes. All changes need the account's row to be locked. */

import type { KeyObject } from 'node:crypto';
import type { Logger } from 'pino';
import type { Enrollment, SecondFactorState } from '../../api-types/answers.ts';
import { seal, unseal } from '../../base/sealed-text.ts';
import { refused } from '../../errors.ts';
import type { Sql, Transaction } from '../../storage/database/connect.ts';
import { COMMAND_LINE, writeAccountAudit } from '../log/audit.ts';
import type { Email } from '../people/email.ts';
import { lockUser, requireUser, type User } from '../people/users.ts';
import { countRecoveryCodes, createRecoveryCodes, useRecoveryCode } from './recovery-codes.ts';
import { createTotpSecret, stepOf, TOTP_CODE, totpAddress } from './totp.ts';

export type AcceptedCode = 'code' | 'recovery-code';

/** A code that was checked, with the number of wrong ones in a row: before it, or this one included. */
export type CheckedCode =
  | { readonly accepted: AcceptedCode; readonly wrongCodes: number }
  | { readonly wrongCodes: number };

export interface SecondFactorsOptions {
  /** Key of the secrets at rest. */
  readonly key: KeyObject;
  /** Names the installation in authenticator apps. */
  readonly issuer: string;
  readonly now: () => number;
  readonly log: Pick<Logger, 'warn'>;
}

/** An enrollment is confirmed within this time. */
const ENROLLMENT_MS = 15 * 60_000;
/** After so many wrong codes in a row the owner is told. */
export const TOLD_WRONG_CODES = 10;
/**
 * After so many in a row only recovery codes are accepted: a hundred guesses succeed with a chance of 0.03 %, since three codes of
 * a million are right at any moment. The waits of each process alone would allow 0.6 % a day.
 *
 * So those who know the password can make the authenticator useless to its owner, in a quarter of an hour from many addresses and
 * in a day from one. That is the lesser evil: the owner is mailed, is told so at the next sign-in, and gets in by a recovery code,
 * or with the operator's help. A code that was guessed gives them the account with its events and tokens.
 */
export const MOST_WRONG_CODES = 100;
/** Longest text that can be a code, with its separators. */
export const MOST_CODE_CHARACTERS = 40;

interface StoredFactor {
  readonly sealed: Buffer;
  /** A bigint in the database; steps of this millennium are exact. */
  readonly lastStep: number;
  readonly wrongCodes: number;
}

export class SecondFactors {
  readonly #options: SecondFactorsOptions;

  constructor(options: SecondFactorsOptions) {
    this.#options = options;
  }

  async state(sql: Sql, userId: number): Promise<SecondFactorState<Date>> {
    const [row] = await sql<{ enabledAt: Date | null; recoveryCodeNeeded: boolean }[]>`
      SELECT enabled_at AS "enabledAt", wrong_codes >= ${MOST_WRONG_CODES} AS "recoveryCodeNeeded"
        FROM second_factors WHERE user_id = ${userId}`;
    const { enabledAt, recoveryCodeNeeded } = row ?? { enabledAt: null, recoveryCodeNeeded: false };
    const recoveryCodesLeft = enabledAt === null ? 0 : await countRecoveryCodes(sql, userId);
    return { enabledAt, recoveryCodesLeft, recoveryCodeNeeded };
  }

  /** Begins an enrollment, in place of one that was not confirmed. @returns null if the account has a second factor */
  async begin(tx: Transaction, user: User): Promise<Enrollment | null> {
    const { key, issuer, now } = this.#options;
    const secret = createTotpSecret();
    const sealed = seal(key, secret, ownerOf(user));
    const begun = await tx`
      INSERT INTO second_factors (user_id, sealed, started_at) VALUES (${user.id}, ${sealed}, ${now()})
      ON CONFLICT (user_id) DO UPDATE SET sealed = excluded.sealed, started_at = excluded.started_at
        WHERE second_factors.enabled_at IS NULL
      RETURNING 1`;
    return begun.length === 0 ? null : { secret, ...totpAddress(secret, { issuer, account: user.email }) };
  }

  /**
   * Turns the second factor on by the first code of the authenticator.
   * @returns the recovery codes; 'off' if no enrollment waits
   */
  async confirm(tx: Transaction, user: User, entered: string): Promise<readonly string[] | 'wrong' | 'off'> {
    const now = this.#options.now();
    const [pending] = await tx<StoredFactor[]>`
      SELECT sealed, last_step::float8 AS "lastStep", wrong_codes AS "wrongCodes" FROM second_factors
       WHERE user_id = ${user.id} AND enabled_at IS NULL AND started_at > ${now - ENROLLMENT_MS}`;
    if (pending === undefined) return 'off';
    if (!(await this.#acceptStep(tx, user, pending, normalized(entered)))) return 'wrong';
    await tx`UPDATE second_factors SET enabled_at = ${now} WHERE user_id = ${user.id}`;
    return await createRecoveryCodes(tx, user.id);
  }

  /** Whether a sign-in to the account needs a code. */
  async isOn(tx: Transaction, userId: number): Promise<boolean> {
    const rows = await tx`SELECT FROM second_factors WHERE user_id = ${userId} AND enabled_at IS NOT NULL`;
    return rows.length > 0;
  }

  /**
   * Checks a code of the authenticator or a recovery code, and uses it up. Counts the wrong ones in a row; a new password does not
   * end the row, because whoever reads the owner's mail can set one.
   */
  async accept(
    tx: Transaction,
    user: User,
    entered: string,
  ): Promise<CheckedCode | 'recovery-code-needed' | 'off'> {
    const [factor] = await tx<StoredFactor[]>`
      SELECT sealed, last_step::float8 AS "lastStep", wrong_codes AS "wrongCodes" FROM second_factors
       WHERE user_id = ${user.id} AND enabled_at IS NOT NULL`;
    if (factor === undefined) return 'off';
    const { wrongCodes } = factor;
    const code = normalized(entered);
    const accepted = TOTP_CODE.test(code) ? 'code' : 'recovery-code';
    // Not checked, so that an answer says nothing about it.
    if (accepted === 'code' && wrongCodes >= MOST_WRONG_CODES) return 'recovery-code-needed';
    const isRight =
      accepted === 'code'
        ? await this.#acceptStep(tx, user, factor, code)
        : await useRecoveryCode(tx, user.id, code);
    const inARow = isRight ? 0 : wrongCodes + 1;
    await tx`UPDATE second_factors SET wrong_codes = ${inARow} WHERE user_id = ${user.id}`;
    return isRight ? { accepted, wrongCodes } : { wrongCodes: inARow };
  }

  /** Accepts a code of a later step than the last one: a code that was read over a shoulder is of no use. */
  async #acceptStep(tx: Transaction, user: User, factor: StoredFactor, code: string): Promise<boolean> {
    const secret = unseal(this.#options.key, factor.sealed, ownerOf(user));
    if (secret === null) {
      this.#options.log.warn(
        { userId: user.userId },
        'accounts: a second factor is sealed under another SECRET, only its recovery codes work',
      );
      return false;
    }
    const step = stepOf(code, secret, this.#options.now());
    if (step === null || step <= factor.lastStep) return false;
    await tx`UPDATE second_factors SET last_step = ${step} WHERE user_id = ${user.id}`;
    return true;
  }
}

/** Removes a second factor with its recovery codes. @param userId internal id @returns false if there was none */
export async function removeSecondFactor(tx: Transaction, userId: number): Promise<boolean> {
  await tx`DELETE FROM recovery_codes WHERE user_id = ${userId}`;
  const gone = await tx<{ wasOn: boolean }[]>`
    DELETE FROM second_factors WHERE user_id = ${userId} RETURNING enabled_at IS NOT NULL AS "wasOn"`;
  return gone[0]?.wasOn ?? false;
}

/**
 * For the command line: removes the second factor of a user who has lost the authenticator and the recovery codes.
 * @throws Refused memberNotFound, secondFactorOff
 */
export async function removeSecondFactorOf(sql: Sql, email: Email): Promise<User> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const user = await requireUser(tx, email);
    await lockUser(tx, user.id);
    if (!(await removeSecondFactor(tx, user.id)))
      throw refused('secondFactorOff', `the account ${user.email} has no second factor`);
    await writeAccountAudit(tx, { user, by: COMMAND_LINE, action: 'second-factor.remove', details: {} });
    return user;
  });
}

/** Without the separators that apps and paper have, and with the digits that letters are mistaken for. */
function normalized(entered: string): string {
  return entered
    .slice(0, MOST_CODE_CHARACTERS)
    .replace(/[\s-]/g, '')
    .toLowerCase()
    .replaceAll('o', '0')
    .replace(/[il]/g, '1');
}

function ownerOf({ userId }: User): Buffer {
  return Buffer.from(`second factor of ${userId}`);
}
