/**
 * The events acknowledged to a load generator, small enough to be kept for millions of events: how many, and the sum of the
 * ids' last 32 bits, which are random. Two sets of ids that agree in both are the same set but for a chance of 1 in 2^32.
 */
import type { Sql } from '../../src/storage/database/connect.ts';

export interface LedgerSum {
  readonly events: number;
  /** Modulo 2^48, so that it stays a whole number. */
  readonly idSum: number;
}

const MODULUS = 2 ** 48;
const OPENING = '{"success":true,"eventId":"';
const ID_CHARACTERS = 36;
/** Where an id's last 32 bits begin in an answer. */
const TAIL = OPENING.length + ID_CHARACTERS - 8;

export class AcknowledgedEvents {
  #events = 0;
  #idSum = 0;

  /** Takes note of an answer's body; anything but an acknowledgement changes nothing. */
  note(body: string): void {
    if (!body.startsWith(OPENING)) return;
    this.#events += 1;
    this.#idSum = (this.#idSum + Number.parseInt(body.slice(TAIL, TAIL + 8), 16)) % MODULUS;
  }

  sum(): LedgerSum {
    return { events: this.#events, idSum: this.#idSum };
  }
}

export function addSums(sums: readonly LedgerSum[]): LedgerSum {
  return sums.reduce(
    (total, sum) => ({ events: total.events + sum.events, idSum: (total.idSum + sum.idSum) % MODULUS }),
    { events: 0, idSum: 0 },
  );
}

/**
 * The same sum over the rows of a table, and how many ids are there more than once.
 * @param since milliseconds since 1970: of events from then on
 */
export async function sumOfTable(
  sql: Sql,
  table: string,
  appIds: readonly number[],
  since = 0,
): Promise<LedgerSum & { readonly twice: number }> {
  const [row] = await sql<{ events: number; idSum: string; ids: number }[]>`
    SELECT count(*)::float8 AS events,
           count(DISTINCT id)::float8 AS ids,
           coalesce(sum(('x' || right(id::text, 8))::bit(32)::bigint) % ${String(MODULUS)}::bigint, 0)::text AS "idSum"
      FROM ${sql(table)} WHERE app_id = ANY(${[...appIds]}::integer[])
       AND created_at >= to_timestamp(${since / 1_000}::float8)`;
  const { events = 0, idSum = '0', ids = 0 } = row ?? {};
  return { events, idSum: Number(idSum), twice: events - ids };
}
