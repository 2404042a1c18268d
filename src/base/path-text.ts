/** Paths of payloads as a filter takes them. */

/** Names that a filter takes without quotes. */
export const PLAIN = /^[^\s.:<>="\\]+$/u;

/** A path as a filter takes it. */
export function spellPath(names: readonly string[]): string {
  return first(names.map(spellName).join('.'));
}

export function spellName(name: string): string {
  return PLAIN.test(name) ? name : JSON.stringify(name);
}

/** A minus at the start of a filter negates it. */
export function first(path: string): string {
  if (!path.startsWith('-')) return path;
  const end = path.indexOf('.');
  return end === -1 ? JSON.stringify(path) : JSON.stringify(path.slice(0, end)) + path.slice(end);
}
