/** `redact`: rules by which values leave payloads before anything stores them. */
import { Option } from 'commander';
import {
  addRedaction,
  findTypeOf,
  type ListedRule,
  listRedactions,
  REDACTIONS,
  Redaction,
  type RedactionAction,
  type RedactionRule,
  removeRedaction,
} from '../apps/redaction.ts';
import { WrongInput } from '../errors.ts';
import { spellPath } from '../read/fields/payload-paths.ts';
import { parseCount } from './duration.ts';
import { pathOf } from './field-command.ts';
import { APP_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import type { Answer, Command, Session } from './session.ts';

interface RuleOptions {
  readonly app: string;
  readonly type: string;
  readonly path: string;
}

const PATH_OPTION = ['--path <path>', 'where the value is in the payload, such as user.email'] as const;
const TYPE_OPTION = ['--type <type>', 'name or id of the event type'] as const;

const action = (): Option =>
  new Option(
    '--action <action>',
    'drop: remove it with its name; mask: replace it by "***"; hmac: replace it by a keyed digest, which equal values share',
  ).choices(REDACTIONS);

export function addRedactCommands(program: Command): void {
  const redact = program
    .command('redact')
    .description('values that leave payloads before anything stores, checks or logs them');
  redact
    .command('add')
    .description('add a rule to an event type, or give the rule of a path another action')
    .requiredOption(...APP_OPTION)
    .requiredOption(...TYPE_OPTION)
    .requiredOption(...PATH_OPTION)
    .addOption(action().makeOptionMandatory())
    .run(async ({ sql }, options: RuleOptions & { action: RedactionAction }) => {
      const made = await addRedaction(sql, { ...referenceOf(options), action: options.action });
      const json = shown(made);
      return { json, text: formatFields({ Type: json.typeName, Path: json.path, Action: json.action }) };
    });
  redact
    .command('list')
    .description('list the rules of an app')
    .requiredOption(...APP_OPTION)
    .list(async ({ sql }, options: Pick<RuleOptions, 'app'>) => {
      const rules = (await listRedactions(sql, options.app)).map(shown);
      const rows = rules.map((rule) => [rule.typeName, rule.path, rule.action, rule.createdAt]);
      const head = ['Type', 'Path', 'Action', 'Created'];
      return { json: { rules }, text: formatTable(head, rows, 'The app has no rules of redaction.') };
    });
  redact
    .command('remove')
    .description('remove a rule: values that come from now on are stored')
    .requiredOption(...APP_OPTION)
    .requiredOption(...TYPE_OPTION)
    .requiredOption(...PATH_OPTION)
    .run(async ({ sql }, options: RuleOptions) => {
      const { typeId, typeName, path } = await removeRedaction(sql, referenceOf(options));
      const json = { typeId, typeName, path: spellPath(path) };
      return { json, text: formatFields({ Removed: `${json.path} of ${typeName}` }) };
    });
  redact
    .command('preview')
    .description(
      'show what a rule, or without one those of the type, would do to recent events; nothing is changed',
    )
    .requiredOption(...APP_OPTION)
    .requiredOption(...TYPE_OPTION)
    .option(...PATH_OPTION)
    .addOption(action())
    .option('--limit <n>', 'how many of the latest events to look at, 1 to 1000', parseCount(1, 1_000), 100)
    .run(preview);
}

interface PreviewOptions extends Omit<RuleOptions, 'path'> {
  readonly path?: string;
  readonly action?: RedactionAction;
  readonly limit: number;
}

/** Events that a preview shows. */
const EXAMPLES = 5;
const MAX_PREVIEW_BYTES = 33_554_432;

async function preview(session: Session, options: PreviewOptions): Promise<Answer> {
  const { app, type: name, limit } = options;
  const { sql, storage } = session;
  const type = await findTypeOf(sql, { appId: app, type: name });
  const rules = await previewedRules(session, options, type.typeId);
  const pool = await storage.poolOfApp(sql, type.appId);
  const { events } = await storage.reader(pool).list({
    ...{ appId: type.appId, typeIds: [type.id], from: null, until: null, order: 'desc', after: null },
    ...{ limit, maxBytes: MAX_PREVIEW_BYTES },
  });
  const redaction = new Redaction(app, rules);
  const key = (await session.secret()).redactionKey;
  const changed = events.flatMap(({ id, createdAt, payload }) => {
    const after = redaction.apply(payload, key);
    return after === payload ? [] : [{ eventId: id, createdAt, before: payload, after }];
  });
  const shownRules = rules.map(({ path, action: what }) => ({ path: spellPath(path), action: what }));
  const examples = changed.slice(0, EXAMPLES);
  const json = {
    ...{ appId: app, typeId: type.typeId, typeName: type.typeName, rules: shownRules },
    ...{ events: events.length, changed: changed.length, examples },
  };
  const counts = formatFields({
    Type: type.typeName,
    Rules: shownRules.map(({ path, action: what }) => `${what} ${path}`),
    'Latest events': String(events.length),
    'Would be changed': String(changed.length),
  });
  const lines = examples.map(({ eventId, before, after }) =>
    formatFields({ Event: eventId, Before: before, After: after }),
  );
  return { json, text: [counts, ...lines].join('\n\n') };
}

async function previewedRules(
  { sql }: Session,
  { app, path, action: what }: PreviewOptions,
  typeId: string,
): Promise<readonly RedactionRule[]> {
  if ((path === undefined) !== (what === undefined))
    throw new WrongInput(
      'a preview of a new rule needs both --path and --action; without them the rules of the type are shown',
    );
  if (path !== undefined && what !== undefined) return [{ path: pathOf('--path', path), action: what }];
  return (await listRedactions(sql, app)).filter((rule) => rule.typeId === typeId);
}

function referenceOf({ app, type, path }: RuleOptions) {
  return { appId: app, type, path: pathOf('--path', path) };
}

function shown({ typeId, typeName, path, action: what, createdAt }: ListedRule) {
  return { typeId, typeName, path: spellPath(path), action: what, createdAt };
}
