/** Conditions on payloads, in the grammar of the API's `filter`: written for a value, and recognized in typed text. */

/** A name that needs no quotes. */
const PLAIN_NAME = /^[\p{L}_$@][\p{L}\p{N}_$@/-]*$/u;
/** A text that needs no quotes and does not look like a number. */
const PLAIN_TEXT = /^[\p{L}_/@][\p{L}\p{N}_/@.:+ -]*$/u;
const WORDS = ['true', 'false', 'null'];
/** The server's limit. */
const MOST_CHARACTERS = 1_000;

/** Names of members from the payload's top on, as a path of the grammar. Arrays have no name: a path goes on in each element. */
export function pathText(names: readonly string[]): string {
  return names.map((name) => (PLAIN_NAME.test(name) ? name : JSON.stringify(name))).join('.');
}

/** A scalar of JSON, in its own spelling, as a value of the grammar. */
export function valueText(spelling: string): string {
  if (!spelling.startsWith('"')) return spelling;
  const text = JSON.parse(spelling) as string;
  const isPlain = PLAIN_TEXT.test(text) && !text.endsWith(' ') && !WORDS.includes(text);
  return isPlain ? text : spelling;
}

/** The condition that a field has a value; null where it would be too long. */
export function equals(path: string, value: string): string | null {
  const condition = `${path}:${value}`;
  return condition.length < MOST_CHARACTERS ? condition : null;
}

/** Adds a condition to others: a second value of the same field is another that it may have. */
export function withCondition(
  filters: readonly string[],
  path: string,
  value: string,
  not: boolean,
): string[] {
  const condition = equals(path, value);
  if (condition === null) return [...filters];
  const own = not ? `-${condition}` : condition;
  if (filters.includes(own)) return [...filters];
  const opposite = not ? condition : `-${condition}`;
  const kept = filters.filter((filter) => filter !== opposite);
  const index = kept.findIndex((filter) => !not && filter.startsWith(`${path}:`) && !filter.endsWith(':*'));
  if (index < 0) return [...kept, own];
  const longer = `${kept[index]},${value}`;
  return kept.map((filter, i) => (i === index && longer.length < MOST_CHARACTERS ? longer : filter));
}

/** What was typed as conditions: in the grammar of filters, or what is wrong with it and how it is written here. */
export type Typed = { readonly conditions: readonly string[] } | { readonly mistake: string };

const NAME = String.raw`(?:"(?:[^"\\]|\\.)*"|[^\s:<>=!"'()])+`;
const CONDITION = new RegExp(`^(-|!|NOT\\s+)?(${NAME})\\s*(==|!=|<>|<=|>=|=~|=|<|>|:)\\s*(.*)$`, 'is');
const ONE_OF = new RegExp(`^(-|!|NOT\\s+)?(${NAME})\\s+(NOT\\s+)?IN\\s*\\((.*)\\)$`, 'is');
const PART_OF = new RegExp(`^(?:-|!|NOT\\s+)?(${NAME})\\s+(?:NOT\\s+)?(?:I?LIKE|CONTAINS|MATCHES)\\b`, 'is');
/** Where the next condition begins in a text that has none of the words between. */
const NEXT = new RegExp(`\\s+(?=-?${NAME}(?:[:=<>]|!=))`, 's');
const QUOTED = /"(?:[^"\\]|\\.)*"|(?<=[\s:=<>(,])'[^']*'/g;

/**
 * Reads conditions as people write them, here and elsewhere: `country:DE`, `country = 'DE' AND plan != free`, `plan in (a, b)`.
 * @returns null where the text is no condition, or has no value yet
 */
