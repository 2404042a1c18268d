/** How events with some text were found: by reading payloads, by lists of their words, or some each way. */
export const SEARCHED_BY = ['scan', 'words', 'mixed'] as const;
export type SearchedBy = (typeof SEARCHED_BY)[number];

/** @param before null: nothing has been searched before */
export function searchedByBoth(before: SearchedBy | null, next: SearchedBy): SearchedBy {
  return before === null || before === next ? next : 'mixed';
}
