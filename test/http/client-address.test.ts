/** Whose request counts as whose: what X-Forwarded-For may say, and what nobody can make it say. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  addressKey,
  canonicalAddress,
  clientAddress,
  isLoopbackName,
} from '../../src/http/client-address.ts';
import type { Exchange } from '../../src/http/exchange.ts';
import { type TestServiceOptions, withTestService } from '../support/service.ts';

const REMOTE = '10.0.0.9';

function addressOf(forwarded: string, trustedProxies: number): string {
  const exchange: Pick<Exchange, 'remoteAddress' | 'header'> = {
    remoteAddress: REMOTE,
    header: (name) => (name === 'x-forwarded-for' ? forwarded : ''),
  };
  // The function reads these two alone.
  return clientAddress(exchange as Exchange, trustedProxies);
}

const CASES: readonly (readonly [header: string, proxies: number, address: string])[] = [
  // One proxy: the last entry counts, whatever stands before it.
  ['203.0.113.7', 1, '203.0.113.7'],
  ['192.0.2.1, 203.0.113.7', 1, '203.0.113.7'],
  ['192.0.2.1,203.0.113.7', 1, '203.0.113.7'],
  ['192.0.2.1, \t 203.0.113.7 ', 1, '203.0.113.7'],
  // In each spelling that proxies use.
  ['192.0.2.1, 203.0.113.7:40001', 1, '203.0.113.7'],
  ['192.0.2.1, [2001:db8::7]:40001', 1, '2001:db8::7'],
  ['192.0.2.1, [2001:db8::7]', 1, '2001:db8::7'],
  ['192.0.2.1, 2001:DB8:0::7', 1, '2001:db8::7'],
  ['192.0.2.1, ::ffff:203.0.113.7', 1, '203.0.113.7'],
  ['192.0.2.1, [::ffff:203.0.113.7]:1', 1, '203.0.113.7'],
  // An entry that is no address leaves its place: the connection's own address counts.
  ...[
    'unknown',
    '',
    '_hidden',
    'client.example.com',
    '203.0.113.7:',
    '203.0.113.7:x',
    '203.0.113.7:123456',
    '203.0.113.7 192.0.2.1',
    '203.0.113',
    '0x7f.0.0.1',
    '010.0.0.1',
    '[203.0.113.7',
    '[2001:db8::7]x',
    '[]',
    '[]:80',
    '[',
    ':',
    ':80',
    '"203.0.113.7"',
  ].map((entry) => [`192.0.2.1, ${entry}`, 1, REMOTE] as const),
  // Two proxies: the last but one.
  ['192.0.2.1, 203.0.113.7, 10.0.0.8', 2, '203.0.113.7'],
  ['192.0.2.1, unknown, 10.0.0.8', 2, REMOTE],
  ['192.0.2.1, 203.0.113.7, unknown', 2, '203.0.113.7'],
  ['192.0.2.1, , 10.0.0.8', 2, REMOTE],
  // Fewer entries than proxies: the request did not come through all of them.
  ['', 1, REMOTE],
  ['192.0.2.1', 2, REMOTE],
  ['192.0.2.1, 192.0.2.2', 3, REMOTE],
  // No proxy: the header is anybody's.
  ['192.0.2.1', 0, REMOTE],
];

test.each(CASES)('X-Forwarded-For: "%s" behind %i proxies is of %s', (header, proxies, address) => {
  expect(addressOf(header, proxies)).toBe(address);
});

test('entries left of the trusted one do not change the address', () => {
  const spoofed = fc.string({ maxLength: 40 }).map((text) => text.replaceAll(/[^\x20-\x7e]/g, ' '));
  fc.assert(
    fc.property(spoofed, fc.constantFrom('203.0.113.7', '203.0.113.7:1', 'unknown', ''), (text, last) => {
      expect(addressOf(`${text}, ${last}`, 1)).toBe(addressOf(`192.0.2.1, ${last}`, 1));
    }),
  );
});

test('an address has one canonical form, and other text has none', () => {
  for (const text of ['2001:db8::1', '2001:0DB8:0:0::1', '2001:db8::1%eth0'])
    expect(canonicalAddress(text)).toBe('2001:db8::1');
  for (const text of ['127.0.0.1', '::ffff:127.0.0.1', '0000:0000:0000:0000:0000:ffff:7f00:0001'])
    expect(canonicalAddress(text)).toBe('127.0.0.1');
  for (const text of ['', '127.1', '2130706433', '0177.0.0.1', 'localhost', '::1::', '1.2.3.4.5'])
    expect(canonicalAddress(text)).toBe('');
});

test('one client is an IPv4 address, or a network of IPv6', () => {
  expect(addressKey('203.0.113.7')).toBe('203.0.113.7');
  expect(addressKey('2001:db8:1:2:3:4:5:6')).toBe(addressKey('2001:db8:1:2::'));
  expect(addressKey('2001:db8:1:2::')).not.toBe(addressKey('2001:db8:1:3::'));
  expect(addressKey('')).toBe('');
});

test("a host name is this machine's own only if it is a loopback address or localhost", () => {
  for (const host of ['localhost', '127.0.0.1', '127.8.9.1', '::1', '[::1]', '[::ffff:127.0.0.1]'])
    expect(isLoopbackName(host)).toBe(true);
  for (const host of [
    '127.0.0.1.example.com',
    'localhost.example.com',
    '10.0.0.1',
    '',
    '127.1',
    '0.0.0.0',
    '[::]',
  ])
    expect(isLoopbackName(host)).toBe(false);
});

test('behind a proxy the transport is the one whose idle connections outlast those of usual proxies', async () => {
  const keepAlive = async (config: NonNullable<TestServiceOptions['config']>): Promise<string | null> => {
    let header: string | null = null;
    await withTestService({ database: 'shared', config }, async ({ url }) => {
      header = (await fetch(`${url}/livez`)).headers.get('keep-alive');
    });
    return header;
  };
  // Caddy's default is the longest: two minutes.
  expect(await keepAlive({ TRUST_PROXY: 1 })).toBe('timeout=130');
  expect(await keepAlive({ TRUST_PROXY: 1, HTTP_TRANSPORT: 'uws' })).toBe('timeout=7');
  expect(await keepAlive({})).toBe('timeout=7');
});
