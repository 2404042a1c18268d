/** GET /api/apps/:appId/audit/export: an app's audit log for its owners, streamed. */

import { type AuditScope, auditHorizon, auditLines } from '../../accounts/log/audit-export.ts';
import { type Api, type MemberCall, turnsOfSession } from '../../accounts/routes/api.ts';
import type { Sessions } from '../../accounts/sessions/sessions.ts';
import { rolesThat } from '../../base/roles.ts';
import { Rejection } from '../../errors.ts';
import type { Outcome } from '../../http/exchange.ts';
import { Query, wholeNumber } from '../../http/query.ts';
import type { ReadSlots, ReadTurn } from '../../http/read-slots.ts';
import type { Route } from '../../http/route.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { checkScope, SCOPE } from '../scope-query.ts';
import { CONTENT_TYPES } from './export-body.ts';
import { type Admitted, type Exports, ExportWaiter } from './exports.ts';

export interface AuditExportOptions {
  readonly api: Api;
  readonly sql: Sql;
  readonly sessions: Sessions;
  readonly exports: Exports;
  /** Each part waits for its turn among all reads. */
  readonly slots: ReadSlots;
}

const QUERY = new Query(
  {
    from: SCOPE.from,
    to: SCOPE.to,
    after: wholeNumber('Continues after the entry with this `entryId`.', {
      minimum: 0,
      absent: 0,
      largest: Number.MAX_SAFE_INTEGER,
    }),
  },
  checkScope,
);

const BUSY = new Rejection(
  'unavailable',
  'A change that writes to the audit log takes long; try again shortly.',
  {
    retryAfterSeconds: 5,
  },
);

export function auditExportRoute(options: AuditExportOptions): Route {
  const { api, sql, exports } = options;
  return api.read('/api/apps/:appId/audit/export', 'own', async (call) => {
    const query = QUERY.parse(call.exchange.query);
    if (query instanceof Rejection) return query;
    const admitted = await exports.admit(
      turnsOfSession(call.user),
      async () => (await auditHorizon(sql)) ?? BUSY,
    );
    if (admitted instanceof Rejection) return admitted;
    const { from, to: until, after } = query;
    return streamed(options, call, { appId: call.app.id, from, until, after }, admitted);
  });
}

function streamed(
  { sql, sessions, exports, slots }: AuditExportOptions,
  call: MemberCall,
  scope: AuditScope,
  { admission, prepared: horizon }: Admitted<number>,
): Outcome {
  const mayRead = async (): Promise<boolean> => {
    const [valid, owners] = await Promise.all([
      sessions.findValid(sql, [call.session.digest]),
      sql`SELECT FROM app_members WHERE app_id = ${call.app.id} AND user_id = ${call.user.id} AND role = ANY(${rolesThat('own')})`,
    ]);
    return valid.size > 0 && owners.length > 0;
  };
  return {
    status: 200,
    contentType: CONTENT_TYPES.ndjson,
    headers: {
      'Content-Disposition': 'attachment; filename="audit.ndjson"',
      // nginx would store the answer on its disk before its reader gets it.
      'X-Accel-Buffering': 'no',
    },
    filler: '',
    isFinite: true,
    open: (stream) => {
      const waiter = new ExportWaiter(call.exchange);
      waiter.begin(stream);
      const turn = { kind: 'export', turns: turnsOfSession(call.user), waiter } as const;
      void exports.send(admission, stream, textOf(slots, turn, scope, horizon), mayRead);
    },
  };
}

async function* textOf(
  slots: ReadSlots,
  turn: ReadTurn,
  scope: AuditScope,
  horizon: number,
): AsyncGenerator<Buffer> {
  let parts: ReturnType<typeof auditLines> | null = null;
  for (;;) {
    const part = await slots.run(turn, async ({ sql }) => {
      parts ??= auditLines(sql, scope, horizon);
      return await parts.next();
    });
    if (part instanceof Rejection) throw new Error(part.details);
    if (part.done === true) return;
    yield part.value.lines;
  }
}
