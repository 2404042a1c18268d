/** Where a request comes from: the connection's other end, or what trusted proxies say of theirs. */
import { isIP } from 'node:net';
import type { Exchange } from './exchange.ts';

/** The request headers that {@link clientAddress} and {@link cameThroughProxy} read. */
export const FORWARDING_HEADERS = ['x-forwarded-for', 'forwarded', 'via', 'x-real-ip'] as const;

/**
 * The client's address in one spelling. Without trusted proxies X-Forwarded-For means nothing: anybody can send it.
 * @param trustedProxies how many proxies of ours stand in front, each of which adds the address it was called from
 */
export function clientAddress(exchange: Exchange, trustedProxies: number): string {
  const remote = canonicalAddress(exchange.remoteAddress);
  if (trustedProxies === 0) return remote;
  const listed = exchange
    .header('x-forwarded-for')
    .split(',')
    .map((one) => canonicalAddress(one.trim()));
  const hops = [...listed.filter((one) => one !== ''), remote];
  // What stands further to the left was there before the first trusted proxy, and may be anything.
  return hops[Math.max(0, hops.length - 1 - trustedProxies)] ?? remote;
}

/** One spelling for one address: IPv4 also where it comes wrapped in IPv6; empty for what is no address. */
function canonicalAddress(text: string): string {
  const version = isIP(text);
  if (version === 4) return text;
  if (version === 0) return '';
  // The URL parser writes IPv6 in its shortest form (RFC 5952); zones are of this machine alone.
  const short = new URL(`http://[${text.split('%')[0]}]`).hostname.slice(1, -1);
  const [, high, low] = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(short) ?? [];
  if (high === undefined || low === undefined) return short;
  const [a, b] = [Number.parseInt(high, 16), Number.parseInt(low, 16)];
  return `${a >> 8}.${a & 255}.${b >> 8}.${b & 255}`;
}

/** What counts as one client: an IPv4 address, or a /64, all of which a household or a server has. */
export function addressKey(address: string): string {
  if (!address.includes(':')) return address;
  const [head = '', tail = ''] = address.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === '' ? [] : tail.split(':');
  const zeros = Array<string>(8 - before.length - after.length).fill('0');
  return [...before, ...zeros, ...after].slice(0, 4).join(':');
}

function isLoopback(address: string): boolean {
  // Only of an address: 127.0.0.1.example.com is a name, and leads wherever its owner likes.
  return address === '::1' || (isIP(address) === 4 && address.startsWith('127.'));
}

/** Whether a host name, as in a URL or in HOST, is this machine's own. */
export function isLoopbackName(host: string): boolean {
  return host === 'localhost' || isLoopback(host.replace(/^\[(.*)\]$/, '$1'));
}

/** The request headers that {@link isFromThisMachine} reads; the route asks for `remoteAddress` too. */
export const LOCALITY_HEADERS = ['host', ...FORWARDING_HEADERS] as const;

/**
 * Whether a request comes from this machine, through no proxy that marks what it forwards, and for a name of this
 * machine: a page of another site whose name was bound to 127.0.0.1 has its own name there.
 */
export function isFromThisMachine(exchange: Exchange): boolean {
  const host = exchange.header('host').toLowerCase().replace(/:\d+$/, '');
  return (
    isLoopback(canonicalAddress(exchange.remoteAddress)) &&
    isLoopbackName(host) &&
    !cameThroughProxy(exchange)
  );
}

/** True where a proxy has left its mark: then a loopback connection says nothing about who sent the request. */
function cameThroughProxy(exchange: Exchange): boolean {
  return FORWARDING_HEADERS.some((name) => exchange.header(name) !== '');
}
