/** A node that does not answer keeps what is its own, and nothing of the others. */
import { expect, test } from 'vitest';
import type { Path } from '../../src/base/turns.ts';
import { Rejection } from '../../src/errors.ts';
import { EventBuffer, RequestQueue } from '../../src/ingest/node-queues.ts';
import type { DataNode } from '../../src/storage/database/nodes.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import type { IdempotentRequest } from '../../src/storage/write/idempotent-writer.ts';

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

test('events for a silent node fill its share of the room alone, and no group of another node waits for it', async () => {
  const { wait, end } = silence<null[]>();
  const buffer = new EventBuffer(
    NODES,
    { connections: 2, holderOf, maxEvents: 100, maxBytes: 1_000_000 },
    10,
    (node) => (group) =>
      wait(
        node === SILENT,
        group.map(() => null),
      ),
  );
  const silent = Array.from({ length: 60 }, () => buffer.add(event(1)));
  const batch = buffer.addAll(Array.from({ length: 10 }, () => event(3)));
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
  const options = { holderOf, connections: 2, maxEvents: 100, maxBytes: 3_200 };
  const buffer = new EventBuffer(many, options, 40, () => write);
  const batch = await buffer.addAll(Array.from({ length: 40 }, () => event(2)));
  expect(batch).toEqual(Array.from({ length: 40 }, () => null));
  const larger = await buffer.addAll(Array.from({ length: 41 }, () => event(2)));
  expect(larger[0]).toBeInstanceOf(Rejection);
});

test('idempotent requests for a silent node keep those of another node from nothing', async () => {
  const { wait, end } = silence<{ answer: { status: number; body: string }; stored: []; repeated: 0 }[]>();
  const answer = { status: 201, body: '{}' };
  const closed: string[] = [];
  const queue = new RequestQueue(NODES, { holderOf, maxEvents: 20, maxBytes: 1_000_000 }, 10, (node) => ({
    write: (requests) =>
      wait(
        node === SILENT,
        requests.map(() => ({ answer, stored: [], repeated: 0 })),
      ),
    close: async () => void closed.push(node.name),
  }));
  const request = (appId: number): IdempotentRequest => ({
    ...{ appId, identity: null, acceptedAt: 0, events: [event(appId)], answer },
    answerRepeated: () => answer,
    answerWithout: () => answer,
  });
  const silent = Array.from({ length: 11 }, () => queue.add(request(1)));
  expect(await silent[10]).toBeInstanceOf(Rejection);
  expect(await queue.add(request(2))).toEqual(answer);
  const timer = setInterval(end, 1);
  expect(await Promise.all(silent.slice(0, 10))).toEqual(Array.from({ length: 10 }, () => answer));
  clearInterval(timer);
  await queue.drain();
  await queue.close();
  expect(closed).toEqual(['silent', 'other']);
});
