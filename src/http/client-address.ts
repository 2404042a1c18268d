/** Where a request comes from: the connection's other end, or what trusted proxies say of theirs. */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Exchange } from './exchange.ts';

/** The request headers that {@link clientAddress} and {@link cameThroughProxy} read. */
export const FORWARDING_HEADERS = ['x-forwarded-for', 'forwarded', 'via', 'x-real-ip'] as const;

/**
 * The client's address in one spelling. Without trusted proxies X-Forwarded-For means nothing: anybody can send it.
 * With them one entry counts, the one at their number from the right: each proxy appends the address that it was called
 * from, and what stands further to the left came from the client. Where that entry is missing or is no address, nothing
 * in the header can be believed, and the connection's own address counts.
 * @param trustedProxies how many proxies of ours stand in front
 */
export function clientAddress(exchange: Exchange, trustedProxies: number): string {
  const remote = canonicalAddress(exchange.remoteAddress);
  if (trustedProxies === 0) return remote;
  const entry = exchange.header('x-forwarded-for').split(',').at(-trustedProxies) ?? '';
  return canonicalAddress(withoutPort(entry.trim())) || remote;
}

const PORT = /^:\d{1,5}$/;

/** The address of `ip`, `ip:port`, `[v6]` and `[v6]:port`, the four spellings that proxies use; else the text as it is. */
function withoutPort(entry: string): string {
  // Only what follows the last bracket or, without brackets, the only colon can be a port: IPv6 has colons of its own.
  const end = entry.startsWith('[') ? entry.indexOf(']') + 1 : entry.indexOf(':');
  const isBare = end <= 0 || (entry[0] !== '[' && entry.includes(':', end + 1));
  if (isBare) return entry;
  const port = entry.slice(end);
  if (port !== '' && !PORT.test(port)) return entry;
  return entry.startsWith('[') ? entry.slice(1, end - 1) : entry.slice(0, end);
}

/** One spelling for one address (RFC 5952), IPv4 also where it comes wrapped in IPv6; empty for what is no address. */
export function canonicalAddress(text: string): string {
  const address = parse(text);
  if (address === null) return '';
  return address instanceof ipaddr.IPv6 ? address.toRFC5952String() : address.toString();
}

/**
 * What counts as one client: an IPv4 address, or a /64, all of which a household or a server has.
 * @param address as {@link canonicalAddress} gives it
 */
export function addressKey(address: string): string {
  if (!address.includes(':')) return address;
  return `${ipaddr.IPv6.networkAddressFromCIDR(`${address}/64`).toRFC5952String()}/64`;
}

/** node:net decides what an address is: ipaddr.js also takes octal, hexadecimal and shortened IPv4. */
function parse(text: string): ipaddr.IPv4 | ipaddr.IPv6 | null {
  if (isIP(text) === 0) return null;
  // Zones are of this machine alone.
  return ipaddr.process(text.split('%', 1)[0] ?? '');
}

function isLoopback(address: string): boolean {
  // Only of an address: 127.0.0.1.example.com is a name, and leads wherever its owner likes.
  return parse(address)?.range() === 'loopback';
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
