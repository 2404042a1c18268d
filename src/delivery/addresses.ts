/**
 * Which addresses a webhook may call. They are checked where the socket connects: a name may resolve to another address at each
 * lookup, so that a check before it proves nothing.
 */
import {
  type LookupAddress,
  lookup as lookUp,
  NODATA as NO_DATA,
  NOTFOUND as NOT_FOUND,
  Resolver,
} from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';
import { WrongInput } from '../errors.ts';

export class ForbiddenAddress extends Error {
  readonly code = 'FORBIDDEN_ADDRESS';

  constructor(address: string) {
    super(`${address} is not a public address (WEBHOOK_ALLOW_PRIVATE)`);
  }
}

/** NAT64 (RFC 6052): the IPv4 address is in the last 32 bits. */
const NAT64 = ipaddr.IPv6.parseCIDR('64:ff9b::/96');
/** What is assigned of IPv6 to the public internet (RFC 4291); documentation (RFC 9637) lies in it. */
const GLOBAL = ipaddr.IPv6.parseCIDR('2000::/3');
const DOCUMENTATION = ipaddr.IPv6.parseCIDR('3fff::/20');

/** Whether an address is one of the public internet, also where it is IPv4 in IPv6. */
export function isPublicAddress(text: string): boolean {
  if (isIP(text) === 0 || text.includes('%')) return false;
  const address = ipaddr.process(text);
  if (address instanceof ipaddr.IPv6) {
    if (address.match(NAT64)) return isPublicAddress(address.toByteArray().slice(12).join('.'));
    if (!address.match(GLOBAL) || address.match(DOCUMENTATION)) return false;
  }
  return address.range() === 'unicast';
}

/** How long a name server may be silent, and how often it is asked. */
const NAME_TIMEOUT = { timeout: 2_500, tries: 2 };

type Found = (error: NodeJS.ErrnoException | null, addresses: readonly LookupAddress[]) => void;

/**
 * Looks names up for sockets. The system's own lookup takes one of few threads for as long as a name server is silent, so that a dead
 * name would delay all others: it is asked for names without dots, and for those that the name servers do not know.
 */
export class Names {
  readonly #resolver = new Resolver(NAME_TIMEOUT);
  readonly #allowPrivate: boolean;

  /** @param nameServers by default those of the system */
  constructor(allowPrivate: boolean, nameServers: readonly string[] = []) {
    this.#allowPrivate = allowPrivate;
    if (nameServers.length > 0) this.#resolver.setServers(nameServers);
  }

  /** Lets only allowed addresses through. */
  readonly lookup: LookupFunction = (hostname, options, callback) => {
    this.#find(hostname, options.family, (error, addresses) => {
      if (error !== null) return callback(error, []);
      const allowed = this.#allowPrivate
        ? [...addresses]
        : addresses.filter(({ address }) => isPublicAddress(address));
      const [first] = allowed;
      if (first === undefined) return callback(new ForbiddenAddress(addresses[0]?.address ?? hostname), []);
      if (options.all === true) return callback(null, allowed);
      return callback(null, first.address, first.family);
    });
  };

  /** Ends lookups that are under way. */
  close(): void {
    this.#resolver.cancel();
  }

  #find(hostname: string, family: number | string | undefined, found: Found): void {
    const ofSystem = (): void => {
      lookUp(hostname, { all: true, family: Number(family ?? 0) }, (error, addresses) =>
        found(error, addresses),
      );
    };
    if (!hostname.replace(/\.$/, '').includes('.') || /\.localhost\.?$/i.test(hostname)) {
      ofSystem();
      return;
    }
    const answers: LookupAddress[][] = [];
    let silent: NodeJS.ErrnoException | null = null;
    let open = 2;
    const answer = (of: 4 | 6) => (error: NodeJS.ErrnoException | null, texts: readonly string[]) => {
      if (error === null) answers[of] = texts.map((address) => ({ address, family: of }));
      else if (error.code !== NOT_FOUND && error.code !== NO_DATA) silent = error;
      open -= 1;
      if (open > 0) return;
      const all = [...(answers[4] ?? []), ...(answers[6] ?? [])];
      if (all.length > 0) found(null, all);
      else if (silent !== null) found(silent, []);
      else ofSystem();
    };
    this.#resolver.resolve4(hostname, answer(4));
    this.#resolver.resolve6(hostname, answer(6));
  }
}

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
  const isLocal = isIP(host) === 0 ? /(^|\.)localhost\.?$/i.test(host) : !isPublicAddress(host);
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
