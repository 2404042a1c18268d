/**
 * Which app of an installation an entry of a document means. Ids belong to one installation, so an app is known by its name and
 * its owner: accounts may name their apps as they like, and nobody's app is taken for another one's.
 */
import { parseEmail } from '../accounts/people/email.ts';
import type { AppEntry } from './document.ts';
import type { ParsedConfig } from './parse.ts';
import { ownerOf, type StoredApp } from './state.ts';

/**
 * Finds the app of each entry. Apps of one name and one owner are taken in order of creation.
 * @returns entries without one are left out: their app is to be made
 * @throws ConfigMistake for an entry that may mean several
 */
export function matchApps(
  entries: readonly AppEntry[],
  apps: readonly StoredApp[],
  parsed: ParsedConfig,
): ReadonlyMap<AppEntry, StoredApp> {
  const matched = new Map<AppEntry, StoredApp>();
  const taken = new Set<StoredApp>();
  const match = (entry: AppEntry, index: number, name: string | undefined): void => {
    if (name === undefined || matched.has(entry)) return;
    const candidates = apps.filter((app) => app.name === name && !taken.has(app));
    const found = chosen(entry, candidates);
    if (found === 'ambiguous')
      throw parsed.mistake(
        ['apps', index, 'name'],
        `may mean ${candidates.length} apps: add "owner", the address of the account that owns the one that is meant`,
      );
    if (found === null) return;
    taken.add(found);
    matched.set(entry, found);
  };
  for (const [index, entry] of entries.entries()) match(entry, index, entry.name);
  for (const [index, entry] of entries.entries()) match(entry, index, entry.renamedFrom);
  return matched;
}

function chosen(entry: AppEntry, candidates: readonly StoredApp[]): StoredApp | 'ambiguous' | null {
  const unowned = candidates.find((app) => ownerOf(app) === null) ?? null;
  const key = entry.owner === undefined ? null : parseEmail(entry.owner)?.key;
  if (key === null) return unowned ?? (candidates.length > 1 ? 'ambiguous' : (candidates[0] ?? null));
  const own = candidates.find(({ members }) =>
    members.some(({ emailKey, role }) => emailKey === key && role === 'owner'),
  );
  return own ?? unowned;
}
