/** Routes of erasures, for owners with their password. */

import { parseEmail } from '../accounts/people/email.ts';
import type { Api } from '../accounts/routes/api.ts';
import { bodyOf } from '../accounts/routes/body.ts';
import { NO_EMAIL, password } from '../accounts/routes/people.ts';
import type { SignIn } from '../accounts/sign-in/sign-in.ts';
import type { ErasureMatch, ErasureState, Erasures } from '../api-types/answers.ts';
import type { Secret } from '../apps/secret.ts';
import { Rejection } from '../errors.ts';
import { done } from '../http/data.ts';
import type { Route } from '../http/route.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { Storage } from '../storage/storage.ts';
import { parseConditions } from './conditions.ts';
import { countMatching, coversUntil, showErasures } from './erase.ts';
import { askErasure, checkReason, listErasures } from './erasures.ts';

export interface ErasureRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly storage: Storage;
  readonly secret: Secret;
  readonly signIn: SignIn;
  readonly now: () => number;
  readonly monotonic: () => number;
}

/** How long a request looks for events. */
const COUNT_MS = 15_000;

const BODY = bodyOf(
  {
    filter: { type: 'array', items: { type: 'string', maxLength: 1_000 }, maxItems: 20 },
    reason: { type: 'string', maxLength: 500 },
    anonymize: { type: 'boolean' },
    dryRun: { type: 'boolean' },
    most: { type: 'boolean' },
    password,
  },
  ['filter'],
);

const TOO_LONG = new Rejection(
  'unavailable',
  'The app has too many events to be looked through by one request: the command "tidemark erase" has the time.',
);
const NO_PASSWORD = new Rejection('invalidBody', 'The field "password" is missing: an erasure needs it.');

export function erasureRoutes(options: ErasureRoutesOptions): readonly Route[] {
  const { api, sql, storage, secret, signIn, now, monotonic } = options;
  return [
    api.readInTurn('/api/apps/:appId/erasures', 'own', async ({ app, sql: reads }) =>
      done<Erasures>({
        erasures: await showErasures({ sql: reads, storage }, app.id, await listErasures(reads, app.id)),
      }),
    ),
    api.change('POST', '/api/apps/:appId/erasures', 'own', BODY, async (call, body, outside) => {
      const { app, user, by, client, exchange } = call;
      const { filter, reason = null, anonymize = false, dryRun = false, most = false } = body;
      const action = anonymize ? 'anonymize' : 'delete';
      const conditions = parseConditions(filter, action);
      checkReason(reason);
      if (!dryRun) {
        if (body.password === undefined) return NO_PASSWORD;
        // Counted like sign-ins: an open session must not be a way to guess the password.
        const email = parseEmail(user.email);
        if (email === null) return NO_EMAIL;
        const verified = await signIn.check({ email, password: body.password }, client);
        if (verified instanceof Rejection) return verified;
      }
      const askedAt = now();
      const counted = await outside(() =>
        api.inTurn(call, async ({ sql: reads, pass }) => {
          const parts = { sql: reads, storage };
          const until = await coversUntil(parts, app.id, askedAt);
          const deadline = monotonic() + COUNT_MS;
          const goesOn = async (): Promise<boolean> =>
            monotonic() < deadline && !exchange.settled && (await pass());
          return { until, match: await countMatching(parts, app.id, conditions, { goesOn }) };
        }),
      );
      if (counted instanceof Rejection) return counted;
      const { until, match } = counted;
      if (match === null) return TOO_LONG;
      if (dryRun) return done<ErasureMatch>(match);
      const { matching, total } = match;
      if (matching * 2 > total && !most)
        return new Rejection(
          'invalidBody',
          `${matching} of ${total} events match, more than half of the app: confirm it with "most": true.`,
        );
      const asked = { app, action, conditions, reason, by, matching, askedAt, coversUntil: until } as const;
      const erasure = await askErasure(sql, secret, asked);
      const [shown] = await showErasures({ sql, storage }, app.id, [erasure]);
      if (shown === undefined) throw new Error('An erasure was not shown.');
      return done<ErasureState>(shown, { status: 202 });
    }),
  ];
}
