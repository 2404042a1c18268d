/** The programs and configurations that the dashboard and docs/producers.md show. */
import { readFileSync } from 'node:fs';
import { fillIn, parseSnippets, type SnippetPlace } from '../../dashboard/components/snippets.ts';

export const SNIPPETS = parseSnippets(
  readFileSync(new URL('../../dashboard/snippets.txt', import.meta.url), 'utf8'),
);

/** The text of one for a server and an app. */
export function snippet(name: string, place: Pick<SnippetPlace, 'base' | 'loggingToken'>): string {
  const found = SNIPPETS.find((one) => one.name === name);
  if (found === undefined) throw new Error(`There is no snippet "${name}".`);
  return fillIn(found.template, { appId: '', resourceToken: null, ...place });
}
