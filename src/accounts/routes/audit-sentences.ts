/** What an entry of the audit log says, as the pages show it. */
import { spellPath } from '../../base/path-text.ts';
import type { AccountAction, AuditAction, AuditEntry } from '../log/audit.ts';

type Details = AuditEntry['details'];

/** Sentences about an app, which follow the name of who acted. */
const OF_APPS: Readonly<Record<AuditAction, (details: Details) => string>> = {
  'app.create': () => 'created the app',
  'app.rename': ({ from, to }) => `renamed the app from “${from}” to “${to}”`,
  'app.limit': limitsText,
  'app.search': ({ lists }) => `turned lists of words ${lists}`,
  'app.delete': () => 'deleted the app',
  'app.restore': () => 'restored the app',
  'app.erase': () => 'erased the app',
  'app.suspend': () => 'suspended the app',
  'app.resume': () => 'resumed the app',
  'type.create': ({ name }) => `created the event type “${name}”`,
  'type.rename': ({ from, to }) => `renamed the event type “${from}” to “${to}”`,
  'type.hide': ({ name }) => `hid the event type “${name}” in charts`,
  'type.show': ({ name }) => `showed the event type “${name}” in charts again`,
  'type.annotate': ({ name }) => `had charts mark the events of the type “${name}”`,
  'type.count': ({ name }) => `had charts no longer mark the events of the type “${name}”`,
  'type.schema-set': ({ mode }) => `set the schema of an event type: ${mode}`,
  'type.schema-remove': () => 'removed the schema of an event type',
  'field.add': ({ path }) => `declared the field “${fieldOf(path)}”`,
  'field.backfill': ({ path }) => `had the field “${fieldOf(path)}” counted in the past too`,
  'field.unit': ({ path, unit }) =>
    `changed how numbers of “${fieldOf(path)}” are shown: ${unit ?? 'without a unit'}`,
  'field.remove': ({ path }) => `removed the field “${fieldOf(path)}”`,
  'redaction.add': ({ path, name, what }) => `has “${fieldOf(path)}” of “${name}” redacted: ${what}`,
  'redaction.remove': ({ path, name }) => `stopped to redact “${fieldOf(path)}” of “${name}”`,
  'erasure.ask': ({ what, erasureId }) =>
    `asked to ${what === 'anonymize' ? 'anonymize' : 'delete'} events (${erasureId})`,
  'erasure.finish': ({ events, erasureId }) => `finished the erasure ${erasureId} of ${events} events`,
  'retention.set': ({ name, days }) => `set the retention of ${name ? `“${name}”` : 'the app'}: ${days}`,
  'consumer.add': ({ name }) => `added the consumer “${name}”`,
  'consumer.seek': ({ name }) => `moved the consumer “${name}” to another place`,
  'consumer.skip': ({ name }) => `left out an event of the consumer “${name}”`,
  'consumer.remove': ({ name }) => `removed the consumer “${name}”`,
  'webhook.add': ({ url }) => `added the webhook ${url}`,
  'webhook.pause': ({ webhookId }) => `paused the webhook ${webhookId}`,
  'webhook.resume': ({ webhookId }) => `resumed the webhook ${webhookId}`,
  'webhook.skip': ({ webhookId, eventId }) => `skipped the event ${eventId} of the webhook ${webhookId}`,
  'webhook.rotate': ({ webhookId }) => `rotated the secret of the webhook ${webhookId}`,
  'webhook.keep': ({ url }) => `kept the webhook ${url} of a former member`,
  'webhook.disable': ({ url, reason }) => `disabled the webhook ${url}: ${reason}`,
  'webhook.remove': ({ url }) => `removed the webhook ${url}`,
  'alert.add': ({ name }) => `added the alert “${name}”`,
  'alert.change': ({ name }) => `changed the alert “${name}”`,
  'alert.pause': ({ name }) => `paused the alert “${name}”`,
  'alert.resume': ({ name }) => `resumed the alert “${name}”`,
  'alert.remove': ({ name }) => `removed the alert “${name}”`,
  'view.save': ({ name }) => `saved the view “${name}”`,
  'view.remove': ({ name }) => `removed the saved view “${name}”`,
  'board.create': ({ name }) => `made the board “${name}”`,
  'board.change': ({ name }) => `changed the board “${name}”`,
  'board.remove': ({ name }) => `removed the board “${name}”`,
  'share.create': ({ name, how }) => `shared “${name}” by a link: ${how}`,
  'share.revoke': ({ name }) => `revoked a share of “${name}”`,
  'annotation.add': ({ kind, text }) => `added the annotation “${text}” (${kind})`,
  'annotation.remove': ({ kind, text }) => `removed the annotation “${text}” (${kind})`,
  'logging-token.rotate': ({ graceHours }) => `rotated the logging token${graceOf(graceHours)}`,
  'producer.create': ({ name }) => `created the producer “${name}”`,
  'producer.rotate': ({ name, graceHours }) => `rotated the logging token of “${name}”${graceOf(graceHours)}`,
  'producer.revoke': ({ name }) => `revoked the producer “${name}”`,
  'producer.restore': ({ name }) => `restored the producer “${name}”`,
  'resource-token.create': ({ name }) => `created the resource token “${name}”`,
  'resource-token.revoke': ({ name }) => `revoked the resource token “${name}”`,
  'resource-token.restore': ({ name }) => `restored the resource token “${name}”`,
  'resource-token.keep': ({ name }) => `kept the resource token “${name}” of a former member`,
  'browser-key.create': ({ name }) => `created the browser key “${name}”`,
  'browser-key.revoke': ({ name }) => `revoked the browser key “${name}”`,
  'browser-key.restore': ({ name }) => `restored the browser key “${name}”`,
  'member.add': ({ email, role }) => `added ${email} as ${role}`,
  'member.role': ({ email, role }) => `made ${email} ${role}`,
  'member.remove': ({ email }) => `removed ${email}`,
  'member.leave': () => 'left the app',
  'member.group': ({ role, group }) => `became ${role} by the group “${group}”`,
  'member.group-end': ({ email, group }) => `${email} lost the access by the group “${group}”`,
  'invitation.create': ({ email, role }) => `invited ${email} as ${role}`,
  'invitation.withdraw': ({ email }) => `withdrew the invitation of ${email}`,
  'invitation.accept': ({ role, invited }) =>
    `joined as ${role}${typeof invited === 'string' ? `, by the invitation of ${invited}` : ''}`,
};

