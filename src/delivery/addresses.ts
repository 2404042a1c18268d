/**
 * Which addresses a webhook may call. They are checked where the socket connects: a name may resolve to another address at each
 * lookup, so that a check before it proves nothing.
 */
import { lookup as lookUp } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';
import { WrongInput } from '../errors.ts';

/** What an address is refused with. */
export class ForbiddenAddress extends Error {
  readonly code = 'FORBIDDEN_ADDRESS';

  constructor(address: string) {
    super(`${address} is not a public address (WEBHOOK_ALLOW_PRIVATE)`);
  }
}

/** NAT64 (RFC 6052 and 8215): the IPv4 address is in the last 32 bits. */
const NAT64 = ['64:ff9b::/96', '64:ff9b:1::/48'].map((range) => ipaddr.IPv6.parseCIDR(range));

/** Whether an address is one of the public internet, also where it is IPv4 in IPv6. */
export function isPublicAddress(text: string): boolean {
  if (isIP(text) === 0 || text.includes('%')) return false;
  const address = ipaddr.process(text);
  if (address instanceof ipaddr.IPv6 && NAT64.some((range) => address.match(range))) {
    const bytes = address.toByteArray().slice(12);
    return isPublicAddress(bytes.join('.'));
  }
  return address.range() === 'unicast';
}

/** Looks a name up, and lets only public addresses through. */
export const lookupPublic: LookupFunction = (hostname, options, callback) => {
  lookUp(hostname, { ...options, all: true }, (error, addresses) => {
    if (error !== null) return callback(error, []);
    const allowed = addresses.filter(({ address }) => isPublicAddress(address));
    const [first] = allowed;
    if (first === undefined) return callback(new ForbiddenAddress(addresses[0]?.address ?? hostname), []);
    if (options.all === true) return callback(null, allowed);
    return callback(null, first.address, first.family);
  });
};

/**
 * Checks an address as it is typed.
 * @throws WrongInput with what was expected
 */
export function checkWebhookUrl(text: string, allowPrivate: boolean): URL {
  if (!URL.canParse(text))
    throw new WrongInput(
      `the URL ${JSON.stringify(text)} is wrong: write one such as https://example.com/hook`,
    );
  const url = new URL(text);
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    throw new WrongInput(`the URL must begin with https:// or http://, not ${JSON.stringify(url.protocol)}`);
  if (url.username !== '' || url.password !== '')
    throw new WrongInput('the URL must not contain a user or a password: receivers check the signature');
  if (url.hash !== '') throw new WrongInput('the URL must not contain a fragment (#)');
  const host = hostOf(url);
  const isLocal = isIP(host) === 0 ? /(^|\.)localhost$/i.test(host) : !isPublicAddress(host);
  if (isLocal && !allowPrivate)
    throw new WrongInput(
      `the URL leads to ${host}, which is no public address: set WEBHOOK_ALLOW_PRIVATE=true to allow that`,
    );
  return url;
}

/** The host without the brackets of an IPv6 address. */
export function hostOf(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, '');
}
