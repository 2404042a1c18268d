/**
 * wrk as a second generator, where it is installed: it costs a fifth of what autocannon costs, so that on shared cores
 * more is left for what is measured. It does not read answers; a ledger can only be compared within what it cut off.
 */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { LoadRequest } from './load-job.ts';

export interface WrkReport {
  /** Answers a second below 400, and others. */
  readonly accepted: number;
  readonly refused: number;
  /** Answers below 400 in all. */
  readonly acknowledged: number;
  /** Connection errors and timeouts. */
  readonly unanswered: number;
}

/** Prints its figures as one line of JSON instead of text. */
const DONE = `
done = function(summary)
  local errors = summary.errors
  io.write(string.format('\\nJSON {"requests":%d,"micros":%d,"refused":%d,"unanswered":%d}\\n', summary.requests,
    summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end`;

/** @param folder for the script @returns what one run of one thread found */
export async function runWrk(
  program: string,
  folder: string,
  job: { port: number; connections: number; seconds: number; request: LoadRequest },
): Promise<WrkReport> {
  const { method, path, body = '' } = job.request;
  const script = join(folder, 'wrk.lua');
  await writeFile(
    script,
    `wrk.method = "${method}"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = [==[${body}]==]\n${DONE}\n`,
  );
  const { stdout } = await promisify(execFile)(program, [
    ...['-t1', `-c${job.connections}`, `-d${job.seconds}s`, '--timeout', '30s', '-s', script],
    `http://127.0.0.1:${job.port}${path}`,
  ]);
  const figures = /^JSON (.*)$/m.exec(stdout)?.[1];
  if (figures === undefined) throw new Error(`unexpected output of wrk: ${stdout}`);
  const { requests, micros, refused, unanswered } = JSON.parse(figures) as Record<string, number>;
  const seconds = (micros ?? Number.NaN) / 1e6;
  const acknowledged = (requests ?? 0) - (refused ?? 0);
  return {
    accepted: acknowledged / seconds,
    refused: (refused ?? 0) / seconds,
    acknowledged,
    unanswered: unanswered ?? 0,
  };
}
