/** What of a client's address is stored with a session. */
import ipaddr from 'ipaddr.js';

/** SESSION_ADDRESSES */
export type AddressStorage = 'full' | 'network' | 'none';

const IPV4_PREFIX = 24;
const IPV6_PREFIX = 48;

/**
 * The address as the setting lets it be stored: itself, the network around it, or null.
 * @param address in canonical form; empty if unknown
 */
export function storedAddress(address: string, storage: AddressStorage): string | null {
  if (storage === 'none' || !ipaddr.isValid(address)) return null;
  if (storage === 'full') return address;
  if (!address.includes(':')) {
    return `${ipaddr.IPv4.networkAddressFromCIDR(`${address}/${IPV4_PREFIX}`).toString()}/${IPV4_PREFIX}`;
  }
  const network = ipaddr.IPv6.networkAddressFromCIDR(`${address}/${IPV6_PREFIX}`);
  return `${network.toRFC5952String()}/${IPV6_PREFIX}`;
}
