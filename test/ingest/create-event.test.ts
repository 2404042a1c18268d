/** The steps of a create request by themselves, where a lookup of the type takes its time. */
import { expect, test } from 'vitest';
import { Exchange, type Wire } from '../../src/http/exchange.ts';
import { type CreateEventSteps, createCreateEvent } from '../../src/ingest/create-event.ts';
import type { AcceptedEvent } from '../../src/storage/write/accepted-event.ts';
import { exchangeLimits } from '../support/exchange-limits.ts';

interface Options {
  /** What happens while the type is looked up. */
  readonly meanwhile: (exchange: Exchange) => void;
  readonly now?: () => number;
}

/** One request, and what came of it. */
async function post({ meanwhile, now = () => 0 }: Options) {
  const body = Buffer.from('{"loggingToken":"t","typeName":"n","payload":{}}');
  const statuses: number[] = [];
  const wire: Wire = {
    ...{ method: 'POST', path: '/public/create_event', query: '', remoteAddress: '' },
    header: () => '',
    pauseBody: () => undefined,
    resumeBody: () => undefined,
    readBody: (onChunk) => onChunk(body, true),
    respond: (status) => statuses.push(status),
    stream: () => expect.unreachable('no answer goes on here'),
  };
  const exchange = new Exchange(wire, 'id', 0, [], exchangeLimits(1_000), () => undefined);
  const added: AcceptedEvent[] = [];
  const steps = {
    loggingTokens: {
      writerOf: async () => ({
        appId: 1,
        producerId: 0,
        expiresAt: null,
        isRevoked: false,
        isRemoved: false,
      }),
    },
    limiter: { take: () => null },
    accounts: { limits: { of: () => null } },
    epoch: () => 1,
    retentionBoundary: { refusalOfNow: () => null },
    eventTypes: {
      find: async () => {
        meanwhile(exchange);
        return { id: 1, publicId: 'typ_1', publicIdJson: '"typ_1"', schema: null, redaction: null };
      },
    },
    queues: {
      add: async (event: AcceptedEvent) => {
        added.push(event);
        return null;
      },
    },
    stageTimes: { start: () => null },
    newEventId: () => 'id',
    now,
  };
  // Of the steps only what this request comes to.
  await createCreateEvent(steps as unknown as CreateEventSteps)(exchange);
  return { statuses, added };
}

test('a request whose deadline has answered that nothing is stored stores nothing after it', async () => {
  const { statuses, added } = await post({ meanwhile: (exchange) => exchange.expire() });
  expect(statuses).toEqual([503]);
  expect(added).toEqual([]);
});

test('an event has the time at which the limit counted it, however long its type is looked for', async () => {
  let now = 1_000;
  const { added } = await post({
    meanwhile: () => {
      now += 500;
    },
    now: () => now,
  });
  expect(added.map(({ createdAt }) => createdAt)).toEqual([1_000]);
});
