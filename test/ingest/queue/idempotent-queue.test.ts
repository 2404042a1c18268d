/** How requests with an Idempotency-Key wait for their commit, and how many may. */
import { expect, test } from 'vitest';
import {
  IdempotentQueue,
  type IdempotentQueueOptions,
  type Lane,
} from '../../../src/ingest/queue/idempotent-queue.ts';
import type { IdempotentRequest } from '../../../src/storage/write/idempotent-writer.ts';
import { SOURCE } from '../../support/source.ts';

type Answers = Awaited<ReturnType<IdempotentQueueOptions['write']>>;

interface Write {
  readonly keys: readonly string[];
  readonly lane: Lane;
  /** Ends the write: each request gets its own answer. */
  readonly finish: () => void;
}

/** A queue whose writes end when the test says so. */
function setUp({ maxEvents = 1_000_000, maxBytes = 1_000_000_000, repeated = 0 } = {}) {
  const writes: Write[] = [];
  const stored: string[] = [];
  const queue = new IdempotentQueue({
    holderOf: (appId) => [appId, appId],
    maxEvents,
    maxBytes,
    onStored: ({ id }) => stored.push(id),
    write: (requests, lane) =>
      new Promise<Answers>((resolve) => {
        writes.push({
          lane,
          keys: requests.map(({ identity }) => identity?.keyDigest.toString() ?? ''),
          finish: () =>
            resolve(
              requests.map(({ answer, events }) => ({ stored: events.slice(repeated), repeated, answer })),
            ),
        });
      }),
  });
  return { queue, writes, stored };
}

function keyed(key: string, payload = '{}', events = 1): IdempotentRequest {
  const answer = { status: 201, body: key, bytes: key.length };
  return {
    appId: 1,
    identity: { keyDigest: Buffer.from(key), bodyDigest: Buffer.from(payload) },
    acceptedAt: 0,
    events: Array.from({ length: events }, (_, n) => ({
      id: `${key}-${n}`,
      appId: 1,
      typeId: 1,
      createdAt: 0,
      payload,
      source: SOURCE,
    })),
    answer,
    answerRepeated: () => answer,
    answerWithout: () => answer,
  };
}

/** Adds a request; gives the body of its answer, or the reason why it is refused. */
async function add(
  queue: IdempotentQueue,
  request: IdempotentRequest,
  lane: Lane = 'event',
): Promise<unknown> {
  const outcome = await queue.add(request, lane);
  return 'reason' in outcome ? outcome.reason : outcome.body;
}

/** Long enough for everything that needs no write to end. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
}

test('beyond a ceiling of events or of payloads a request is refused at once, but for one that waits alone', async () => {
  const { queue, writes } = setUp({ maxEvents: 3, maxBytes: 200 });
  const large = add(queue, keyed('large', 'x'.repeat(1_000), 5));
  expect(await add(queue, keyed('second'))).toBe('unavailable');
  await settle();
  writes[0]?.finish();
  expect(await large).toBe('large');
  const [first, second] = [add(queue, keyed('a', '{}', 2)), add(queue, keyed('b', `"${'x'.repeat(80)}"`, 1))];
  expect(await add(queue, keyed('too many'))).toBe('unavailable');
  await settle();
  writes[1]?.finish();
  expect(await Promise.all([first, second])).toEqual(['a', 'b']);
});

test('of requests with the same key the second waits for the commit of the first, and others go ahead of it', async () => {
  const { queue, writes } = setUp();
  const answers = ['a', 'a', 'b', 'a'].map((key) => add(queue, keyed(key)));
  for (let turn = 0; turn < 3; turn += 1) {
    await settle();
    writes[turn]?.finish();
  }
  await Promise.all(answers);
  expect(writes.map(({ keys }) => keys)).toEqual([['a', 'b'], ['a'], ['a']]);
});

test('one commit is in flight at a time, and keys of different apps are different keys', async () => {
  const { queue, writes } = setUp();
  const answers = [add(queue, keyed('first'))];
  await settle();
  answers.push(add(queue, keyed('a')), add(queue, { ...keyed('a'), appId: 2 }));
  await settle();
  expect(writes.map(({ keys }) => keys)).toEqual([['first']]);
  writes[0]?.finish();
  await settle();
  expect(writes[1]?.keys).toEqual(['a', 'a']);
  writes[1]?.finish();
  expect(await Promise.all(answers)).toEqual(['first', 'a', 'a']);
});

test('single events, batches and requests with past days each have a commit of their own, and their own room', async () => {
  const { queue, writes } = setUp({ maxEvents: 2 });
  const answers = [add(queue, keyed('event')), add(queue, keyed('batch', '{}', 2), 'batch')];
  answers.push(add(queue, keyed('past', '{}', 2), 'past'));
  expect(await add(queue, keyed('no room', '{}', 2), 'batch')).toBe('unavailable');
  await settle();
  expect(writes.map(({ keys, lane }) => [lane, ...keys])).toEqual([
    ['event', 'event'],
    ['batch', 'batch'],
    ['past', 'past'],
  ]);
  expect(queue.depth).toBe(5);
  // The one that waits longest holds no other up.
  for (const lane of [0, 1]) writes[lane]?.finish();
  expect(await Promise.all(answers.slice(0, 2))).toEqual(['event', 'batch']);
  answers.push(add(queue, keyed('next', '{}', 2), 'batch'));
  await settle();
  writes[3]?.finish();
  writes[2]?.finish();
  expect(await Promise.all(answers)).toEqual(['event', 'batch', 'past', 'next']);
});

test('a commit has at most 1,000 events, and no request overtakes an earlier one with its key', async () => {
  const { queue, writes } = setUp();
  const first = add(queue, keyed('first'));
  await settle();
  const sizes = [
    ['a', 600],
    ['b', 600],
    ['b', 1],
    ['c', 400],
    ['d', 1],
  ] as const;
  const answers = sizes.map(([key, events]) => add(queue, keyed(key, '{}', events)));
  for (let commit = 0; commit < 4; commit += 1) {
    writes[commit]?.finish();
    await settle();
  }
  expect(writes.map(({ keys }) => keys)).toEqual([['first'], ['a', 'c'], ['b', 'd'], ['b']]);
  expect(await Promise.all([first, ...answers])).toEqual(['first', 'a', 'b', 'b', 'c', 'd']);
});

test('a request with more events than one commit takes is committed alone, and one app with many requests delays no other', async () => {
  const { queue, writes } = setUp();
  const first = add(queue, keyed('first'));
  await settle();
  const answers = [
    add(queue, keyed('large', '{}', 1_001)),
    add(queue, keyed('small')),
    add(queue, { ...keyed('other app'), appId: 2 }),
  ];
  writes[0]?.finish();
  await settle();
  writes[1]?.finish();
  await settle();
  writes[2]?.finish();
  expect(await Promise.all([first, ...answers])).toEqual(['first', 'large', 'small', 'other app']);
  expect(writes.map(({ keys }) => keys)).toEqual([['first'], ['large'], ['other app', 'small']]);
});
