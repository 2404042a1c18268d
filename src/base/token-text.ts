/** Format of tokens and public identifiers: creation and validation. */
import { hash, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

/** `tdl`: logging token, `tdr`: resource token, `tdb`: browser key, `tdm`: management token. */
export type TokenKind = 'tdl' | 'tdr' | 'tdb' | 'tdm';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
/** The largest multiple of 62 that fits into a byte: bytes from here on would favor the first letters. */
const UNBIASED = 256 - (256 % ALPHABET.length);
/** 32 characters are 190 bits. */
const RANDOM_CHARACTERS = 32;
/** 62^6 is the first power above every CRC-32. */
const CHECK_CHARACTERS = 6;
/** 20 characters are 119 bits: collisions are practically impossible. */
const ID_CHARACTERS = 20;

const FORMS = {
  tdl: /^tdl_[0-9A-Za-z]{38}$/,
  tdr: /^tdr_[0-9A-Za-z]{38}$/,
  tdb: /^tdb_[0-9A-Za-z]{38}$/,
  tdm: /^tdm_[0-9A-Za-z]{38}$/,
} as const satisfies Record<TokenKind, RegExp>;

/** Characters of a token. */
export const TOKEN_CHARACTERS = 4 + RANDOM_CHARACTERS + CHECK_CHARACTERS;

/** A new token: `tdl_`, `tdr_` or `tdb_`, 32 random base62 characters, 6 check characters. */
export function createTokenText(kind: TokenKind): string {
  const text = `${kind}_${randomBase62(RANDOM_CHARACTERS)}`;
  return text + checkCharacters(text);
}

/**
 * Whether a text has the format of a token of this kind, check characters included. Typing errors and random texts are
 * refused here, without a query.
 */
export function isWellFormed(text: string, kind: TokenKind): boolean {
  return FORMS[kind].test(text) && text.endsWith(checkCharacters(text.slice(0, -CHECK_CHARACTERS)));
}

const KINDS: Readonly<
  Record<TokenKind, { readonly name: string; readonly does: string; readonly send: string }>
> = {
  tdl: { name: 'logging token', does: 'writes', send: "the app's logging token (tdl_…)" },
  tdr: { name: 'resource token', does: 'reads', send: 'a resource token (tdr_…)' },
  tdb: {
    name: 'browser key',
    does: 'writes from the pages of its origins, by POST /v1/collect alone',
    send: 'a browser key (tdb_…)',
  },
  tdm: {
    name: 'management token',
    does: 'reads and applies the configuration, by /v1/config alone',
    send: 'a management token (tdm_…)',
  },
};

/**
 * Why a text is no well-formed token of a kind, and what to do. It says only what the form tells, which everybody knows: not
 * whether such a token exists.
 */
export function formProblem(text: string, kind: TokenKind): string {
  const { name, send } = KINDS[kind];
  for (const other of ['tdl', 'tdr', 'tdb', 'tdm'] as const)
    if (other !== kind && text.startsWith(`${other}_`))
      return `This is a ${KINDS[other].name} (${other}_…), which ${KINDS[other].does}: send ${send}.`;
  if (!text.startsWith(`${kind}_`))
    return `This is not a ${name}: those begin with ${kind}_ and have ${TOKEN_CHARACTERS} characters.`;
  if (text.length < TOKEN_CHARACTERS)
    return `The ${name} is cut off: it has ${text.length} of ${TOKEN_CHARACTERS} characters.`;
  if (text.length > TOKEN_CHARACTERS)
    return `The ${name} is too long: it must have ${TOKEN_CHARACTERS} characters.`;
  return `The ${name} is mistyped: its check characters do not match.`;
}

/** SHA-256 of a token, 32 bytes: the key for lookups in the database. */
export function digestOf(text: string): Buffer {
  return hash('sha256', text, 'buffer');
}

/** What a public identifier names: an app, an event type, a resource token, a user, an invitation, a saved view, a board, a share, an annotation, a session, a webhook, an alert, an erasure. */
export type PublicIdPrefix =
  | 'app'
  | 'typ'
  | 'tok'
  | 'usr'
  | 'inv'
  | 'vie'
  | 'brd'
  | 'shr'
  | 'ann'
  | 'ses'
  | 'whk'
  | 'alr'
  | 'ers';

/** The forms that {@link createPublicId} makes. */
export const PUBLIC_ID_FORMS = {
  app: /^app_[0-9A-Za-z]{20}$/,
  typ: /^typ_[0-9A-Za-z]{20}$/,
  tok: /^tok_[0-9A-Za-z]{20}$/,
  usr: /^usr_[0-9A-Za-z]{20}$/,
  inv: /^inv_[0-9A-Za-z]{20}$/,
  vie: /^vie_[0-9A-Za-z]{20}$/,
  brd: /^brd_[0-9A-Za-z]{20}$/,
  shr: /^shr_[0-9A-Za-z]{20}$/,
  ann: /^ann_[0-9A-Za-z]{20}$/,
  whk: /^whk_[0-9A-Za-z]{20}$/,
  alr: /^alr_[0-9A-Za-z]{20}$/,
  ses: /^ses_[0-9A-Za-z]{20}$/,
  ers: /^ers_[0-9A-Za-z]{20}$/,
} as const satisfies Record<PublicIdPrefix, RegExp>;

/** A new public identifier: the prefix, `_`, 20 random base62 characters. */
export function createPublicId(prefix: PublicIdPrefix): string {
  return `${prefix}_${randomBase62(ID_CHARACTERS)}`;
}

/** CRC-32 of the rest of the token in base62, most significant first, padded with zeros. */
function checkCharacters(text: string): string {
  let rest = crc32(text);
  let characters = '';
  for (let i = 0; i < CHECK_CHARACTERS; i++) {
    characters = ALPHABET.charAt(rest % ALPHABET.length) + characters;
    rest = Math.floor(rest / ALPHABET.length);
  }
  return characters;
}

function randomBase62(length: number): string {
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length - text.length)) {
      if (byte < UNBIASED) text += ALPHABET.charAt(byte % ALPHABET.length);
    }
  }
  return text;
}
