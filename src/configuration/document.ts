/** The document of an installation's configuration: its shape, as a type and as the JSON Schema that checks it. */

import type { OwnLimits } from '../apps/app-limits.ts';
import { REDACTIONS, type RedactionAction } from '../apps/redaction.ts';
import type { KeptDays } from '../apps/retention.ts';
import type { SchemaMode } from '../apps/type-schemas.ts';
import { ROLES, type Role } from '../base/roles.ts';
import { FORMATS } from '../base/webhook-formats.ts';
import type { WebhookEntry as Webhook } from '../delivery/webhooks.ts';
import type { FieldKind } from '../storage/fields/payload-values.ts';

export interface RedactionEntry {
  readonly path: string;
  readonly action: RedactionAction;
}

export interface TypeEntry {
  readonly name: string;
  readonly renamedFrom?: string;
  readonly hidden?: boolean;
  readonly annotation?: boolean;
  readonly schema?: object;
  readonly schemaMode?: SchemaMode;
  readonly redact?: readonly RedactionEntry[];
  readonly retention?: KeptDays;
}

export interface FieldEntry {
  readonly path: string;
  readonly kind?: FieldKind;
  readonly by?: string;
  readonly type?: string;
  readonly unit?: string;
  readonly decimals?: number;
}

export interface ViewEntry {
  readonly name: string;
  readonly search: string;
}

export interface MemberEntry {
  readonly email: string;
  readonly role: Role;
}

export interface GroupEntry {
  readonly group: string;
  readonly role: Role;
}

export interface WebhookEntry extends Webhook {
  readonly paused?: boolean;
}

export interface AlertEntry {
  readonly name: string;
  readonly rule: object;
  readonly timezone?: string;
  /** Addresses of webhooks of the app. */
  readonly webhooks?: readonly string[];
  readonly emails?: readonly string[];
  readonly alertmanager?: string;
  readonly paused?: boolean;
}

export interface AppEntry {
  readonly name: string;
  readonly owner?: string;
  readonly renamedFrom?: string;
  readonly limits?: Partial<OwnLimits>;
  readonly retention?: KeptDays;
  readonly types?: readonly TypeEntry[];
  readonly fields?: readonly FieldEntry[];
  readonly views?: readonly ViewEntry[];
  readonly members?: readonly MemberEntry[];
  readonly groups?: readonly GroupEntry[];
  readonly webhooks?: readonly WebhookEntry[];
  readonly alerts?: readonly AlertEntry[];
}

/** What it does not say stays as it is; with prune it is removed. Without one of the lists at the top nothing of its kind is. */
export interface ConfigDocument {
  readonly version?: 1;
  readonly partial?: boolean;
  readonly apps?: readonly AppEntry[];
  readonly groups?: readonly GroupEntry[];
}

const NAME = { type: 'string', minLength: 1, maxLength: 200 } as const;
const PATH = { type: 'string', minLength: 1, maxLength: 1_000 } as const;
const EMAIL = { type: 'string', minLength: 3, maxLength: 254 } as const;
const LIMIT = { type: ['integer', 'null'], minimum: 1 } as const;
const ROLE = { enum: ROLES } as const;

function list(description: string, items: object): object {
  return { description, type: 'array', maxItems: 100_000, items };
}

/** An object of these properties and no others. */
function entry(properties: Readonly<Record<string, object>>, required: readonly string[]): object {
  return { type: 'object', properties, required, additionalProperties: false };
}

const RENAMED_FROM = {
  ...NAME,
  description: 'The earlier name. Once the rename is done, it does nothing.',
};

const GROUP = entry(
  {
    group: { ...NAME, description: 'The group, as OIDC_GROUPS_CLAIM has it.' },
    role: ROLE,
  },
  ['group', 'role'],
);

const RETENTION = {
  oneOf: [{ type: 'integer', minimum: 1 }, { enum: ['forever', 'default'] }],
  description: 'For how many days events are kept; default: what the app, or RETENTION_DAYS, says.',
} as const;

