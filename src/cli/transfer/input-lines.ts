/** Reads an input of any size as numbered lines, in bounded memory. */
import { isUtf8 } from 'node:buffer';

export interface InputLine {
  /** From 1; blank lines count. */
  readonly number: number;
  /** The line without its line break; null if it cannot be read. */
  readonly text: string | null;
  /** Why the line cannot be read; empty if there is a text. */
  readonly problem: string;
}

const NEWLINE = 0x0a;
const BYTE_ORDER_MARK = '\uFEFF';

/**
 * Reads lines in blocks. Skips blank lines and a byte order mark at the start.
 * @param maxBytes a longer line has a problem instead of its text, and is never buffered as a whole
 */
export async function* readLines(
  source: AsyncIterable<Buffer>,
  maxBytes: number,
): AsyncGenerator<readonly InputLine[]> {
  let number = 0;
  let held: Buffer[] = [];
  let heldBytes = 0;

  const take = (end: Buffer): InputLine[] => {
    const block = heldBytes > maxBytes ? null : Buffer.concat([...held, end]);
    held = [];
    heldBytes = 0;
    const lines = block === null ? [tooLong(maxBytes)] : linesOf(block, maxBytes);
    return lines.flatMap((line) => {
      number += 1;
      if (line.text?.trim() === '') return [];
      const text = number === 1 && line.text?.startsWith(BYTE_ORDER_MARK) ? line.text.slice(1) : line.text;
      return [{ number, text, problem: line.problem }];
    });
  };
  const hold = (part: Buffer): void => {
    heldBytes += part.length;
    if (heldBytes <= maxBytes) held.push(part);
    else held = [];
  };

  for await (const chunk of source) {
    let rest = chunk;
    if (heldBytes > 0) {
      // The line that is held ends by itself: it may be too long, and the others need not be copied.
      const end = rest.indexOf(NEWLINE);
      if (end === -1) {
        hold(rest);
        continue;
      }
      hold(rest.subarray(0, end));
      yield take(Buffer.alloc(0));
      rest = rest.subarray(end + 1);
    }
    const last = rest.lastIndexOf(NEWLINE);
    if (last !== -1) yield take(rest.subarray(0, last));
    if (last + 1 < rest.length) hold(rest.subarray(last + 1));
  }
  if (heldBytes > 0) yield take(Buffer.alloc(0));
}

interface Text {
  readonly text: string | null;
  readonly problem: string;
}

function linesOf(block: Buffer, maxBytes: number): Text[] {
  if (isUtf8(block)) {
    return block
      .toString('utf8')
      .split('\n')
      .map((text) =>
        // A UTF-16 unit takes at most three bytes.
        text.length * 3 > maxBytes && Buffer.byteLength(text) > maxBytes
          ? tooLong(maxBytes)
          : { text, problem: '' },
      );
  }
  const lines: Text[] = [];
  for (let start = 0; start <= block.length; ) {
    const newline = block.indexOf(NEWLINE, start);
    const end = newline === -1 ? block.length : newline;
    const bytes = block.subarray(start, end);
    if (!isUtf8(bytes)) lines.push({ text: null, problem: 'it is not valid UTF-8' });
    else lines.push(...linesOf(bytes, maxBytes));
    start = end + 1;
  }
  return lines;
}

function tooLong(maxBytes: number): Text {
  return { text: null, problem: `it is longer than ${maxBytes} bytes (MAX_BODY_BYTES)` };
}
