/** A page of the audit log of an app or an account, as its route answers it. */
import type { AuditPage } from '../../api-types/answers.ts';
import { Rejection } from '../../errors.ts';
import { done } from '../../http/data.ts';
import type { Exchange, Outcome } from '../../http/exchange.ts';
import type { Sql } from '../../storage/database/connect.ts';
import { type AuditOf, listAudit } from '../log/audit.ts';
import { sentenceOf } from './audit-sentences.ts';

const NO_ENTRY = new Rejection('invalidParameters', 'before must be the entryId of an entry.');

export async function auditPage(sql: Sql, of: AuditOf, exchange: Exchange): Promise<Outcome> {
  const before = new URLSearchParams(exchange.query).get('before');
  if (before !== null && !/^\d{1,15}$/.test(before)) return NO_ENTRY;
  const { entries, hasMore } = await listAudit(sql, of, before === null ? null : Number(before));
  return done<AuditPage>({
    entries: entries.map((entry) => ({ ...entry, text: sentenceOf(entry) })),
    hasMore,
  });
}
