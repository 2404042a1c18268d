/** The client's address: the peer of the connection, or what trusted proxies report. */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Exchange } from './exchange.ts';

/** The request headers that {@link clientAddress} and {@link cameThroughProxy} read. */
export const FORWARDING_HEADERS = ['x-forwarded-for', 'forwarded', 'via', 'x-real-ip'] as const;

/**
 * The client's address in canonical form. Without trusted proxies X-Forwarded-For is ignored: any client can send it.
 * With n trusted proxies only the nth entry from the right counts: each proxy appends the address of its peer, and entries
 * further left come from the client. If that entry is missing or not an address, the header is ignored and the peer
 * address of the connection is used.
 * @param trustedProxies number of trusted proxies in front of the service (TRUST_PROXY)
 */
export function clientAddress(exchange: Exchange, trustedProxies: number): string {
  const remote = canonicalAddress(exchange.remoteAddress);
  if (trustedProxies === 0) return remote;
  const entry = exchange.header('x-forwarded-for').split(',').at(-trustedProxies) ?? '';
  return canonicalAddress(withoutPort(entry.trim())) || remote;
}

const PORT = /^:\d{1,5}$/;

/** The address in `ip`, `ip:port`, `[v6]` or `[v6]:port`, the four forms that proxies use; any other text unchanged. */
function withoutPort(entry: string): string {
  // Only what follows the last bracket or, without brackets, the only colon can be a port: IPv6 has colons of its own.
  const end = entry.startsWith('[') ? entry.indexOf(']') + 1 : entry.indexOf(':');
  const isBare = end <= 0 || (entry[0] !== '[' && entry.includes(':', end + 1));
  if (isBare) return entry;
  const port = entry.slice(end);
  if (port !== '' && !PORT.test(port)) return entry;
  return entry.startsWith('[') ? entry.slice(1, end - 1) : entry.slice(0, end);
}

/** The canonical text of an address (RFC 5952); IPv4-mapped IPv6 becomes IPv4. Empty if the text is not an address. */
export function canonicalAddress(text: string): string {
  const address = parse(text);
  if (address === null) return '';
  return address instanceof ipaddr.IPv6 ? address.toRFC5952String() : address.toString();
}

/**
 * The key under which a client is counted: an IPv4 address, or an IPv6 /64, which one household or server usually owns.
 * @param address result of {@link canonicalAddress}
 */
export function addressKey(address: string): string {
  if (!address.includes(':')) return address;
  return `${ipaddr.IPv6.networkAddressFromCIDR(`${address}/64`).toRFC5952String()}/64`;
}

/** Checks with node:net first, because ipaddr.js also accepts octal, hexadecimal and shortened IPv4. */
function parse(text: string): ipaddr.IPv4 | ipaddr.IPv6 | null {
  if (isIP(text) === 0) return null;
  // A zone index (fe80::1%eth0) only has a meaning on this machine.
  return ipaddr.process(text.split('%', 1)[0] ?? '');
}

function isLoopback(address: string): boolean {
  // Only addresses: 127.0.0.1.example.com is a name, and its owner decides where it resolves to.
  return parse(address)?.range() === 'loopback';
}

/** Whether a host name, as in a URL or in HOST, is `localhost` or a loopback address. */
export function isLoopbackName(host: string): boolean {
  return host === 'localhost' || isLoopback(host.replace(/^\[(.*)\]$/, '$1'));
}

/** The request headers that {@link isFromThisMachine} reads; its route also needs `remoteAddress`. */
export const LOCALITY_HEADERS = ['host', ...FORWARDING_HEADERS] as const;

/**
 * Whether a request comes from this machine, not through a proxy that adds headers, and with a loopback Host. The Host
 * check stops DNS rebinding: a page of another site whose name resolves to 127.0.0.1 sends its own name.
 */
export function isFromThisMachine(exchange: Exchange): boolean {
  const host = exchange.header('host').toLowerCase().replace(/:\d+$/, '');
  return (
    isLoopback(canonicalAddress(exchange.remoteAddress)) &&
    isLoopbackName(host) &&
    !cameThroughProxy(exchange)
  );
}

/** True if a proxy added a header: then a loopback connection does not prove that the client is local. */
function cameThroughProxy(exchange: Exchange): boolean {
  return FORWARDING_HEADERS.some((name) => exchange.header(name) !== '');
}
