/** Browsers and systems by their User-Agent header, as far as a user recognizes their own. */

/**
 * A browser on a system. Both come from closed lists: no text of a client is stored, shown or mailed, and no version, which
 * would make a new device of every update.
 */
export interface Device {
  readonly browser: string;
  readonly system: string;
}

/** Longer headers are cut before they are searched. */
const MOST_CHARACTERS = 512;

/** By a text in the header; the first one counts, because most browsers also name those that they are compatible with. */
const BROWSERS: readonly (readonly [text: string, name: string])[] = [
  ['Edg', 'Edge'],
  ['OPR/', 'Opera'],
  ['Vivaldi/', 'Vivaldi'],
  ['SamsungBrowser/', 'Samsung Internet'],
  ['YaBrowser/', 'Yandex Browser'],
  ['DuckDuckGo/', 'DuckDuckGo'],
  ['FxiOS/', 'Firefox'],
  ['Firefox/', 'Firefox'],
  ['CriOS/', 'Chrome'],
  ['HeadlessChrome/', 'Chrome'],
  ['Chrome/', 'Chrome'],
  ['Safari/', 'Safari'],
  ['curl/', 'curl'],
  ['Wget/', 'Wget'],
  ['python-', 'Python'],
  ['Go-http-client/', 'Go'],
  ['node', 'Node.js'],
];

const SYSTEMS: readonly (readonly [text: string, name: string])[] = [
  ['iPhone', 'iPhone'],
  ['iPad', 'iPad'],
  ['Android', 'Android'],
  ['CrOS', 'ChromeOS'],
  ['Windows', 'Windows'],
  ['Mac OS X', 'macOS'],
  ['Macintosh', 'macOS'],
  ['Linux', 'Linux'],
  ['BSD', 'BSD'],
];

const UNKNOWN = 'unknown';

/** @param userAgent the header as sent; empty if absent */
export function deviceOf(userAgent: string): Device {
  const text = userAgent.slice(0, MOST_CHARACTERS);
  return { browser: nameIn(text, BROWSERS), system: nameIn(text, SYSTEMS) };
}

/** For users: "Firefox on Linux". */
export function deviceText({ browser, system }: Device): string {
  if (browser === UNKNOWN) return system === UNKNOWN ? 'An unknown device' : system;
  return system === UNKNOWN ? browser : `${browser} on ${system}`;
}

function nameIn(text: string, names: readonly (readonly [string, string])[]): string {
  return names.find(([part]) => text.includes(part))?.[1] ?? UNKNOWN;
}
