/** /api/apps/:appId/retention: for how long events of an app and of its types are kept, and what a change would hide. */

import type { Api } from '../../accounts/routes/api.ts';
import { bodyOf } from '../../accounts/routes/body.ts';
import type { RetentionAnswer, RetentionPreview } from '../../api-types/answers.ts';
import { invalidField, WrongField } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { Outcome } from '../../http/exchange.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import {
  countHidden,
  listRetention,
  parseKept,
  planRetention,
  type RetentionSettings,
  setRetention,
  shownRule,
} from '../retention.ts';

export interface RetentionRoutesOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly settings: RetentionSettings;
  readonly now: () => number;
}

const PATH = '/api/apps/:appId/retention';
const CHANGE = bodyOf(
  {
    type: { type: 'string', maxLength: 1_000, nullable: true },
    days: { type: 'string', maxLength: 20 },
    dryRun: { type: 'boolean' },
  },
  ['days'],
);

export function retentionRoutes({ api, sql, settings, now }: RetentionRoutesOptions): readonly Route[] {
  const answer = async (appId: string): Promise<Outcome> =>
    done<RetentionAnswer>({
      rules: (await listRetention(sql, settings, appId)).map(shownRule),
      longest: settings.RETENTION_DAYS === 0 ? null : settings.RETENTION_DAYS,
    });
  const preview = async (
    events: Pick<EventReader, 'page'>,
    appId: string,
    type: string | null,
    days: string,
  ): Promise<Outcome> => {
    const asked = { appId, type, days: parseKept(days), now: now() };
    const plan = await planRetention(sql, settings, asked);
    const { readableFrom } = shownRule({ readableFrom: plan.boundary });
    return done<RetentionPreview>({ readableFrom, hidden: await countHidden(events, plan) });
  };
  return [
    api.read(PATH, 'read', ({ app: { appId } }) => answer(appId)),
    api.readInTurn(`${PATH}/preview`, 'own', ({ app: { appId }, exchange, events }) =>
      inFields(() => {
        const query = new URLSearchParams(exchange.query);
        return preview(events, appId, query.get('type'), query.get('days') ?? '');
      }),
    ),
    api.change('PUT', PATH, 'own', CHANGE, (call, { type = null, days, dryRun = false }, outside) =>
      inFields(async () => {
        const { app, by } = call;
        const { appId } = app;
        if (dryRun)
          return await outside(() => api.inTurn(call, ({ events }) => preview(events, appId, type, days)));
        await setRetention(sql, settings, { appId, type, days: parseKept(days), now: now(), by });
        return await answer(appId);
      }),
    ),
  ];
}

async function inFields(work: () => Promise<Outcome>): Promise<Outcome> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof WrongField) return invalidField(error.field, error.problem);
    throw error;
  }
}
