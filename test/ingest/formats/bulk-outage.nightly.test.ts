/**
 * An outage of the database in the middle of a bulk request: of documents with ids the whole request is refused with 503, which
 * clients repeat, and the repeat stores what is missing and nothing twice; of others each item says what became of it.
 */
import { Client, HttpConnection } from '@elastic/elasticsearch';
import { afterEach, expect, test } from 'vitest';
import type { HttpResponse } from '../../support/http-client.ts';
import { Opened } from '../../support/proxied-service.ts';
import { type FaultyProxy, isBatch } from '../../support/proxy.ts';
import { RunningClock, type TestService, until } from '../../support/service.ts';

const opened = new Opened();
afterEach(opened.stopAll);

/** More than one transaction takes. */
const DOCUMENTS = 5_000;
const PATH = '/v1/elasticsearch/_bulk';
/** How long a transaction is retried. */
const RETRIED_MS = 12_001;

interface World {
  readonly service: TestService;
  readonly proxy: FaultyProxy;
  readonly clock: RunningClock;
  /** Actions and documents; those of `ids` are given one. */
  readonly operations: (ids: number) => object[];
}

async function world(): Promise<World> {
  const clock = new RunningClock();
  const { service, proxy } = await opened.proxied({ clock, config: { COMMIT_CONNECTIONS: 1 } });
  const time = new Date(Date.now() - 1_000).toISOString();
  // Its type is known before the outage.
  expect((await service.post({ typeId: undefined, typeName: 'bulk' })).status).toBe(201);
  await service.sql`TRUNCATE events`;
  const operations = (ids: number): object[] =>
    Array.from({ length: DOCUMENTS }, (_, n) => [
      { create: { _index: 'bulk', ...(n < ids && { _id: `d${n}` }) } },
      { '@timestamp': time, n },
    ]).flat();
  return { service, proxy, clock, operations };
}

function post({ service }: World, operations: readonly object[]): Promise<HttpResponse> {
  return service.request({
    method: 'POST',
    path: PATH,
    body: operations.map((one) => `${JSON.stringify(one)}\n`).join(''),
    headers: {
      Authorization: `ApiKey ${service.app.loggingToken}`,
      'Content-Type': 'application/x-ndjson',
    },
  });
}

/** The database goes away when it has committed a part of what is sent, and has been asked for the next. */
async function loseDatabaseInTheMiddle({ proxy, clock }: World): Promise<void> {
  let transactions = 0;
  proxy.decide = (sent) => {
    if (isBatch(sent)) transactions += 1;
    return transactions > 1 ? 'lose-request' : 'forward';
  };
  await until(() => transactions > 1, 'the second transaction is on its way');
  await proxy.goAway();
  clock.advance(RETRIED_MS);
}

async function recover({ service, proxy }: World): Promise<void> {
  proxy.decide = () => 'forward';
  await proxy.comeBack();
  await until(async () => (await service.post()).status === 201, 'events are stored again');
}

/** How many events there are, and of how many documents. */
async function stored({ service }: World): Promise<{ events: number; documents: number }> {
  const [row] = await service.sql<{ events: number; documents: number }[]>`
    SELECT count(payload ->> 'n')::integer AS events, count(DISTINCT payload ->> 'n')::integer AS documents FROM events`;
  return row ?? { events: 0, documents: 0 };
}

const statuses = ({ body }: HttpResponse): number[] =>
  (JSON.parse(body) as { items: { create: { status: number } }[] }).items.map(({ create }) => create.status);

test('documents with ids, of which a part was committed: the request is refused whole, and a repeat stores the rest', async () => {
  const now = await world();
  const answer = post(now, now.operations(DOCUMENTS));
  await loseDatabaseInTheMiddle(now);
  const { status, headers, body } = await answer;
  // Plain text: rsyslog drops what is refused in JSON.
  expect({ status, type: headers['content-type'], body }).toEqual({
    status: 503,
    type: 'text/plain',
    body: expect.stringMatching(/^Not stored yet: /),
  });
  expect(Number(headers['retry-after'])).toBeGreaterThan(0);
  await recover(now);
  const { events: before } = await stored(now);
  expect(before).toBeGreaterThan(0);
  expect(before).toBeLessThan(DOCUMENTS);

  const again = statuses(await post(now, now.operations(DOCUMENTS)));
  expect(again.filter((one) => one === 200)).toHaveLength(before);
  expect(again.filter((one) => one === 201)).toHaveLength(DOCUMENTS - before);
  expect(await stored(now)).toEqual({ events: DOCUMENTS, documents: DOCUMENTS });
});

test('one document without an id: what is stored is told, and what is not has the status that clients repeat', async () => {
  const now = await world();
  const answer = post(now, now.operations(DOCUMENTS - 1));
  await loseDatabaseInTheMiddle(now);
  const response = await answer;
  expect(response.status).toBe(200);
  const told = statuses(response);
  expect(new Set(told)).toEqual(new Set([201, 429]));
  await recover(now);
  expect((await stored(now)).events).toBe(told.filter((one) => one === 201).length);
  const operations = now.operations(DOCUMENTS - 1);
  const failed = told.flatMap((one, n) => (one === 429 ? operations.slice(2 * n, 2 * n + 2) : []));
  expect(new Set(statuses(await post(now, failed)))).toEqual(new Set([201]));
  expect(await stored(now)).toEqual({ events: DOCUMENTS, documents: DOCUMENTS });
});

test("Elasticsearch's client repeats by itself what an outage has refused, and nothing is stored twice", async () => {
  const now = await world();
  const { service } = now;
  const client = new Client({
    node: `${service.url}/v1/elasticsearch`,
    auth: { apiKey: service.app.loggingToken },
    Connection: HttpConnection,
    maxRetries: 20,
  });
  const refusals = async (): Promise<number> => {
    const { body } = await service.request({ path: '/metrics' });
    const line = body
      .split('\n')
      .find((one) => one.includes(`route="${PATH}"`) && one.includes('status="503"'));
    return Number(line?.split(' ').at(-1) ?? 0);
  };
  try {
    const told = client.bulk({ operations: now.operations(DOCUMENTS) });
    told.catch(() => undefined); // It is awaited below.
    await loseDatabaseInTheMiddle(now);
    await until(async () => (await refusals()) > 0, 'the client is refused');
    await recover(now);
    const { errors, items } = await told;
    expect({ errors, items: items.length }).toEqual({ errors: false, items: DOCUMENTS });
    expect(await stored(now)).toEqual({ events: DOCUMENTS, documents: DOCUMENTS });
  } finally {
    await client.close();
  }
});
