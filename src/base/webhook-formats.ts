/** Forms in which a webhook sends messages, for the service and its pages. `chat.ts` of the deliveries writes them. */

export const FORMATS = ['standard', 'slack', 'teams', 'ntfy'] as const;
export type WebhookFormat = (typeof FORMATS)[number];

/** How they are called where one is chosen. */
export const FORMAT_NAMES: Readonly<Record<WebhookFormat, string>> = {
  standard: 'A program: signed JSON',
  slack: 'Slack, Mattermost or Discord',
  teams: 'Microsoft Teams',
  ntfy: 'ntfy',
};
