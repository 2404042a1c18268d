/**
 * Forms in which a webhook sends messages of alerts: the signed one, and those of chat tools. Each is one function of what a message
 * says, as the tools document it:
 *
 *   slack  https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks, which Mattermost and Discord (`/slack`) take, too
 *   teams  https://adaptivecards.io/explorer, posted to a workflow "when a webhook request is received"
 *   ntfy   https://docs.ntfy.sh/publish/#publish-as-json
 */
import type { WebhookFormat } from '../base/webhook-formats.ts';

/** What people read of a message. */
export interface Note {
  readonly kind: 'firing' | 'resolved' | 'corrected' | 'test';
  readonly title: string;
  /** A sentence each. */
  readonly lines: readonly string[];
  /** Names and values, to be read at a glance. */
  readonly facts: readonly (readonly [name: string, value: string])[];
  /** What to do now. */
  readonly advice: string;
  readonly link: { readonly label: string; readonly url: string } | null;
}

export type ChatFormat = Exclude<WebhookFormat, 'standard'>;

const LOOKS = {
  firing: { color: '#b3261e', style: 'Attention', tag: 'warning', priority: 4 },
  resolved: { color: '#2e7d32', style: 'Good', tag: 'white_check_mark', priority: 3 },
  corrected: { color: '#8a6d00', style: 'Warning', tag: 'leftwards_arrow_with_hook', priority: 3 },
  test: { color: '#3b5bdb', style: 'Accent', tag: 'wave', priority: 3 },
} as const;

const MOST_TITLE = 200;
const MOST_LINE = 300;
/** Discord and ntfy have the lowest limits of a text: 4,096 characters of it, of all texts 6,000; and 4,096 bytes. */
const MOST_TEXT_BYTES = 3_500;
/** Discord has the lowest limit of an address. */
const MOST_URL = 2_048;
/** Left out of an address that is longer. */
const LONG_PARAMETERS = ['filter', 'of', 'stat'];

/** The last part of an address of ntfy. */
const TOPIC = /\/([-\w]{1,64})$/;

const CHAT: Readonly<Record<ChatFormat, (note: Note, url: string) => object>> = {
  slack: ({ kind, title, lines, facts, advice, link }) => ({
    text: inSlack(title),
    mrkdwn: false,
    attachments: [
      {
        color: LOOKS[kind].color,
        fallback: inSlack(title),
        ...(link !== null && { title: link.label, title_link: link.url }),
        text: withinBytes(lines.map(inSlack)),
        fields: facts.map(([name, value]) => ({ title: inSlack(name), value: inSlack(value), short: true })),
        footer: inSlack(advice),
      },
    ],
  }),

  teams: ({ kind, title, lines, facts, advice, link }) => {
    const block = (text: string, look: object = {}): object => ({
      type: 'TextBlock',
      text: plain(text),
      wrap: true,
      ...look,
    });
    const card = {
      $schema: 'http://adaptivecards.io/schemas/adaptive-card.json',
      type: 'AdaptiveCard',
      version: '1.4',
      body: [
        block(title, { size: 'Medium', weight: 'Bolder', color: LOOKS[kind].style }),
        ...lines.map((line) => block(line)),
        { type: 'FactSet', facts: facts.map(([name, value]) => ({ title: name, value: plain(value) })) },
        block(advice, { isSubtle: true, size: 'Small' }),
      ],
      actions: link === null ? [] : [{ type: 'Action.OpenUrl', title: link.label, url: link.url }],
    };
    const attachment = {
      contentType: 'application/vnd.microsoft.card.adaptive',
      contentUrl: null,
      content: card,
    };
    return { type: 'message', attachments: [attachment] };
  },

  ntfy: ({ kind, title, lines, advice, link }, url) => ({
    topic: TOPIC.exec(new URL(url).pathname)?.[1] ?? '',
    title: cut(title, MOST_TITLE),
    message: withinBytes(
      lines.map((line) => cut(line, MOST_LINE)),
      advice,
    ),
    priority: LOOKS[kind].priority,
    tags: [LOOKS[kind].tag],
    ...(link !== null && {
      click: link.url,
      actions: [{ action: 'view', label: link.label, url: link.url }],
    }),
  }),
};

/** The body that a chat tool takes, as JSON. @param url of the webhook */
export function chatBody(format: ChatFormat, note: Note, url: string): string {
  return JSON.stringify(CHAT[format]({ ...note, link: shortened(note.link) }, url));
}

function shortened(link: Note['link']): Note['link'] {
  if (link === null) return null;
  const url = new URL(link.url);
  for (const name of LONG_PARAMETERS) if (url.href.length > MOST_URL) url.searchParams.delete(name);
  return { ...link, url: url.href };
}

/** Where the messages of a webhook are posted to: ntfy takes JSON beside its topics. */
export function postedTo(format: WebhookFormat, url: string): string {
  if (format !== 'ntfy') return url;
  const at = new URL(url);
  at.pathname = at.pathname.replace(TOPIC, '/');
  return at.href;
}

/** What is wrong with an address as that of a format; null: nothing. */
export function addressProblem(format: WebhookFormat, url: URL): string | null {
  if (format !== 'ntfy' || TOPIC.test(url.pathname)) return null;
  return 'must end with the topic, such as https://ntfy.sh/my-topic';
}

/** Slack's own characters, beside what all of them would take for more than text. */
function inSlack(text: string): string {
  return plain(text).replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

/** Names and values come from events: nobody is called by them, and no word of them hides an address. */
function plain(text: string): string {
  return cut(text, MOST_LINE)
    .replace(/@(?=\w)/g, '@\u200b')
    .replaceAll('](', ']\u200b(');
}

function cut(text: string, most: number): string {
  const characters = [...text];
  return characters.length > most ? `${characters.slice(0, most - 1).join('')}…` : text;
}

/** As many lines as there is room for beside the last ones. */
function withinBytes(lines: readonly string[], ...last: readonly string[]): string {
  let room = MOST_TEXT_BYTES - Buffer.byteLength(last.join('\n'));
  const kept = lines.filter((line) => {
    room -= Buffer.byteLength(line) + 1;
    return room >= 0;
  });
  return [...kept, ...last].join('\n');
}
