/** What exchanges need of a server, where a test has none. */
import { BodyRoom } from '../../src/http/body-room.ts';
import type { ExchangeLimits } from '../../src/http/exchange.ts';

/**
 * @param maxBodyBytes   limit of one body
 * @param maxBodiesBytes room of all: more than a little of it is free for one body
 */
export function exchangeLimits(maxBodyBytes: number, maxBodiesBytes = 4 * maxBodyBytes): ExchangeLimits {
  return {
    maxBodyBytes,
    bodies: new BodyRoom(maxBodiesBytes),
    addressOf: ({ remoteAddress }) => remoteAddress,
    everyAnswer: '',
    unsentBytes: 0,
    openStreams: new Set(),
  };
}
