/** The position of a JSON syntax error, from the browser's message. */

export interface JsonMistake {
  /** Index in the text. */
  readonly at: number;
  /** From 1. */
  readonly line: number;
  readonly column: number;
}

/** @param message of the browser's SyntaxError. @returns null if it names no position */
export function placeOfMistake(text: string, message: string): JsonMistake | null {
  // Chromium: "… in JSON at position 15 (line 2 column 3)"; Firefox: "… at line 2 column 3 of the JSON data".
  const position = /\bposition (\d+)/.exec(message)?.[1];
  const [, line, column] = /\bline (\d+) column (\d+)/.exec(message) ?? [];
  if (position !== undefined) return placeAt(text, Number(position));
  if (line !== undefined) {
    const before = text
      .split('\n')
      .slice(0, Number(line) - 1)
      .reduce((sum, one) => sum + one.length + 1, 0);
    return placeAt(text, before + Number(column) - 1);
  }
  return /\bend\b/i.test(message) ? placeAt(text, text.length) : null;
}

function placeAt(text: string, at: number): JsonMistake {
  const before = text.slice(0, at).split('\n');
  return { at, line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}
