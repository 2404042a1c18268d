import { expect, test } from 'vitest';
import { Exchange, type ExchangeLimits, type Wire } from '../../src/http/exchange.ts';
import { type CreateEventSteps, createCreateEvent } from '../../src/ingest/create-event.ts';

test('a request whose deadline has answered that nothing is stored stores nothing after it', async () => {
  const body = Buffer.from('{"loggingToken":"t","typeName":"n","payload":{}}');
  const statuses: number[] = [];
  const wire: Wire = {
    ...{ method: 'POST', path: '/public/create_event', query: '', remoteAddress: '' },
    header: () => '',
    readBody: (onChunk) => onChunk(body, true),
    respond: (status) => statuses.push(status),
    stream: () => expect.unreachable('no answer goes on here'),
  };
  const limits: ExchangeLimits = {
    ...{ maxBodyBytes: 1_000, maxBodiesBytes: 1_000, bodiesBytes: 0, everyAnswer: '', unsentBytes: 0 },
    openStreams: new Set(),
  };
  const exchange = new Exchange(wire, 'id', 0, [], limits, () => undefined);
  let isAdded = false;
  const steps = {
    loggingTokens: { appOf: async () => 1 },
    limiter: { take: () => null },
    // The look-up of the type takes longer than the request may.
    eventTypes: {
      find: async () => {
        exchange.expire();
        return { id: 1, publicId: 'typ_1' };
      },
    },
    commitBuffer: {
      add: async () => {
        isAdded = true;
        return null;
      },
    },
    stageTimes: { start: () => null },
    newEventId: () => 'id',
    now: () => 0,
  };
  // Of the steps only what this request comes to.
  await createCreateEvent(steps as unknown as CreateEventSteps)(exchange);
  expect(statuses).toEqual([503]);
  expect(isAdded).toBe(false);
});
