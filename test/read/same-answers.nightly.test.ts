/**
 * The answers of this version beside those of a commit whose answers clients know: both services store the same events, and answer the
 * reads of same-answers.txt with the same bytes, once what differs by chance (ids, cursors, times of now) has a name in both.
 */
import { readFile } from 'node:fs/promises';
import { expect, onTestFinished, test } from 'vitest';
import { checkOut, resolveCommit } from '../../bench/servers/checkout.ts';
import { ServerProcess } from '../e2e/server-process.ts';
import { LAUNCHER, tidemarkProcess } from '../support/command-line.ts';
import { testDatabase } from '../support/database.ts';
import { until } from '../support/service.ts';

/** Absent from a shallow clone. */
const known = await resolveCommit('46bceecf').catch(() => null);

const START = Date.UTC(2025, 0, 30, 21);
const COUNTRIES = ['DE', 'FR', 'IT', 'US', '5', 5, null, ['DE', 'FR']];
/** A week of three types, of which one is rare. */
const EVENTS = Array.from({ length: 600 }, (_, index) => ({
  typeName: index % 100 === 99 ? 'rare' : index % 3 === 0 ? 'order placed' : 'page viewed',
  payload: {
    n: index,
    country: COUNTRIES[(index * 7) % COUNTRIES.length],
    order: { total: index % 11 === 0 ? '12.5' : (index % 50) / 4, items: [{ sku: `X${index % 4}` }, {}] },
    text: `Zwölf Boxkämpfer ${index} \u0000 \ud800`,
    ...(index % 5 === 0 && { bot: index % 2 === 0 }),
  },
  createdAt: new Date(START + index * 17 * 60_000 + (index % 7) * 1_003).toISOString(),
  ...(index % 10 === 0 && { key: `key-${index}` }),
}));
const FIELDS = [
  ['country'],
  ['country', '--by', 'bot'],
  ['n', '--kind', 'distinct'],
  ['order.total', '--kind', 'number'],
  ['order.total', '--kind', 'number', '--by', 'country'],
];

/** The reads: the first list of the file, with a line of another list wherever one names it. */
async function listReads(): Promise<readonly string[]> {
  const text = await readFile(new URL('same-answers.txt', import.meta.url), 'utf8');
  const [[, reads = []] = [], ...parts] = text.split('\n\n').map((list) => {
    const [name = '', ...lines] = list.trim().split(/\n\s+/);
    return [name, lines] as const;
  });
  return reads.flatMap((read) => {
    const [name = '', lines = ['']] = parts.find(([part]) => read.includes(part)) ?? [];
    return lines.map((line) => (name === '' ? read : read.replace(name, () => line)));
  });
}

/** What answers have had since, by new versions of the API: fields of answers, and parameters in lists of them. */
const SINCE =
  /"unit":null,"decimals":null,|,\\?"searchedBy\\?":\\?"scan\\?"|, (?:absent|word|bins|stddev|separator|bom|texts)(?=[,.])/g;

/** A version of the service with the events. `ask` answers a read and the pages that follow, with names in place of ids. */
async function startSide(launcher: string) {
  const database = await testDatabase('postgres18', { empty: true });
  const secret = { DATABASE_URL: database.url, SECRET: 'the secret of the answers, 32 characters' };
  const settings = { ...secret, READ_LIMIT_PER_MINUTE: '0', PUBLIC_URL: 'https://events.example.com' };
  const server = await ServerProcess.start(settings, [], launcher);
  onTestFinished(async () => {
    await server.end('SIGTERM');
    await database.drop();
  });
  const command = async (...args: string[]): Promise<Record<string, string>> => {
    const { code, stdout, stderr } = await tidemarkProcess([...args, '--json'], secret, launcher);
    if (code !== 0) throw new Error(stderr);
    return JSON.parse(stdout);
  };
  const send = async (path: string, token: string, body?: string): Promise<string> => {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const sent = body === undefined ? {} : { method: 'POST', body };
    const response = await fetch(`http://127.0.0.1:${server.port}${path}`, { headers, ...sent });
    return `${response.status} ${response.headers.get('content-type')} ${await response.text()}`;
  };
  const { appId: app = '', loggingToken = '' } = await command('app', 'create', '--name', 'Web shop');
  const { resourceToken = '' } = await command('token', 'create', '--name', 'Reports', '--app', app);
  const stored = await send('/v1/events', loggingToken, JSON.stringify({ events: EVENTS }));
  for (const field of FIELDS) await command('field', 'add', '--app', app, '--backfill', '--path', ...field);
  const names = new Map([[app, 'APP']]);
  const name = (id: string, first: string, other: string): void => {
    if (!names.has(id)) names.set(id, [...names.values()].includes(first) ? other : first);
  };
  for (const [, event = '', type = ''] of stored.matchAll(/"eventId":"([^"]+)","typeId":"([^"]+)"/g)) {
    name(event, 'EVENT', `event ${names.size}`);
    name(type, 'TYPE', `type ${names.size}`);
  }
  const started = new Date().toISOString().slice(0, 10);
  const named = (text: string): string =>
    text
      .replaceAll(
        /\b(?:(?:app|typ)_\w+|[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12})\b/g,
        (id) => names.get(id) ?? id,
      )
      .replaceAll(/(nextCursor\\?":\\?")[\w-]+/g, '$1')
      .replaceAll(/20\d\d-\d\d-\d\dT[\d:.]+Z/g, (time) => (time >= started ? 'now' : time))
      .replaceAll(SINCE, '');
  const ids = new Map([...names].map(([id, given]) => [given, id]));
  const ask = async (read: string): Promise<string> => {
    const asked = read.replaceAll(/\b(?:APP|TYPE|EVENT)\b/g, (given) => ids.get(given) ?? '');
    const [, path = '', body] = /^(.*?)(?: (\{.*\}))?$/.exec(asked) ?? [];
    const pages = [await send(path, resourceToken, body)];
    for (;;) {
      const cursor = /"nextCursor":"([^"]+)"/.exec(pages.at(-1) ?? '')?.[1];
      if (cursor === undefined) return pages.map(named).join('\n');
      pages.push(await send(`${path}&cursor=${cursor}`, resourceToken, body));
    }
  };
  return { ask, stored: named(stored) };
}

test.skipIf(known === null)('answers have the bytes of a known version, where history has it', async () => {
  const launcher = `${await checkOut(known ?? '')}/tidemark.mjs`;
  // One after the other: a service that started once the test has failed would stay.
  const before = await startSide(launcher);
  const now = await startSide(LAUNCHER);
  expect(now.stored).toBe(before.stored);
  for (const counted of [
    'by=country&filter=bot:true',
    'of=n&stat=distinct',
    'of=order.total&stat=sum&by=country',
  ])
    for (const { ask } of [before, now])
      await until(async () => (await ask(`/v1/apps/APP/series?${counted}`)).startsWith('200'), counted);
  for (const read of await listReads()) expect(await now.ask(read), read).toBe(await before.ask(read));
});
