/** The hosts of a connection URL, which may have several: `postgres://user@a:1,b:2/db`. URL parsers accept one. */

/** The URL with its first host only, which every URL parser accepts. */
export function withFirstHost(url: string): string {
  return withHosts(url, hostsOf(url).split(',', 1)[0] ?? '');
}

/** The URL with other hosts. */
export function withHosts(url: string, hosts: string): string {
  const { from, until } = authorityOf(url);
  return url.slice(0, from) + hosts + url.slice(until);
}

/** The hosts of a URL, with their ports; `a:1,b`. */
export function hostsOf(url: string): string {
  const { from, until } = authorityOf(url);
  return url.slice(from, until);
}

/** The position of the hosts in a URL: after the password, which may contain an @. */
function authorityOf(url: string): { from: number; until: number } {
  const start = url.indexOf('://') + 3;
  const length = url.slice(start).search(/[/?#]/);
  const until = length < 0 ? url.length : start + length;
  return { from: Math.max(start, url.lastIndexOf('@', until) + 1), until };
}
