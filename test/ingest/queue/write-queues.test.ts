/** A node that does not answer keeps what is its own, and nothing of the others. */
import { expect, test } from 'vitest';
import type { Path } from '../../../src/base/turns.ts';
import { Rejection } from '../../../src/errors.ts';
import {
  type NodeWriters,
  WriteQueues,
  type WriteQueuesOptions,
} from '../../../src/ingest/queue/write-queues.ts';
import type { DataNode } from '../../../src/storage/database/nodes.ts';
import type { AcceptedEvent } from '../../../src/storage/write/accepted-event.ts';
import type { IdempotentRequest } from '../../../src/storage/write/idempotent-writer.ts';

const nodeNamed = (name: string): DataNode => ({
  ...{ name, isUnreachable: false, suspect: () => undefined },
  connect: () => {
    throw new Error('Nothing connects here.');
  },
});
const SILENT = nodeNamed('silent');
const OTHER = nodeNamed('other');
/** Odd apps are on the silent node. */
const NODES = { names: ['silent', 'other'], nodeOf: (appId: number) => (appId % 2 === 1 ? SILENT : OTHER) };

function event(appId: number): AcceptedEvent {
  const source = { appId: '', typeId: '', typeName: '' };
  return { id: 'id', appId, typeId: 1, createdAt: Date.now(), payload: '{}', source };
}

/** Groups with an event of the silent node end when they are told to. */
function silence<T>(): { wait: (isSilent: boolean, outcome: T) => Promise<T>; end: () => void } {
  const waiting: (() => void)[] = [];
  return {
    wait: (isSilent, outcome) =>
      isSilent
        ? new Promise((resolve) => {
            waiting.push(() => resolve(outcome));
          })
        : Promise.resolve(outcome),
    end: () => {
      for (const resolve of waiting.splice(0)) resolve();
    },
  };
}

const holderOf = (appId: number): Path => [appId, appId];

/** Queues whose groups of the current day, or whose requests, are written by the test. */
function queuesOf(
  writers: (node: DataNode) => Partial<NodeWriters>,
  options: Partial<WriteQueuesOptions>,
): WriteQueues {
  const unexpected = (): never => expect.unreachable('Nothing is written there');
  return new WriteQueues({
    ...{ nodes: NODES, holderOf, refusalOf: () => null, connections: 2, pastConnections: 1 },
    ...{ maxEvents: 100, maxBytes: 1_000_000, largest: 10 },
    ...options,
    writersAt: (node) => ({ now: unexpected, past: unexpected, requests: unexpected, ...writers(node) }),
  });
}

const apart = (queues: WriteQueues, accepted: readonly AcceptedEvent[]) =>
  queues.storeApart({ accepted, past: 0, keyed: 0 });

test('events for a silent node fill its share of the room alone, and no group of another node waits for it', async () => {
  const { wait, end } = silence<null[]>();
  const buffer = queuesOf(
    (node) => ({
      now: (group) =>
        wait(
          node === SILENT,
          group.map(() => null),
        ),
    }),
    {},
  );
  const silent = Array.from({ length: 60 }, () => buffer.add(event(1)));
  const batch = apart(
    buffer,
    Array.from({ length: 10 }, () => event(3)),
  );
  const refused = await Promise.all(silent.slice(50));
  expect(refused.every((outcome) => outcome instanceof Rejection)).toBe(true);
  expect(buffer.depth).toBe(60);
  for (let round = 0; round < 3; round += 1)
    expect(await Promise.all(Array.from({ length: 50 }, () => buffer.add(event(2))))).toEqual(
      Array.from({ length: 50 }, () => null),
    );
  expect(buffer.depth).toBe(60);
  expect(buffer.stored).toBe(150);
  const draining = buffer.drain();
  // What is sent after the first groups ends as well.
  const timer = setInterval(end, 1);
  await draining;
  expect((await batch).length).toBe(10);
  clearInterval(timer);
  expect(buffer).toMatchObject({ depth: 0, stored: 210 });
});

test('a share has room for the largest batch, however many nodes there are', async () => {
  const many = { ...NODES, names: Array.from({ length: 32 }, (_, at) => String(at)) };
  const write = async (group: readonly AcceptedEvent[]) => group.map(() => null);
  const buffer = queuesOf(() => ({ now: write }), { nodes: many, maxBytes: 3_200, largest: 40 });
  const batch = await apart(
    buffer,
    Array.from({ length: 40 }, () => event(2)),
  );
  expect(batch).toEqual(Array.from({ length: 40 }, () => null));
  const larger = await apart(
    buffer,
    Array.from({ length: 41 }, () => event(2)),
  );
  expect(larger[0]).toBeInstanceOf(Rejection);
});

test('idempotent requests for a silent node keep those of another node from nothing', async () => {
  const { wait, end } = silence<{ answer: { status: number; body: string }; stored: []; repeated: 0 }[]>();
  const answer = { status: 201, body: '{}' };
  const queue = queuesOf(
    (node) => ({
      requests: (requests) =>
        wait(
          node === SILENT,
          requests.map(() => ({ answer, stored: [], repeated: 0 })),
        ),
    }),
    { maxEvents: 20 },
  );
  const request = (appId: number): IdempotentRequest => ({
    ...{ appId, identity: null, acceptedAt: 0, events: [event(appId)], answer },
    answerRepeated: () => answer,
    answerWithout: () => answer,
  });
  const silent = Array.from({ length: 11 }, () => queue.storeTogether(request(1), 0));
  expect(await silent[10]).toBeInstanceOf(Rejection);
  expect(await queue.storeTogether(request(2), 0)).toEqual(answer);
  const timer = setInterval(end, 1);
  expect(await Promise.all(silent.slice(0, 10))).toEqual(Array.from({ length: 10 }, () => answer));
  clearInterval(timer);
  await queue.drain();
});
