/** Closed-loop load by autocannon, ended so that every request has its answer: only then can a ledger be compared. */
import { gzipSync } from 'node:zlib';
import autocannon from 'autocannon';
import { LatencyHistogram } from './latency.ts';
import { AcknowledgedEvents } from './ledger.ts';
import type { ClosedJob, LoadReport, LoadRequest } from './load-job.ts';

/** What autocannon's client has beyond its types: after an answer it ends once it has made this many requests. */
type Client = autocannon.Client & { responseMax: number | undefined; reqsMade: number };

const MAX_REFUSALS = 5;
const SAMPLE_MS = 50;

export async function runClosedLoop(job: ClosedJob, nextGlobal: () => number): Promise<LoadReport> {
  const clients: Client[] = [];
  const acknowledged = new AcknowledgedEvents();
  const latency = new LatencyHistogram();
  const statuses: Record<string, number> = {};
  const refusals: string[] = [];
  let answered = 0;
  let lastAnswer = performance.now();
  let sequence = 0;
  const number = (body: string): string =>
    body.replace('{n}', () => String(sequence++)).replace('{g}', () => String(nextGlobal()));

  const requests = job.requests.map((request) => autocannonRequest(request, number));
  // Thousands of requests that every connection has rendered would take its time from what is measured.
  const hasShares = job.once === true || requests.length > job.connections;
  const cpuBefore = process.cpuUsage();
  const started = performance.now();
  const run = autocannon({
    url: `http://127.0.0.1:${job.port}`,
    connections: job.connections,
    // uWebSockets.js closes a connection whose second request comes before the first one's answer.
    pipelining: 1,
    // Never reached: the clients are ended one by one, below. Its sum of all connections must hold a run's length.
    duration: 86_400,
    timeout: 60,
    sampleInt: SAMPLE_MS,
    // Each client renders all that it is given.
    requests: hasShares ? requests.slice(0, 1) : requests,
    setupClient: (untyped) => {
      const client = untyped as Client;
      // Each begins elsewhere, or all would send the same at the same time.
      const firstOf = (index: number): number => Math.floor((index * requests.length) / job.connections);
      const first = firstOf(clients.length);
      if (hasShares) {
        const end = firstOf(clients.length + 1);
        client.setRequests(requests.slice(first, end));
        if (job.once === true) client.responseMax = end - first;
      } else if (first > 0) client.setRequests([...requests.slice(first), ...requests.slice(0, first)]);
      clients.push(client);
      client.on('response', (status, _bytes, ms) => {
        statuses[status] = (statuses[status] ?? 0) + 1;
        answered += 1;
        latency.record(ms);
        lastAnswer = performance.now();
      });
    },
    verifyBody: (body) => {
      const text = String(body);
      acknowledged.note(text);
      if (refusals.length < MAX_REFUSALS && text.startsWith('{"success":false')) refusals.push(text);
      return true;
    },
  });
  const timer = setTimeout(() => {
    if (job.once !== true) for (const client of clients) client.responseMax = 1;
  }, job.seconds * 1_000);
  const result = await run;
  clearTimeout(timer);
  const cpu = process.cpuUsage(cpuBefore);
  return {
    seconds: (lastAnswer - started) / 1_000,
    statuses,
    unanswered: result.errors,
    dropped: 0,
    acknowledged: acknowledged.sum(),
    latency: latency.summary(),
    generatorMicros: (cpu.user + cpu.system) / answered,
    refusals,
  };
}

function autocannonRequest(request: LoadRequest, number: (body: string) => string): autocannon.Request {
  const { method, path, headers = {}, body, gzip = false, base64 = false } = request;
  const fixed = { method, path, headers: { 'Content-Type': 'application/json', ...headers } };
  if (body === undefined) return fixed;
  if (base64) return { ...fixed, body: Buffer.from(body, 'base64') };
  if (gzip) {
    const encoding = { ...fixed.headers, 'Content-Encoding': 'gzip' };
    return { ...fixed, headers: encoding, body: gzipSync(body, { level: 1 }) };
  }
  if (!/\{[ng]\}/.test(body)) return { ...fixed, body };
  return { ...fixed, body: number(body), setupRequest: (one) => ({ ...one, body: number(body) }) };
}
