/** The `\uXXXX` form of a UTF-16 code unit, as JSON and JavaScript write it. @param character one code unit */
export function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
