/** A client by its address: the networks that contain it, of which one client can own any, and what is stored of it. */
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

/** SESSION_ADDRESSES */
export type AddressStorage = 'full' | 'network' | 'none';

const STORED_IPV4_PREFIX = 24;
const STORED_IPV6_PREFIX = 48;

/**
 * The address as the setting lets it be stored: itself, the network around it, or null.
 * @param address in canonical form; empty if unknown
 */
export function storedAddress(address: string, storage: AddressStorage): string | null {
  if (storage === 'none' || !ipaddr.isValid(address)) return null;
  if (storage === 'full') return address;
  if (!address.includes(':')) {
    return `${ipaddr.IPv4.networkAddressFromCIDR(`${address}/${STORED_IPV4_PREFIX}`).toString()}/${STORED_IPV4_PREFIX}`;
  }
  const network = ipaddr.IPv6.networkAddressFromCIDR(`${address}/${STORED_IPV6_PREFIX}`);
  return `${network.toRFC5952String()}/${STORED_IPV6_PREFIX}`;
}
