/** `tidemark export`: the events of one app in a file of lines. */
import { pipeline } from 'node:stream/promises';
import { Option } from 'commander';
import { internalAppId } from '../accounts/people/members.ts';
import { Rejection, WrongInput } from '../errors.ts';
import { type CsvForm, FORMULAS, SEPARATOR_NAMES, TEXTS } from '../read/export/csv-lines.ts';
import { type ExportFormat, FORMATS, formatted } from '../read/export/export-body.ts';
import { fieldFilterOf } from '../read/filter/counted-values.ts';
import type { Condition } from '../read/filter/parse-filter.ts';
import { parseFilters, payloadFilter } from '../read/filter/payload-filter.ts';
import type { Sql } from '../storage/database/connect.ts';
import type { RowFilter } from '../storage/fields/row-filter.ts';
import type { EventLines, LineReader } from '../storage/read/event-lines.ts';
import type { EventReader } from '../storage/read/event-reader.ts';
import type { ScanRequest } from '../storage/read/event-scan.ts';
import { checkRange, collect, parseInstant } from './duration.ts';
import { besideOutput, formatFields } from './output.ts';
import type { Command } from './session.ts';
import type { Installation } from './transfer/installation.ts';
import { outputOf } from './transfer/output-file.ts';
import { grouped, megabytes, Progress, type ProgressState } from './transfer/progress.ts';

const HELP = `
Oldest events first, one a line: {"id": …, "typeId": …, "type": …, "createdAt": …, "payload": …}. "tidemark import" takes
the file, in both formats. The service may go on meanwhile: events up to the newest one at the start are exported.
Conditions are those of the API: user.id:42  status>=500  country:DE,FR  coupon:*  -bot:true`;

/** Which events of an app are meant. */
export interface ScopeOptions {
  readonly app: string;
  readonly from?: number;
  readonly to?: number;
  readonly type?: readonly string[];
  readonly filter?: readonly string[];
}

interface ExportCommandOptions extends ScopeOptions, Omit<CsvForm, 'bom'> {
  readonly bom?: true;
  readonly format: ExportFormat;
}

interface ExportResult {
  readonly events: number;
  /** Size of the file. */
  readonly bytes: number;
  readonly seconds: number;
}

export function addExportCommand(program: Command): void {
  program
    .command('export')
    .description('write the events of an app to a file, one per line')
    .argument(
      '<file>',
      'the file, which is replaced when the export is complete, or a pipe or device; - writes standard output',
    )
    .requiredOption('--app <id>', 'the app, app_…')
    .addOption(new Option('--format <format>', 'JSON lines or CSV').choices(FORMATS).default('ndjson'))
    .addOption(
      new Option(
        '--formulas <treatment>',
        'in CSV: an apostrophe before a type name that is a formula, or none',
      )
        .choices(FORMULAS)
        .default('escape'),
    )
    .addOption(
      new Option('--separator <separator>', 'in CSV: what stands between columns')
        .choices(SEPARATOR_NAMES)
        .default('comma'),
    )
    .option('--bom', 'in CSV: begin with a byte order mark, by which spreadsheets know UTF-8')
    .addOption(
      new Option('--texts <treatment>', 'in CSV: what looks like a number as it is, or kept as a text')
        .choices(TEXTS)
        .default('exact'),
    )
    .option('--from <time>', 'from this instant on, ISO 8601; without an offset it is UTC', parseInstant)
    .option('--to <time>', 'up to this instant, exclusive', parseInstant)
    .option('--type <name>', 'only events of this type, by name or id; repeat for more', collect)
    .option(
      '--filter <condition>',
      'only events whose payload meets this condition; repeat for more',
      collect,
    )
    .addHelpText('after', HELP)
    .run(async (session, file: string, options: ExportCommandOptions) => {
      const result = await runExport(session, file, options);
      const { events, bytes, seconds } = result;
      const fields = { Events: grouped(events), Size: megabytes(bytes), Seconds: seconds.toFixed(1) };
      return { json: result, text: formatFields(fields), output: besideOutput(file) };
    });
}

