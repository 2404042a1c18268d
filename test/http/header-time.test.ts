/** What a header costs grows with its length, whatever stands in it. */
import { test } from 'vitest';
import { acceptedEncodings, matchesTag } from '../../src/http/assets.ts';
import { bearerToken } from '../../src/http/bearer.ts';
import { clientAddress, isFromThisMachine } from '../../src/http/client-address.ts';
import type { Exchange } from '../../src/http/exchange.ts';
import { ORIGIN_HEADERS, refuseForeign } from '../../src/http/same-origin.ts';
import { expectLinear } from '../support/linear.ts';

/** Eight times this is what node:http takes as a head; uWebSockets.js takes 4 KiB. */
const LENGTH = 2_000;
/** Reads that are measured together. */
const TIMES = 20;

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

type Attack = (length: number) => string;

const filled =
  (piece: string, before = '', after = ''): Attack =>
  (length) =>
    before + piece.repeat((length - before.length - after.length) / piece.length) + after;

const ATTACKS: readonly Attack[] = [
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

test.each(Object.entries(READERS))('%s is read in linear time', (_, read) => {
  for (const attack of ATTACKS)
    expectLinear((length) => {
      const header = attack(length);
      return () => {
        for (let time = 0; time < TIMES; time += 1) read(header);
      };
    }, LENGTH);
});
