/** search: how many events a filter looks at in a second, one page after the other; and a question about what is not declared. */
import type { Findings } from '../findings.ts';
import { withCost } from '../measure.ts';
import { byLength, type RunOptions, type Scenario } from '../scenario.ts';
import { type SeededApp, seededApp } from '../servers/seed-events.ts';
import type { Spawned } from '../servers/spawned.ts';
import type { Workbench } from '../servers/workbench.ts';

const ROWS_PER_CORE_GOAL = 1_000_000;
/** The longest page, in milliseconds: its time, and one step that begins within it. */
const PAGE_GOAL = 3_000;

interface Search {
  readonly name: string;
  readonly query: string;
  /** The same in SQL, over `payload`. */
  readonly condition: string;
}

/** What the database can rule out by the text, what the service must decide for each event, and a text. */
const SEARCHES: readonly Search[] = [
  {
    name: 'one event by a value',
    query: 'filter=path:/articles/4711',
    condition: `payload ->> 'path' = '/articles/4711'`,
  },
  {
    name: 'one event by a text',
    query: 'q=/articles/4711%22',
    condition: `payload::text LIKE '%/articles/4711"%'`,
  },
  { name: 'a comparison that no event meets', query: 'filter=seconds>=1000', condition: 'false' },
];

interface Pages {
  readonly ids: string[];
  readonly longestMs: number;
}

/** Every page of a filter, one after the other. */
export async function allPages(
  port: number,
  { appId }: Pick<SeededApp, 'appId'>,
  token: string,
  query: string,
): Promise<Pages> {
  const ids: string[] = [];
  let longestMs = 0;
  let cursor = '';
  do {
    const startedAt = performance.now();
    const path = `/v1/apps/${appId}/events?limit=1000&${query}${cursor}`;
    const response = await fetch(`http://127.0.0.1:${port}${path}`, {
      headers: { Authorization: `Bearer ${token}` },
    });
    if (response.status !== 200)
      throw new Error(`A page was answered ${response.status}: ${await response.text()}`);
    // The shape of the API's description.
    const { data } = (await response.json()) as {
      data: { events: { id: string }[]; pagination: { nextCursor?: string } };
    };
    longestMs = Math.max(longestMs, performance.now() - startedAt);
    ids.push(...data.events.map(({ id }) => id));
    cursor = data.pagination.nextCursor === undefined ? '' : `&cursor=${data.pagination.nextCursor}`;
  } while (cursor !== '');
  return { ids, longestMs };
}

async function measure(
  bench: Workbench,
  findings: Findings,
  { app, server, token, rounds }: { app: SeededApp; server: Spawned; token: string; rounds: number },
  search: Search,
): Promise<void> {
  const matching = await bench.sql.unsafe<{ id: string }[]>(
    `SELECT id FROM events WHERE app_id = ${app.id} AND ${search.condition} ORDER BY created_at, id`,
  );
  const [rates, perCore, pages]: [number[], number[], number[]] = [[], [], []];
  for (let round = 0; round < rounds; round += 1) {
    const startedAt = performance.now();
    const { result, serverMs, databaseMs } = await withCost(bench, server, () =>
      allPages(server.port, app, token, search.query),
    );
    rates.push((app.events * 1_000) / (performance.now() - startedAt));
    perCore.push((app.events * 1_000) / (serverMs + databaseMs));
    pages.push(result.longestMs);
    findings.checkAll(
      `${search.name}: the pages find what SQL finds`,
      result.ids.join() === matching.map(({ id }) => id).join(),
    );
  }
  findings.figure(`${search.name}: events looked at`, '/s', rates);
  findings.figure(`${search.name}: events looked at, by CPU of service and PostgreSQL`, '/s', perCore);
  findings.goal(`${search.name}: events a second and core`, '/s', Math.max(...perCore), {
    atLeast: ROWS_PER_CORE_GOAL,
  });
  findings.figure(`${search.name}: longest page`, 'ms', pages);
  findings.goal(`${search.name}: longest page`, 'ms', Math.max(...pages), { atMost: PAGE_GOAL });
}