const TYPE = entry(
  {
    name: NAME,
    renamedFrom: RENAMED_FROM,
    hidden: { type: 'boolean', description: 'Whether charts leave the type out.' },
    annotation: {
      type: 'boolean',
      description: 'Whether charts mark each event of the type, as an annotation.',
    },
    schema: { type: 'object', description: 'The JSON Schema that payloads are checked against.' },
    schemaMode: {
      enum: ['warn', 'refuse'],
      description: 'Whether payloads that violate the schema are counted (the default), or refused too.',
    },
    retention: RETENTION,
    redact: list(
      'Values that leave payloads before anything stores, checks or logs them.',
      entry({ path: PATH, action: { enum: REDACTIONS } }, ['path', 'action']),
    ),
  },
  ['name'],
);

const FIELD = entry(
  {
    path: { ...PATH, description: 'Where the value is in the payload, such as order.country.' },
    kind: { enum: ['value', 'number', 'distinct'], description: 'Default: value.' },
    by: { ...PATH, description: 'Another path, by whose values it is counted apart.' },
    type: { ...NAME, description: 'The name of a type; without it, events of all types.' },
    unit: { type: 'string', description: 'What its numbers are of, such as €, ms or MB.' },
    decimals: { type: 'integer', description: 'Digits after the decimal point that are shown.' },
  },
  ['path'],
);

const VIEW = entry(
  {
    name: NAME,
    search: { type: 'string', maxLength: 8_192, description: "The query of the page's address." },
  },
  ['name', 'search'],
);

const WEBHOOK = entry(
  {
    url: { type: 'string', minLength: 1, maxLength: 2_000 },
    types: list('Names of types; without it, events of all types.', NAME),
    filter: list('Conditions on the payload, all of which must be met.', PATH),
    unordered: { type: 'boolean', description: 'Whether several events may be sent at once.' },
    events: { type: 'boolean', description: 'False: messages of alerts alone are sent.' },
    format: {
      enum: FORMATS,
      description:
        'standard: signed JSON. Else the chat tool that gets messages of alerts, and nothing else.',
    },
    paused: { type: 'boolean' },
  },
  ['url'],
);

const ALERT = entry(
  {
    name: NAME,
    rule: { type: 'object', description: 'The rule, such as { of: count, window: 5m, above: 100 }.' },
    timezone: { ...NAME, description: 'Of the times in its messages. Default: UTC.' },
    webhooks: list('Addresses of webhooks of the app that are told.', { type: 'string', maxLength: 2_000 }),
    emails: list('Addresses that are told by mail.', EMAIL),
    alertmanager: { type: 'string', minLength: 1, maxLength: 2_000 },
    paused: { type: 'boolean' },
  },
  ['name', 'rule'],
);

const APP = entry(
  {
    name: NAME,
    owner: {
      ...EMAIL,
      description: 'The account that owns the app: with the name, it says which app is meant.',
    },
    renamedFrom: RENAMED_FROM,
    retention: RETENTION,
    limits: {
      ...entry({ createPerMinute: LIMIT, bytesPerDay: LIMIT, types: LIMIT }, []),
      description: 'Limits of this app in the place of those of the settings; null: the setting.',
    },
    types: list('Event types.', TYPE),
    fields: list('Declared fields of payloads.', FIELD),
    views: list('Saved views.', VIEW),
    members: list('Members beside the owner.', entry({ email: EMAIL, role: ROLE }, ['email', 'role'])),
    groups: list('Groups of the OIDC issuer that give a role in this app.', GROUP),
    webhooks: list('Webhooks, without their secrets.', WEBHOOK),
    alerts: list('Alerts, by name.', ALERT),
  },
  ['name'],
);

/** The JSON Schema (draft 07) of the document. */
export const CONFIG_SCHEMA = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  title: 'Tidemark configuration',
  description: 'What tidemark apply takes, and tidemark show prints.',
  ...entry(
    {
      $schema: { type: 'string', description: 'For editors.' },
      version: { const: 1 },
      partial: {
        type: 'boolean',
        description: 'Whether the document is of some apps alone: --prune then removes no other app.',
      },
      apps: list('Apps, by name and owner.', APP),
      groups: list('Groups of the OIDC issuer that give a role in every app.', GROUP),
    },
    [],
  ),
} as const;
