/** `tidemark archive`: days of events as Parquet files. */
import type { ArchivingOptions, DayOutcome } from '../archive/archiving.ts';
import type { ArchivedDay, DayFilter } from '../archive/days.ts';
import { DAY_MS, HOUR_MS } from '../base/time-units.ts';
import { appNotFound, OperatorError, WrongInput } from '../errors.ts';
import type { Sql } from '../storage/database/connect.ts';
import { installationId, readInstallation } from '../storage/database/installation-id.ts';
import { judgedNow } from '../storage/maintenance/time-judge.ts';
import { ReplayWriter } from '../storage/write/replay-writer.ts';
import { parseDay } from './duration.ts';
import { APP_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import type { Answer, Command, Session } from './session.ts';
import { onStopSignal } from './stop-request.ts';
import { grouped } from './transfer/progress.ts';

const HELP = `
ARCHIVE_URL says where: file:///folder or s3://bucket/prefix. A running service archives by itself, once an hour, the days
that ended ARCHIVE_AFTER_DAYS ago. Every object is read back, and a day is archived when it has as many events as are
counted. Days are those of UTC. A day that changes later is archived again.

The rows of an archived day leave the database, and the day is read from the archive, unless ARCHIVE_KEEP_ROWS is true.`;

const RESTORE_HELP = `
Name a day, or several by --from and --to: after a restore of a backup all that the archive has. A day whose rows have left the database is brought back, and stays there until it is archived by "archive run" with its
date as --from and --to. Events that are stored already stay as they are, so a restore may be repeated. Days before the retention boundary
cannot be restored: their events could not be read.`;

/** Something in the archive is not what it should be. */
const PROBLEM_EXIT_CODE = 2;
/** Where the rows of a day are. */
const IN_ARCHIVE = 'archive';
const IN_DATABASE = 'database';
const NOWHERE = 'lost';
/** As many as a replay stores in one transaction. */
const EVENTS_AT_ONCE = 1_000;

interface Options {
  readonly app?: string;
  readonly from?: string;
  readonly to?: string;
  readonly again?: true;
}

const FROM_OPTION = ['--from <day>', 'the first day, such as 2026-01-31', parseDay] as const;
const TO_OPTION = ['--to <day>', 'the last day, inclusive', parseDay] as const;

export function addArchiveCommands(program: Command): void {
  const archive = program
    .command('archive')
    .description('days of events as Parquet files in a folder or a bucket')
    .addHelpText('after', HELP);
  archive
    .command('run')
    .description('archive the days that are due now')
    .option(...APP_OPTION)
    .option(...FROM_OPTION)
    .option(...TO_OPTION)
    .option('--again', 'also days whose files are lost: those whose rows are not in the database are named')
    .run((session, options: Options) => withArchive(session, options, run));
  archive
    .command('list')
    .description('list the archived days')
    .option(...APP_OPTION)
    .option(...FROM_OPTION)
    .option(...TO_OPTION)
    .list(async ({ sql }, options: Options) => {
      await checkApp(sql, options);
      const { listArchivedDays, LOST } = await import('../archive/days.ts');
      const { readDaysAway } = await import('../storage/maintenance/days-away.ts');
      const archived = (await listArchivedDays(sql, filterOf(options))).filter(isWhole);
      const away = new Set<string>();
      for (const appId of new Set(archived.map((one) => one.appId)))
        for (const { day } of await readDaysAway(sql, appId)) away.add(`${appId} ${day}`);
      const placeOf = ({ appId, day, counted }: ArchivedDay): string => {
        if (!away.has(`${appId} ${day}`)) return IN_DATABASE;
        return counted === LOST ? NOWHERE : IN_ARCHIVE;
      };
      const days = archived.map((one) => ({ ...shown(one), rows: placeOf(one) }));
      const head = ['App', 'Day', 'Events', 'Bytes', 'Files', 'Rows', 'Archived', 'Verified'];
      const rows = days.map((one) => [
        ...[one.appId, one.day, grouped(one.events), grouped(one.bytes), String(one.files.length)],
        ...[one.rows, one.archivedAt, one.verifiedAt],
      ]);
      return { json: { days }, text: formatTable(head, rows, 'No day is archived.') };
    });
  archive
    .command('verify')
    .description('read archived days, and compare them with what was written')
    .option(...APP_OPTION)
    .option(...FROM_OPTION)
    .option(...TO_OPTION)
    .run((session, options: Options) => withArchive(session, options, verify));
  archive
    .command('restore')
    .description('store the events of archived days that are not there any more')
    .argument('[day]', 'such as 2026-01-31', parseDay)
    .option(...APP_OPTION)
    .option(...FROM_OPTION)
    .option(...TO_OPTION)
    .addHelpText('after', RESTORE_HELP)
    .run((session, day: string | undefined, options: Options) =>
      withArchive(session, options, (opened) => restore(opened, restoredDays(day, options), options)),
    );
}

type Opened = Session & ArchivingOptions;

/** Opens the database and the archive, and checks the app. The libraries of the archive are loaded here: they are large. */
async function withArchive(
  session: Session,
  options: Options,
  work: (opened: Opened, options: Options) => Promise<Answer>,
): Promise<Answer> {
  const { config, sql } = session;
  if (config.ARCHIVE_URL === '')
    throw new OperatorError(
      'ARCHIVE_URL is not set: there is no archive. Set it to file:///folder or s3://bucket/prefix.',
    );
  const { openArchiveStore } = await import('../archive/store.ts');
  const store = openArchiveStore(config);
  await checkApp(sql, options);
  return await work({ ...session, store, installationId: await installationId(sql) }, options);
}

/** @throws Refused appNotFound */
async function checkApp(sql: Sql, { app }: Options): Promise<void> {
  if (app !== undefined && (await sql`SELECT FROM apps WHERE public_id = ${app}`).length === 0)
    throw appNotFound(app);
}

async function run(opened: Opened, options: Options): Promise<Answer> {
  const { archiveDueDays } = await import('../archive/archiving.ts');
  const { probeArchive } = await import('../archive/store.ts');
  await probeArchive(opened.store);
  const days: DayOutcome[] = [];
  const until =
    Math.floor((await judgedNow(opened.sql)) / DAY_MS - opened.config.ARCHIVE_AFTER_DAYS) * DAY_MS;
  let isStopped = false;
  onStopSignal(() => {
    isStopped = true;
  });
  const wasFree = await archiveDueDays({
    ...opened,
    ...{ filter: filterOf(options), until, keepRows: opened.config.ARCHIVE_KEEP_ROWS },
    again: options.again === true,
    reachMs: opened.config.CONSUMER_REACH_HOURS * HOUR_MS,
    ...{ onDay: (day) => days.push(day), isStopped: () => isStopped },
  });
  if (!wasFree) throw new OperatorError('another process archives now: try again when it has ended');
  return report(days, 'No day is due.');
}

async function verify(opened: Opened, options: Options): Promise<Answer> {
  const { verifyArchive } = await import('../archive/archiving.ts');
  const days: DayOutcome[] = [];
  await verifyArchive({ ...opened, filter: filterOf(options), onDay: (day) => days.push(day) });
  return report(days, 'No day is archived.');
}

/** What became of each day; a problem is the exit code. */
function report(days: readonly DayOutcome[], empty: string): Answer {
  const problems = days.filter(({ problem }) => problem !== null);
  const head = ['App', 'Day', 'Events', 'Bytes', 'Rows', 'Problem'];
  const rows = days.map(({ appId, day, events, bytes, isAway, problem }) => [
    ...[appId, day, grouped(events), grouped(bytes), isAway ? IN_ARCHIVE : IN_DATABASE, problem ?? 'none'],
  ]);
  if (problems.length > 0) process.exitCode = PROBLEM_EXIT_CODE;
  return { json: { days, problems: problems.length }, text: formatTable(head, rows, empty) };
}

/** The days that a restore is asked for. @throws WrongInput where they are named in no way, or in two */
function restoredDays(day: string | undefined, { from, to }: Options): { from: string; to: string } {
  const [first, last] = [day ?? from, day ?? to];
  if (first === undefined || last === undefined)
    throw new WrongInput('name a day such as 2026-01-31, or give both --from and --to');
  if (day !== undefined && (from !== undefined || to !== undefined))
    throw new WrongInput('name a day, or give --from and --to, but not both');
  if (first > last) throw new WrongInput(`--from ${first} is after --to ${last}`);
  return { from: first, to: last };
}

async function restore(
  opened: Opened,
  { from, to }: { readonly from: string; readonly to: string },
  options: Options,
): Promise<Answer> {
  const { sql, storage, database } = opened;
  const { countOf } = await import('../archive/archiving.ts');
  const { listArchivedDays } = await import('../archive/days.ts');
  const { readBoundary } = await import('../storage/retention.ts');
  const span = from === to ? from : `${from} to ${to}`;
  const found = (await listArchivedDays(sql, { app: options.app, from, to })).filter(isWhole);
  if (found.length === 0)
    throw new WrongInput(`the archive has nothing of ${span}: see "tidemark archive list"`);
  const boundary = await readBoundary(sql);
  // What is past in a range is left out; a day that is named can only be a mistake.
  const days = found.filter(({ day }) => Date.parse(`${day}T00:00:00Z`) >= boundary);
  if (days.length === 0)
    throw new OperatorError(
      `${span} is before the retention boundary: its events could not be read. Raise RETENTION_DAYS first.`,
    );
  const missing = await bringBack(opened, days);
  const brought = days.filter((one) => !missing.includes(one));
  const counts = { days: days.length, events: 0, refused: 0 };
  for (const { appId, day } of brought) counts.events += await countOf(opened, { id: appId }, day);
  const { identity } = await readInstallation(sql);
  const log = { warn: () => undefined, error: () => undefined };
  const writer = new ReplayWriter({
    ...{ nodes: storage.nodesOf(database), engine: storage.writes, identity, log },
    now: () => performance.now(),
  });
  try {
    for (const day of missing) {
      const { stored, refused } = await storeAgain(opened, writer, day);
      counts.events += stored;
      counts.refused += refused;
    }
  } finally {
    await writer.close();
  }
  await storage.settleCounts(sql, Date.now());
  const fields = {
    Days: span,
    'Days of apps': grouped(counts.days),
    'Events in place': grouped(counts.events),
  };
  const refused = counts.refused > 0 ? { 'Events refused': grouped(counts.refused) } : {};
  const asked = from === to ? { day: from } : { from, to };
  if (counts.refused > 0) process.exitCode = PROBLEM_EXIT_CODE;
  return { json: { ...asked, ...counts }, text: formatFields({ ...fields, ...refused }) };
}

/** Stores the events of a day that can be read and are not there. @throws OperatorError where the database takes none, ArchiveError */
async function storeAgain(
  opened: Opened,
  writer: ReplayWriter,
  day: ArchivedDay & { publicId: string },
): Promise<{ readonly stored: number; readonly refused: number }> {
  const { readReadable } = await import('../archive/archiving.ts');
  const { publicId: appId } = day;
  let [stored, refused] = [0, 0];
  for await (const events of readReadable(opened, day)) {
    for (let start = 0; start < events.length; start += EVENTS_AT_ONCE) {
      const outcomes = await writer.write(
        events.slice(start, start + EVENTS_AT_ONCE).map(({ id, at, payload, typeId, typeName }) => ({
          ...{ id, createdAt: at, payload, source: { appId, typeId, typeName } },
        })),
      );
      for (const why of outcomes) {
        if (why === 'stored') stored += 1;
        else if (typeof why === 'object') refused += 1;
        else
          throw new OperatorError(
            'the database takes no writes now: run the same restore again, which may be repeated',
          );
      }
    }
  }
  return { stored, refused };
}

/** Brings days back whose rows have left. @returns the others @throws OperatorError where one cannot be brought back */
async function bringBack<Day extends ArchivedDay & { publicId: string }>(
  opened: Opened,
  days: readonly Day[],
): Promise<readonly Day[]> {
  const { bringDayBack } = await import('../archive/archiving.ts');
  const { alone, RESTORED } = await import('../archive/days.ts');
  const { readDaysAway } = await import('../storage/maintenance/days-away.ts');
  const others: Day[] = [];
  const done = await alone(opened.sql, async () => {
    for (const day of days) {
      if ((await readDaysAway(opened.sql, day.appId)).every((one) => one.day !== day.day)) {
        others.push(day);
        continue;
      }
      const app = { id: day.appId, publicId: day.publicId };
      const problem = await bringDayBack(opened, app, day.day, RESTORED);
      if (problem !== null) throw new OperatorError(`${day.day} of ${day.publicId} stays away: ${problem}`);
    }
    return true;
  });
  if (done === null) throw new OperatorError('another process archives now: try again when it has ended');
  return others;
}

/** A day that was archived, of an app that is there. */
function isWhole(day: ArchivedDay): day is ArchivedDay & { publicId: string; archivedAt: Date } {
  return day.archivedAt !== null && day.publicId !== null;
}

function shown({ publicId, day, events, parts, archivedAt, verifiedAt }: ArchivedDay & { publicId: string }) {
  const files = parts.map(({ key, events: ofFile, bytes }) => ({ key, events: ofFile, bytes }));
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
  return { appId: publicId, day, events, bytes, files, archivedAt, verifiedAt };
}

function filterOf({ app, from, to }: Options): DayFilter {
  return { app, from, to };
}