export function readTyped(text: string): Typed | null {
  const wanted = text.trim();
  if (
    !CONDITION.test(wanted) &&
    !ONE_OF.test(wanted) &&
    !PART_OF.test(wanted) &&
    !/^\(.*[:=<>]/s.test(wanted)
  )
    return null;
  const masked = wanted.replace(QUOTED, (quoted) => '_'.repeat(quoted.length));
  if (masked.includes('"')) return { mistake: 'The closing quote is missing.' };
  const conditions: string[] = [];
  for (const part of partsOf(wanted, masked, /\s+AND\s+|\s*&&\s*/gi)) {
    const own = part.replace(QUOTED, (quoted) => '_'.repeat(quoted.length));
    const alternatives = partsOf(part, own, /\s+OR\s+|\s*\|\|\s*/gi).map(readCondition);
    const read = alternatives.length === 1 ? (alternatives[0] ?? null) : eitherOf(alternatives);
    if (read === null || 'mistake' in read) return read;
    conditions.push(...read.conditions);
  }
  return { conditions };
}

/** The parts of a text between separators, which are looked for where it has no quotes. */
function partsOf(text: string, masked: string, separator: RegExp): string[] {
  const parts: string[] = [];
  let from = 0;
  for (const match of masked.matchAll(separator)) {
    parts.push(text.slice(from, match.index));
    from = match.index + match[0].length;
  }
  return [...parts, text.slice(from)];
}

function readCondition(part: string): Typed | null {
  const [, like = ''] = PART_OF.exec(part) ?? [];
  const [, no = '', names = '', not = '', list = ''] = ONE_OF.exec(part) ?? [];
  if (names !== '')
    return { conditions: [`${no === '' && not === '' ? '' : '-'}${names}:${valuesOf(list)}`] };
  const [, minus = '', path = '', sign = '', rest = ''] = CONDITION.exec(part) ?? [];
  const value = rest.trim();
  if (like !== '' || sign === '=~' || /^[^"']*[^\s"',]\*|^\*./.test(value))
    return {
      mistake: `A condition is on the whole value: ${like || path}:"the value". To find a part of it, type that part alone: it is searched for in the payload.`,
    };
  if (path === '')
    return { mistake: 'Write conditions as country:DE,FR AND plan:pro: brackets are not understood.' };
  if (value === '') return null;
  const [own = '', ...others] = splitOnce(value);
  const isNot = (minus !== '') !== (sign === '!=' || sign === '<>');
  const isOrder = ['<', '<=', '>', '>='].includes(sign);
  const condition = `${isNot ? '-' : ''}${path}${isOrder ? sign : ':'}${valuesOf(own)}`;
  const next = others.length === 0 ? { conditions: [] } : readCondition(others.join(' '));
  if (next === null || 'mistake' in next) return next;
  return { conditions: [condition, ...next.conditions] };
}

/** A value, and the conditions after it that no word separates. */
function splitOnce(value: string): string[] {
  const masked = value.replace(QUOTED, (quoted) => '_'.repeat(quoted.length));
  const at = masked.search(NEXT);
  return at < 0 ? [value] : [value.slice(0, at), value.slice(at).trim()];
}

/** Single quotes are those of other languages. */
const valuesOf = (list: string): string =>
  list
    .trim()
    .replace(/(^|,)\s*'([^']*)'/g, (_, comma: string, inner: string) => comma + JSON.stringify(inner));

/** Several conditions of which one is enough: possible for values of one field. */
function eitherOf(alternatives: readonly (Typed | null)[]): Typed | null {
  const all = alternatives.flatMap((one) => (one !== null && 'conditions' in one ? [one.conditions] : []));
  const split = all.map(([first = '', ...more]) => {
    const path = more.length > 0 ? null : countablePath(first);
    return path === null ? null : { path, value: first.slice(first.indexOf(':', path.length) + 1) };
  });
  const [head] = split;
  if (split.length < alternatives.length || !head || split.some((one) => one?.path !== head.path))
    return {
      mistake: 'OR joins values of one field: country:DE,FR. Conditions on several fields must all be met.',
    };
  return { conditions: [`${head.path}:${split.map((one) => one?.value).join(',')}`] };
}

/** The path at the beginning of typed text, and what follows it: `user.id = 4` has the path `user.id`. Null if there is none. */
export function typedPath(
  text: string,
): { readonly path: string; readonly sign: string; readonly value: string } | null {
  const [, minus = '', path = '', sign = '', value = ''] = CONDITION.exec(text.trim()) ?? [];
  const isNot = minus !== '' || sign === '!=';
  if (path === '') return null;
  return {
    path: `${isNot ? '-' : ''}${path}`,
    sign: ['<', '<=', '>', '>='].includes(sign) ? sign : ':',
    value: value.trim(),
  };
}

/** The path of a condition that counts of a declared field may answer: that the field has one of some values. Else null. */
export function countablePath(condition: string): string | null {
  const [, path = '', value = ''] =
    /^((?!\s*-)(?:[^":<>=\\]|"(?:[^"\\]|\\.)*")+):(.*)$/s.exec(condition) ?? [];
  return path.trim() === '' || ['', '*'].includes(value.trim()) ? null : path.trim();
}
