/** A restored installation sends nothing, and judges nothing, until an operator says so. */
import { sendAgain } from '../accounts/people/senders.ts';
import type { Sql } from '../storage/database/connect.ts';

/** Whether the installation was restored, and nobody has said yet that it sends. */
export async function areDeliveriesStopped(sql: Sql): Promise<boolean> {
  const [row] = await sql`SELECT FROM installation WHERE name = 'deliveries' AND value = 'stopped'`;
  return row !== undefined;
}

/**
 * Has a restored installation send. Alerts are judged from the present minute on: nothing is told of the time between.
 * @returns false if it was not stopped
 */
export async function resumeDeliveries(sql: Sql): Promise<boolean> {
  return await sql.begin('isolation level read committed', async (tx) => {
    const { count } = await tx`DELETE FROM installation WHERE name = 'deliveries' AND value = 'stopped'`;
    if (count > 0) {
      await tx`UPDATE alert_rules SET evaluated_at = NULL`;
      await sendAgain(tx, 'all');
    }
    return count > 0;
  });
}
