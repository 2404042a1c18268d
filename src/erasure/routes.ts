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
import { countMatching, coversUntil, showErasure } from './erase.ts';
import { askErasure, checkReason, listErasures, type StoredErasure } from './erasures.ts';

export interface ErasureRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly storage: Storage;
  readonly secret: Secret;
  readonly signIn: SignIn;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Milliseconds of a monotonic clock. */
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
  const show = (erasure: StoredErasure) => showErasure({ sql, storage }, erasure);
  return [
    api.read('/api/apps/:appId/erasures', 'owner', async ({ app }) =>
      done<Erasures>({ erasures: await Promise.all((await listErasures(sql, app.id)).map(show)) }),
    ),
    api.change('POST', '/api/apps/:appId/erasures', 'owner', BODY, async (call, body) => {
      const { app, user, by, client } = call;
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
      const until = await coversUntil({ sql, storage }, app.id, askedAt);
      const deadline = monotonic() + COUNT_MS;
      const isStopped = (): boolean => monotonic() >= deadline || call.exchange.settled;
      const match = await countMatching({ sql, storage }, app.id, conditions, { isStopped });
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
      return done<ErasureState>(await show(erasure), { status: 202 });
    }),
  ];
}
