/** Exact totals of filters, as the counts of declared fields answer them. */
import { countedValues } from '../../src/read/filter/counted-values.ts';
import { parseFilter } from '../../src/read/filter/parse-filter.ts';
import { payloadFilter } from '../../src/read/filter/payload-filter.ts';
import type { Sql } from '../../src/storage/database/connect.ts';
import { createReader, type EventReader } from '../../src/storage/read/event-reader.ts';

const SCOPE = { typeIds: null, from: null, until: null, order: 'asc', after: null } as const;

/**
 * @param appId  internal id
 * @param filter on values of a field, such as `country:DE`
 * @returns undefined where counts do not answer it
 */
export async function countedTotal(sql: Sql, appId: number, filter: string): Promise<number | undefined> {
  return await totalBy(createReader(sql), appId, filter);
}

/** The same by the reader of a storage. */
export async function totalBy(
  reader: Pick<EventReader, 'filteredList'>,
  appId: number,
  filter: string,
): Promise<number | undefined> {
  const condition = parseFilter(filter);
  if ('problem' in condition) throw new Error(condition.problem);
  const values = countedValues(condition);
  const rows = payloadFilter([condition]);
  if (values === null || rows === null) throw new Error(`${filter} is not about values`);
  const request = { ...SCOPE, appId, limit: 1, maxBytes: 1_000_000, withTotal: true };
  const list = await reader.filteredList(request, { path: condition.path, values, rows });
  return typeof list === 'string' ? undefined : (list.total ?? undefined);
}
