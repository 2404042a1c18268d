/** What the longest header that a transport takes costs, whatever stands in it: no more than one of ordinary text. */
import { expect, test } from 'vitest';
import { acceptedEncodings, matchesTag } from '../../src/http/assets.ts';
import { bearerToken } from '../../src/http/bearer.ts';
import { clientAddress, isFromThisMachine } from '../../src/http/client-address.ts';
import type { Exchange } from '../../src/http/exchange.ts';
import { ORIGIN_HEADERS, refuseForeign } from '../../src/http/same-origin.ts';

/** node:http takes 16 KiB of head, uWebSockets.js 4. */
const LENGTH = 15_500;
/** Quadratic time is a thousand times as much at this length, and linear time a few times, with a machine that is busy. */
const MOST_TIMES_AS_LONG = 60;

/** An exchange all of whose headers are this one. */
function exchangeWith(header: string): Exchange {
  // What these functions read of it.
  const read: Pick<Exchange, 'header' | 'remoteAddress'> = {
    header: () => header,
    remoteAddress: '127.0.0.1',
  };
  return read as Exchange;
}

const READERS: Readonly<Record<string, (header: string) => unknown>> = {
  'Accept-Encoding': acceptedEncodings,
  'If-None-Match': (header) => matchesTag(header, '"tag"'),
  Authorization: bearerToken,
  'X-Forwarded-For': (header) => clientAddress(exchangeWith(header), 1),
  'X-Forwarded-For of five proxies': (header) => clientAddress(exchangeWith(header), 5),
  Host: (header) => isFromThisMachine(exchangeWith(header)),
  [ORIGIN_HEADERS.join(', ')]: (header) => refuseForeign(exchangeWith(header), 'https://example.com'),
};

const filled = (piece: string, before = '', behind = ''): string =>
  before + piece.repeat((LENGTH - before.length - behind.length) / piece.length) + behind;

const ATTACKS: readonly string[] = [
  filled(' ', 'a', 'b'),
  filled('\t', 'a', 'b'),
  filled(' ', 'Bearer ', ' b c'),
  filled('a '),
  filled(','),
  filled(', '),
  filled(';'),
  filled(' ; '),
  filled('a;q=0.'),
  filled('0', 'a;q=0.', 'x'),
  filled('W/'),
  filled('W/"tag",'),
  filled(':', '1'),
  filled(':1'),
  filled('[', '1'),
  filled('1:', '[', ']'),
  filled('::1,'),
  filled('[::1]:1, '),
  filled('1.', '', '1'),
  filled('/', 'https:', ':1'),
  filled('%'),
];

/** The shortest of several runs, in milliseconds: what disturbs a run only makes it longer. */
function milliseconds(work: () => unknown): number {
  let shortest = Number.POSITIVE_INFINITY;
  for (let run = 0; run < 20; run += 1) {
    const start = performance.now();
    work();
    shortest = Math.min(shortest, performance.now() - start);
  }
  return shortest;
}

test.each(Object.entries(READERS))('%s is read in linear time', (_, read) => {
  const ordinary = filled('gzip, 192.0.2.1, "tag", https://example.com ');
  // Nothing is faster than what the clock tells apart.
  const usual = Math.max(
    0.005,
    milliseconds(() => read(ordinary)),
  );
  const slow = ATTACKS.map((attack) => ({
    attack: `${attack.slice(0, 20)}…${attack.slice(-5)}`,
    times: Math.round(milliseconds(() => read(attack)) / usual),
  })).filter(({ times }) => times > MOST_TIMES_AS_LONG);
  expect(slow).toEqual([]);
});
