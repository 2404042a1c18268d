/** JSON of every shape that is expensive to somebody: what it costs must not depend on it. */

function filled(bytes: number, open: string, item: string, close: string): string {
  return (
    open + item.repeat(Math.floor((bytes - open.length - close.length) / Buffer.byteLength(item))) + close
  );
}

/** Values of about so many bytes in UTF-8, by what is special in them. */
export function bodyShapes(bytes: number): Readonly<Record<string, string>> {
  const half = Math.floor(bytes / 2);
  return {
    'a string': filled(bytes, '"', 'x', '"'),
    'nested arrays': '['.repeat(half) + ']'.repeat(half),
    'nested objects': `${'{"":'.repeat(Math.floor(bytes / 5))}0${'}'.repeat(Math.floor(bytes / 5))}`,
    'arrays of 900 levels': filled(bytes, '[', `${'['.repeat(900)}${']'.repeat(900)},`, '0]'),
    'empty arrays': filled(bytes, '[', '[],', '0]'),
    'empty objects': filled(bytes, '[', '{},', '0]'),
    members: `{${Array.from({ length: Math.floor(bytes / 11) }, (_, n) => `"${100_000 + n}":0`).join()}}`,
    'short strings': filled(bytes, '[', '"a",', '0]'),
    'short numbers': filled(bytes, '[', '1,', '0]'),
    'long numbers': filled(bytes, '[', '-1.5e-300,', '0]'),
    'one number': '1'.repeat(bytes),
    'short escapes': filled(bytes, '"', '\\n', '"'),
    backslashes: filled(bytes, '"', '\\\\', '"'),
    'escapes of controls': filled(bytes, '"', '\\u0001', '"'),
    spaces: filled(bytes, '[', ' ', ']'),
    'accented letters': filled(bytes, '"', 'é', '"'),
    emoji: filled(bytes, '"', '\u{1f30a}', '"'),
    'names like that of the token': filled(bytes, '{', '"loggingTokem":0,', '"":0}'),
    'unfinished arrays': '['.repeat(bytes),
    'an unfinished string': filled(bytes, '"', 'x', ''),
  };
}
