/** `tidemark journal`: events of the journal that could not be stored. */
import { createPublicId } from '../base/token-text.ts';
import { type Config, readConfig } from '../config.ts';
import { OperatorError, WrongInput } from '../errors.ts';
import {
  lineOf,
  type QuarantineLine,
  readQuarantine,
  rewriteQuarantine,
} from '../ingest/journal/quarantine.ts';
import { readInstallation } from '../storage/database/installation-id.ts';
import { type EventSource, type JournaledEvent, timestamp } from '../storage/write/accepted-event.ts';
import type { ReplayOutcome } from '../storage/write/replay-writer.ts';
import { ReplayWriter } from '../storage/write/replay-writer.ts';
import { formatFields, formatTable } from './output.ts';
import type { Command } from './session.ts';
import { withInstallation } from './transfer/installation.ts';
import { grouped } from './transfer/progress.ts';

const HELP = `
An event goes to quarantine when the journal is replayed and the database has no app with its id, refuses its
data, or can make no partition for its day. The file is quarantine.ndjson in JOURNAL_DIR, one JSON object a line.`;

const IMPORT_HELP = `
Events that are stored leave quarantine; the others stay, with the reason of this try. An import may be repeated.
Exit code 0: quarantine is empty now; 2: some events stay; 1: it could not finish.`;

const KEPT_EXIT_CODE = 2;
/** As many as a replay stores in one transaction. */
const LINES_AT_ONCE = 1_000;

/** A row of `list`: the events of one app with one reason. */
interface Group {
  readonly appId: string;
  readonly reason: string;
  events: number;
  types: number;
  oldest: string;
  newest: string;
}

export function addJournalCommands(program: Command): void {
  const journal = program
    .command('journal')
    .description('events of the journal that could not be stored (quarantine)')
    .addHelpText('after', HELP);
  journal
    .command('list')
    .description('count the events in quarantine by app and reason')
    .answer(() => list(journalFolder(readConfig(process.env))));
  journal
    .command('import')
    .description('try again to store the events in quarantine')
    .option(
      '--app <old=new>',
      'store the events of one app in another; repeat for more',
      collectMapping,
      new Map(),
    )
    .addHelpText('after', IMPORT_HELP)
    .answer(async ({ app }: { app: ReadonlyMap<string, string> }) => {
      const counts = await importAll(app);
      const fields = { Stored: grouped(counts.stored), 'Still in quarantine': grouped(counts.kept) };
      if (counts.kept > 0) process.exitCode = KEPT_EXIT_CODE;
      return { json: counts, text: formatFields(fields) };
    });
  journal
    .command('drop')
    .description('delete events in quarantine for good')
    .option('--app <id>', 'only those of this app, app_…')
    .option('--yes', 'confirm it')
    .answer(async (options: { app?: string; yes?: true }) => {
      const counts = await drop(journalFolder(readConfig(process.env)), options);
      const fields = { Dropped: grouped(counts.dropped), 'Still in quarantine': grouped(counts.kept) };
      return { json: counts, text: formatFields(fields) };
    });
}

function journalFolder({ JOURNAL_DIR: folder }: Config): string {
  if (folder === '') throw new OperatorError('JOURNAL_DIR is not set: there is no journal');
  return folder;
}

/** @throws WrongInput where it is not OLD=NEW */
function collectMapping(text: string, mapping: Map<string, string>): Map<string, string> {
  const [, from = '', to = ''] = /^([^=]+)=([^=]+)$/.exec(text) ?? [];
  if (from === '') throw new WrongInput(`--app takes two app ids, as in app_OLD=app_NEW, not "${text}"`);
  return mapping.set(from, to);
}

async function list(folder: string): Promise<{ json: object; text: string }> {
  const groups = new Map<string, Group & { readonly names: Set<string> }>();
  let unreadable = 0;
  for await (const { quarantined } of readQuarantine(folder)) {
    if (quarantined === null) {
      unreadable += 1;
      continue;
    }
    const { event, why } = quarantined;
    const { appId, typeName } = event.source;
    const time = timestamp(event.createdAt);
    const key = `${why.reason} ${appId}`;
    const group = groups.get(key) ?? {
      ...{ appId, reason: why.reason, events: 0, types: 0, oldest: time, newest: time },
      names: new Set(),
    };
    groups.set(key, group);
    group.events += 1;
    group.types = group.names.add(typeName).size;
    if (time < group.oldest) group.oldest = time;
    if (time > group.newest) group.newest = time;
  }
  const found = [...groups.values()].map(({ names: _, ...group }) => group);
  const head = ['App', 'Reason', 'Events', 'Types', 'Oldest', 'Newest'];
  const rows = found.map((group) => [
    group.appId,
    group.reason,
    grouped(group.events),
    grouped(group.types),
    group.oldest,
    group.newest,
  ]);
  const table = formatTable(head, rows, 'There are no events in quarantine.');
  const text = unreadable === 0 ? table : `${table}\n${grouped(unreadable)} lines cannot be read.`;
  return { json: { groups: found, unreadable }, text };
}

