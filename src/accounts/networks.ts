/** The networks that a client's address lies in: what one client can own as a whole, from the narrowest to the widest. */
import ipaddr from 'ipaddr.js';

/**
 * An IPv4 address stands for itself. With IPv6 a household or a server has a /64, many have a /56, and a site may have a
 * /48 (RFC 6177): who owns one can change the address as often as there are networks in it.
 */
const IPV6_PREFIXES = [64, 56, 48] as const;

/** Where the address is not known, all such clients are one. */
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

/** Who sends a request, as far as limits can tell before anybody has signed in. */
export interface Client {
  /** The networks of its address, the narrowest first. */
  readonly networks: readonly string[];
  /** True once nobody waits for the answer. */
  readonly hasLeft: () => boolean;
}