async function runExport(
  { storage, sql }: Installation,
  file: string,
  options: ExportCommandOptions,
): Promise<ExportResult> {
  const conditions = conditionsOf(options.filter ?? []);
  const filter = payloadFilter(conditions);
  const counted = fieldFilterOf({ filter: conditions });
  const output = file === '-' ? null : await outputOf(file);
  const startedAt = performance.now();
  const events = storage.reader(sql);
  const scope = await scanOfOptions(sql, options);
  const reader = counted === null ? events.lines(scope, filter) : events.filteredLines(scope, counted);
  const state = await progressOf(events, scope, filter);
  const progress = new Progress();
  const written = { events: 0, bytes: 0 };
  async function* watched(reader: LineReader): AsyncGenerator<EventLines> {
    for (let part = await reader.next(); part !== null; part = await reader.next()) {
      yield part;
      written.events += part.events;
      const { at } = part.position;
      progress.update(() => state(written, at));
    }
  }
  async function* body(): AsyncGenerator<Buffer> {
    for await (const bytes of formatted(watched(reader), { ...options, bom: options.bom === true })) {
      written.bytes += bytes.length;
      yield bytes;
    }
  }
  try {
    if (output === null) await pipeline(body, process.stdout, { end: false });
    else await output((stream) => pipeline(body, stream));
    return { ...written, seconds: Math.round(performance.now() - startedAt) / 1_000 };
  } finally {
    progress.end();
  }
}

export function conditionsOf(texts: readonly string[]): readonly Condition[] {
  const conditions = parseFilters(texts);
  if (typeof conditions === 'string') throw new WrongInput(`--filter ${conditions}`);
  return conditions;
}

/** Which events the options name, oldest first. */
export async function scanOfOptions(sql: Sql, options: ScopeOptions): Promise<ScanRequest> {
  const appId = await internalAppId(sql, options.app);
  const { from = null, to: until = null } = options;
  checkRange(from, until);
  const ids = new Set<number>();
  for (const type of options.type ?? []) for (const id of await typeIdsOf(sql, appId, type)) ids.add(id);
  const typeIds = options.type === undefined ? null : [...ids];
  return { appId, typeIds, from, until, order: 'asc', after: null };
}

async function typeIdsOf(sql: Sql, appId: number, type: string): Promise<readonly number[]> {
  // Loaded when needed: Ajv takes longer to load than most commands run.
  const { findTypes } = await import('../read/scope-query.ts');
  for (const named of [
    { typeId: [], typeName: [type] },
    { typeId: [type], typeName: [] },
  ]) {
    const found = await findTypes(sql, appId, named);
    if (found !== null && !(found instanceof Rejection)) return found;
  }
  throw new WrongInput(`the app has no event type "${type}"; "tidemark type list" shows those that it has`);
}

/** Progress of an export: by the counts, or by time if the number of matching events is unknown. */
async function progressOf(
  events: EventReader,
  { appId, typeIds, from, until }: ScanRequest,
  filter: RowFilter | null,
): Promise<(written: { events: number; bytes: number }, at: number) => ProgressState> {
  if (filter === null) {
    const list = { appId, typeIds, from, until, order: 'asc', after: null, limit: 1, maxBytes: 1 } as const;
    const { total } = await events.list({ ...list, withTotal: true });
    return (written) => ({
      fraction: total === null || total === 0 ? null : Math.min(1, written.events / total),
      text: `${grouped(written.events)} of ${grouped(total ?? 0)} events, ${megabytes(written.bytes)}`,
    });
  }
  const span = await events.appSpan(appId);
  const first = from ?? span.firstEventAt?.getTime() ?? 0;
  const end = until ?? span.lastEventAt?.getTime() ?? first;
  return (written, at) => ({
    fraction: end <= first ? null : Math.min(1, Math.max(0, (at - first) / (end - first))),
    text: `${grouped(written.events)} events found up to ${new Date(at).toISOString()}, ${megabytes(written.bytes)}`,
  });
}
