/** The words of other servers, as people read them where these have failed. */

export const MOST_WORD_CHARACTERS = 200;
/** Secrets, signatures and tokens of this service, which a server may repeat. */
const SECRETS = /\b(whsec_|v1,|td[a-z]_)[\w+/=-]{16,}/g;

/** What HTML writes instead of characters, as far as servers of errors do. */
const ENTITIES: Readonly<Record<string, string>> = {
  ...{ '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'", '&#x27;': "'", '&apos;': "'" },
  ...{ '&nbsp;': ' ' },
};

function withoutTags(html: string): string {
  return html.replace(/<[^<>]*>/g, ' ').replace(/&#?\w{2,4};/g, (entity) => ENTITIES[entity] ?? entity);
}

/** The beginning of an answer on one line: without tags of HTML, and without what could command a terminal, or is secret. */
export function shownWords(text: string): string {
  const line = (/^\s*</.test(text) ? withoutTags(text) : text)
    .replace(SECRETS, '$1…')
    .replace(/[\p{C}\s]+/gu, ' ')
    .trim();
  return [...line].slice(0, MOST_WORD_CHARACTERS).join('');
}