async function importAll(mapping: ReadonlyMap<string, string>): Promise<{ stored: number; kept: number }> {
  const counts = { stored: 0, kept: 0 };
  await withInstallation(async ({ config, database, storage, sql }) => {
    const folder = journalFolder(config);
    const { identity } = await readInstallation(sql);
    const log = { warn: () => undefined, error: () => undefined };
    const writer = new ReplayWriter({
      nodes: storage.nodesOf(database),
      engine: storage.writes,
      identity,
      log,
      now: () => performance.now(),
    });
    const moved = movedTo(mapping);
    try {
      await rewriteQuarantine(
        folder,
        async (lines) => {
          const kept = await importLines(writer, lines, moved);
          counts.kept += kept.length;
          counts.stored += lines.length - kept.length;
          return kept;
        },
        LINES_AT_ONCE,
      );
    } finally {
      await writer.close();
    }
    await storage.settleCounts(sql, Date.now());
  });
  return counts;
}

/** @returns the lines of events that could not be stored, and lines that are none */
async function importLines(
  writer: ReplayWriter,
  lines: readonly QuarantineLine[],
  moved: (source: EventSource) => EventSource,
): Promise<readonly string[]> {
  const kept: string[] = [];
  const events: JournaledEvent[] = [];
  for (const { text, quarantined } of lines) {
    if (quarantined === null) kept.push(text);
    else events.push(quarantined.event);
  }
  const outcomes = await writer.write(events.map((event) => ({ ...event, source: moved(event.source) })));
  for (const [index, event] of events.entries()) {
    const why = outcomes[index] ?? 'fault';
    if (why === 'stored') continue;
    if (typeof why === 'string') throw stopped(why);
    kept.push(lineOf({ event, why }).trimEnd());
  }
  return kept;
}

const STOPPED_BY = {
  unreachable: 'the database takes no writes',
  blocked: 'another session holds a lock on a day of these events',
  fault: 'the database failed',
} as const;

function stopped(outcome: ReplayOutcome): OperatorError {
  const reason = STOPPED_BY[outcome === 'unreachable' || outcome === 'blocked' ? outcome : 'fault'];
  return new OperatorError(
    `${reason}: quarantine is as it was; run the same import again, which skips what is stored already`,
  );
}

/** Events of an app that is stored as another one have types of that one: by name, made where it has none. */
function movedTo(mapping: ReadonlyMap<string, string>): (source: EventSource) => EventSource {
  const sources = new Map<string, EventSource>();
  return (source) => {
    const appId = mapping.get(source.appId);
    if (appId === undefined) return source;
    const key = JSON.stringify([appId, source.typeName]);
    const known = sources.get(key) ?? { appId, typeId: createPublicId('typ'), typeName: source.typeName };
    sources.set(key, known);
    return known;
  };
}

async function drop(
  folder: string,
  { app, yes }: { readonly app?: string; readonly yes?: true },
): Promise<{ dropped: number; kept: number }> {
  const isDropped = ({ quarantined }: QuarantineLine): boolean =>
    app === undefined || quarantined?.event.source.appId === app;
  const counts = { dropped: 0, kept: 0 };
  if (yes !== true) {
    for await (const line of readQuarantine(folder)) if (isDropped(line)) counts.dropped += 1;
    throw new OperatorError(
      `this would delete ${grouped(counts.dropped)} events for good: run it again with --yes to confirm`,
    );
  }
  await rewriteQuarantine(
    folder,
    async (lines) => {
      const kept = lines.filter((line) => !isDropped(line)).map(({ text }) => text);
      counts.kept += kept.length;
      counts.dropped += lines.length - kept.length;
      return kept;
    },
    LINES_AT_ONCE,
  );
  return counts;
}
