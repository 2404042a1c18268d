/** `retention set`, `retention list`: for how long events of an app, or of a type, are kept. */
import {
  countHidden,
  type KeptDays,
  listAllRetention,
  listRetention,
  parseKept,
  planRetention,
  type RetentionChange,
  setRetention,
  shownRule,
} from '../apps/retention.ts';
import { judgedNow } from '../storage/maintenance/time-judge.ts';
import { APP_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import type { Answer, Command, Session } from './session.ts';
import { grouped } from './transfer/progress.ts';

interface SetOptions {
  readonly app: string;
  readonly type?: string;
  readonly days: KeptDays;
  readonly dryRun?: true;
}

export function addRetentionCommands(program: Command): void {
  const retention = program
    .command('retention')
    .description('for how long events of an app, or of one of its types, are kept');
  retention
    .command('set')
    .description(
      'set for how long events are kept: older ones cannot be read from that moment on, and are removed',
    )
    .requiredOption(...APP_OPTION)
    .option(
      '--type <type>',
      'name or id of the event type; otherwise all types without a retention of their own',
    )
    .requiredOption(
      '--days <days>',
      'whole days of at least 1; forever; or default: what the app, or RETENTION_DAYS, says',
      parseKept,
    )
    .option('--dry-run', 'tell how many events could no longer be read, and change nothing')
    .run(set);
  retention
    .command('list')
    .description('list what is kept for how long, of one app or of all that have a retention of their own')
    .option('--app <id>', APP_OPTION[1])
    .list(async ({ sql, config }, { app }: { readonly app?: string }) => {
      const rules = (
        app === undefined ? await listAllRetention(sql, config) : await listRetention(sql, config, app)
      ).map(shownRule);
      const rows = rules.map((rule) => [
        ...[rule.appId, rule.typeName ?? 'all others', daysText(rule.days)],
        ...[rule.readableFrom?.slice(0, 10) ?? 'the beginning', rule.isRemoved ? 'yes' : 'not yet'],
      ]);
      const head = ['App', 'Type', 'Kept', 'Readable from', 'Older rows removed'];
      return { json: { rules }, text: formatTable(head, rows, 'No app has a retention of its own.') };
    });
}

async function set({ sql, config, storage }: Session, options: SetOptions): Promise<Answer> {
  const { app, type = null, days, dryRun = false } = options;
  const change: RetentionChange = { appId: app, type, days, now: await judgedNow(sql) };
  const plan = await planRetention(sql, config, change);
  const hidden = await countHidden(storage.reader(sql), plan);
  const { readableFrom } = shownRule({ readableFrom: plan.boundary });
  if (dryRun)
    return {
      json: { appId: app, type, days, readableFrom, hidden, changed: false },
      text: formatFields({
        App: app,
        ...(type !== null && { Type: type }),
        'Would be readable from': readableFrom?.slice(0, 10) ?? 'the beginning',
        'Would be removed': `${grouped(hidden)} events`,
      }),
    };
  const rule = shownRule(await setRetention(sql, config, change));
  return {
    json: { ...rule, hidden, changed: true },
    text: formatFields({
      App: app,
      ...(rule.typeName !== null && { Type: rule.typeName }),
      Kept: daysText(rule.days),
      'Readable from': rule.readableFrom?.slice(0, 10) ?? 'the beginning',
      'No longer readable': `${grouped(hidden)} events, whose rows are being removed`,
    }),
  };
}

function daysText(days: KeptDays): string {
  return typeof days === 'number' ? `${days} ${days === 1 ? 'day' : 'days'}` : days;
}
