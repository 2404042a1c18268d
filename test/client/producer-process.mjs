/** A producer with a queue on disk, in a process of its own that a test kills: it logs numbers and prints those that were accepted. */
import { writeSync } from 'node:fs';

const [url = '', loggingToken = '', queueFolder = '', first = '0', count = '0', skewMs = '0', client = ''] =
  process.argv.slice(2);
const { EventLogger } = await import(client);
const { now } = Date;
Date.now = () => now() + Number(skewMs);
const logger = new EventLogger({ url, loggingToken, queueFolder, lingerMs: 20, maxBatchEvents: 100 });
for (let n = Number(first); n < Number(first) + Number(count); n += 1) {
  // The real time beside the wrong one.
  if (logger.log('queued', { n, real: now() })) writeSync(1, `${n}\n`);
  if (n % 50 === 49) await new Promise((resolve) => setTimeout(resolve, 1));
}
writeSync(1, `left ${await logger.close({ timeoutMs: 60_000 })}\n`);
