/** Copies a substring. V8 substrings reference the whole text and keep it in memory. */
export function ownText(part: string): string {
  return JSON.parse(JSON.stringify(part));
}
