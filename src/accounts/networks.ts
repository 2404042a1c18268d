/** The networks that contain a client's address, narrowest first. One client can own any of them. */
import ipaddr from 'ipaddr.js';

/**
 * An IPv4 address is its own network. With IPv6 a household or a server has a /64, many have a /56, and a site may have a
 * /48 (RFC 6177). Its owner can use any address in it.
 */
const IPV6_PREFIXES = [64, 56, 48] as const;

/** All clients with an unknown address count as one. */
const UNKNOWN = ['unknown'] as const;

/** Names of the networks of an address in any spelling, the narrowest first: at least one, at most three. */
export function networksOf(address: string): readonly string[] {
  if (!ipaddr.isValid(address)) return UNKNOWN;
  const parsed = ipaddr.process(address);
  if (!(parsed instanceof ipaddr.IPv6)) return [parsed.toString()];
  const [a = 0, b = 0, c = 0, d = 0] = parsed.parts;
  const bits = (BigInt(a) << 48n) | (BigInt(b) << 32n) | (BigInt(c) << 16n) | BigInt(d);
  return IPV6_PREFIXES.map((length) => `${(bits >> BigInt(64 - length)).toString(16)}/${length}`);
}

/** The client of a request, as far as limits can identify it before sign-in. */
export interface Client {
  /** The networks of its address, the narrowest first. */
  readonly networks: readonly string[];
  /** True once the client has disconnected or the request is answered. */
  readonly hasLeft: () => boolean;
}