/** Whole sentences about an account. */
const OF_ACCOUNTS: Readonly<Record<AccountAction, string>> = {
  'sign-in.new-device': 'Signed in from a new device',
  'sign-out.one': 'A session was ended',
  'sign-out.others': 'All other sessions were ended',
  'sign-out.everywhere': 'All sessions were ended',
  'password.change': 'The password was changed',
  'password.reset': 'The password was set by a link',
  'second-factor.enable': 'The second factor was turned on',
  'second-factor.disable': 'The second factor was turned off',
  'second-factor.remove': 'The operator of the server removed the second factor',
  'second-factor.guessing': 'Ten wrong codes in a row were entered',
  'second-factor.lock': 'A hundred wrong codes in a row were entered: a recovery code is needed',
  'recovery-codes.create': 'The recovery codes were replaced',
  'recovery-code.use': 'A recovery code was used',
  'identity.join': 'An identity of the issuer was joined to the account',
  'identity.leave': 'An identity of the issuer was removed from the account',
  'account.suspend': 'The operator suspended the account',
  'account.resume': 'The operator ended the suspension of the account',
};

/** An entry of an app's log goes on after the name of who acted; one of an account's is a sentence of its own. */
export function sentenceOf({ action, details }: Pick<AuditEntry, 'action' | 'details'>): string {
  if (isOfApp(action)) return OF_APPS[action](details);
  const { device, address } = details;
  const where = [device, address].filter((part) => typeof part === 'string').join(', ');
  // A later release may have written an action that this one does not know.
  const known: string | undefined = OF_ACCOUNTS[action];
  return known === undefined
    ? `${action} ${JSON.stringify(details)}`
    : `${known}${where === '' ? '' : `: ${where}`}`;
}

const isOfApp = (action: AuditEntry['action']): action is AuditAction => Object.hasOwn(OF_APPS, action);

/** A path as filters spell it: the audit log has its names as JSON. */
function fieldOf(path: unknown): string {
  if (typeof path !== 'string' || !path.startsWith('[')) return String(path);
  return spellPath(JSON.parse(path) as string[]); // The log has names alone.
}

/** Names of limits, in the order in which they are said. */
const LIMITS = [
  ['createPerMinute', 'requests per minute'],
  ['bytesPerDay', 'bytes per day'],
  ['types', 'event types'],
] as const;

function limitsText(details: Details): string {
  const set = LIMITS.flatMap(([name, what]) => {
    const limit = details[name];
    return typeof limit === 'number' ? [`${limit.toLocaleString('en-US')} ${what}`] : [];
  });
  return set.length === 0 ? 'set the limits back to the defaults' : `limited the app to ${set.join(', ')}`;
}

function graceOf(hours: unknown): string {
  if (typeof hours !== 'number') return '';
  return hours === 0
    ? '; the old one stopped at once'
    : `; the old one stayed valid for ${hours} ${hours === 1 ? 'hour' : 'hours'}`;
}
