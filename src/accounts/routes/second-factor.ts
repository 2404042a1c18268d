/** Routes of the second factor of one's own account. */
import type { Enrollment, NewRecoveryCodes, SecondFactorState } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { done, type Nothing } from '../../http/data.ts';
import type { Outcome } from '../../http/exchange.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { parseEmail } from '../people/email.ts';
import type { SecondFactorChange } from '../sign-in/second-factor-change.ts';
import { MOST_CODE_CHARACTERS, type SecondFactors } from '../sign-in/second-factors.ts';
import type { Api, SignedInCall } from './api.ts';
import { bodyOf } from './body.ts';
import { NO_EMAIL, password } from './people.ts';

export interface SecondFactorRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly secondFactors: SecondFactors;
  readonly change: SecondFactorChange;
}

const code = { type: 'string', maxLength: MOST_CODE_CHARACTERS } as const;
const PASSWORD = bodyOf({ password }, ['password']);
const CODE = bodyOf({ code }, ['code']);
const BOTH = bodyOf({ password, code }, ['password', 'code']);

export function secondFactorRoutes(options: SecondFactorRoutesOptions): readonly Route[] {
  const { api, sql, secondFactors, change } = options;
  return [
    api.read('/api/second-factor', 'signed-in', async ({ user }) =>
      done<SecondFactorState>(await secondFactors.state(sql, user.id)),
    ),
    api.change('POST', '/api/second-factor', 'signed-in', PASSWORD, async (call, body) => {
      const email = parseEmail(call.user.email);
      if (email === null) return NO_EMAIL;
      const begun = await change.begin({ email, ...body }, call);
      return begun instanceof Rejection ? refused(call, begun) : done<Enrollment>(begun, { status: 201 });
    }),
    api.change('POST', '/api/second-factor/confirmation', 'signed-in', CODE, async (call, body) => {
      const confirmed = await change.confirm(body.code, call);
      if (confirmed instanceof Rejection) return confirmed;
      const { recoveryCodes, setCookie } = confirmed;
      call.note('second-factor.enable');
      return done<NewRecoveryCodes>({ recoveryCodes }, { setCookie });
    }),
    api.change('POST', '/api/second-factor/recovery-codes', 'signed-in', BOTH, async (call, body) => {
      const email = parseEmail(call.user.email);
      if (email === null) return NO_EMAIL;
      const recoveryCodes = await change.renewRecoveryCodes({ email, ...body }, call);
      if (recoveryCodes instanceof Rejection) return refused(call, recoveryCodes);
      call.note('recovery-codes.create');
      return done<NewRecoveryCodes>({ recoveryCodes });
    }),
    api.change('DELETE', '/api/second-factor', 'signed-in', BOTH, async (call, body) => {
      const email = parseEmail(call.user.email);
      if (email === null) return NO_EMAIL;
      const refusal = await change.turnOff({ email, ...body }, call);
      if (refusal !== null) return refused(call, refusal);
      call.note('second-factor.disable');
      return done<Nothing>({});
    }),
  ];
}

/** Writes a wrong password to the log. A wrong code is there already, by {@link CodeChecks}. */
function refused({ note }: SignedInCall, refusal: Rejection): Outcome {
  if (refusal.reason === 'wrongPassword') note('second-factor.failure', { reason: refusal.code });
  return refusal;
}
