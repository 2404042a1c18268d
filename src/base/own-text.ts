/** V8 copies shorter substrings (SlicedString::kMinLength). */
const SHORTEST_SLICE = 13;

/** Copies a substring. V8 substrings reference the whole text and keep it in memory. */
export function ownText(part: string): string {
  return part.length < SHORTEST_SLICE ? part : JSON.parse(JSON.stringify(part));
}