interface Question {
  readonly name: string;
  readonly body: unknown;
  /** How many events the answer speaks of, in SQL over `payload`. */
  readonly condition: string;
}

/** Questions about paths that are not declared: their rows are read. */
const QUESTIONS: readonly Question[] = [
  {
    name: 'query: a mean by user',
    body: { by: ['user'], stats: [{ of: 'seconds', stat: 'avg' }] },
    condition: 'true',
  },
  {
    name: 'query: by day, of a comparison',
    body: { filter: 'seconds>=90', interval: '1d' },
    condition: `(payload ->> 'seconds')::integer >= 90`,
  },
];

/** @returns how many events the last line of the answer speaks of */
async function asked(
  port: number,
  { appId }: Pick<SeededApp, 'appId'>,
  token: string,
  body: unknown,
): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${port}/v1/apps/${appId}/query`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  if (response.status !== 200) throw new Error(`A question was answered ${response.status}: ${text}`);
  const line = text.trimEnd().split('\n').at(-1) ?? '';
  // The shape of the API's description.
  const { complete, events } = JSON.parse(line) as { complete: boolean; events: number };
  if (!complete) throw new Error(`A question was not answered in full: ${line.slice(0, 400)}`);
  return events;
}

async function measureQuestion(
  bench: Workbench,
  findings: Findings,
  { app, server, token, rounds }: { app: SeededApp; server: Spawned; token: string; rounds: number },
  question: Question,
): Promise<void> {
  const [matching] = await bench.sql.unsafe<{ count: number }[]>(
    `SELECT count(*)::integer AS count FROM events WHERE app_id = ${app.id} AND ${question.condition}`,
  );
  const [seconds, perCore, shares]: [number[], number[], number[]] = [[], [], []];
  for (let round = 0; round < rounds; round += 1) {
    const startedAt = performance.now();
    const { result, serverMs, databaseMs } = await withCost(bench, server, () =>
      asked(server.port, app, token, question.body),
    );
    seconds.push((performance.now() - startedAt) / 1_000);
    perCore.push((app.events * 1_000) / (serverMs + databaseMs));
    shares.push(serverMs / (serverMs + databaseMs));
    findings.checkAll(`${question.name}: as many events as SQL finds`, result === matching?.count);
  }
  findings.figure(`${question.name}: answer`, 's', seconds);
  findings.figure(`${question.name}: events looked at, by CPU of service and PostgreSQL`, '/s', perCore);
  findings.figure(`${question.name}: CPU of the service, of both`, '×', shares);
  findings.goal(`${question.name}: events a second and core`, '/s', Math.max(...perCore), {
    atLeast: ROWS_PER_CORE_GOAL,
  });
}

async function run(bench: Workbench, findings: Findings, options: RunOptions): Promise<void> {
  // Of ten million events one round is long enough.
  const rounds = byLength(options, { full: 1, quick: 3, smoke: 1 });
  const app = await seededApp(bench, options.events);
  findings.note(
    `${app.events.toLocaleString('en-GB')} events of one app over 30 days, about 190 bytes of payload; every search looks at all of them.`,
  );
  const server = await bench.startService({
    limits: 'lifted',
    settings: { QUERY_SECONDS_PER_MINUTE: '60' },
  });
  const token = await bench.makeResourceToken([app]);
  const asking = { app, server, token, rounds };
  for (const search of SEARCHES) await measure(bench, findings, asking, search);
  for (const question of QUESTIONS) await measureQuestion(bench, findings, asking, question);
}

export const SEARCH: Scenario = {
  name: 'search',
  about:
    'Filtered pages of get /v1/apps/…/events through all events, by a rare value, a text and a comparison; and questions about undeclared paths.',
  shares: 'events',
  run,
};
