/** Addresses of the nodes of a cluster: those of its coordinator, with another host. */
import { withHosts } from '../../base/url-hosts.ts';
import type { DatabaseAddress } from './server-address.ts';

const ADDRESSES = new WeakMap<DatabaseAddress, Map<string, DatabaseAddress>>();

/** The address of a node: user, password, database and encryption are the same on all nodes. */
export function addressOfNode(
  address: DatabaseAddress,
  { host, port }: { readonly host: string; readonly port: number },
): DatabaseAddress {
  const known = ADDRESSES.get(address) ?? new Map<string, DatabaseAddress>();
  ADDRESSES.set(address, known);
  const name = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
  const found = known.get(name);
  if (found !== undefined) return found;
  const plain: DatabaseAddress =
    'url' in address
      ? { url: withHosts(address.url, name) }
      : { host, port, user: address.user, database: address.database };
  const made = address.watch?.watchNode(plain).address ?? plain;
  known.set(name, made);
  return made;
}
