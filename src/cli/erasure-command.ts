/** `erase` and `erasure`: events that are removed or anonymized on request, and the receipts of it. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ErasureMatch } from '../api-types/answers.ts';
import {
  conditionHmac,
  type ErasureAction,
  type ErasureConditions,
  MAX_CONDITIONS,
  parseConditions,
} from '../erasure/conditions.ts';
import {
  continueErasures,
  countMatching,
  coversUntil,
  type ErasureParts,
  type ErasureProgress,
  runErasure,
  showErasures,
} from '../erasure/erase.ts';
import {
  askErasure,
  checkReason,
  listErasures,
  type NotDone,
  requireApp,
  requireErasure,
  type StoredErasure,
} from '../erasure/erasures.ts';
import { OperatorError } from '../errors.ts';
import { collect } from './duration.ts';
import { APP_OPTION } from './options.ts';
import { commandLog, formatFields, formatTable } from './output.ts';
import type { Answer, Command, Session } from './session.ts';
import { grouped, Progress } from './transfer/progress.ts';

const HELP = `
It takes the matching events that are committed when it is asked for, whatever their type; the answer comes when none of them
is read any more, in any way. Conditions are those of the API: user.id:42  status>=500  country:DE,FR; several must all hold.
A receipt is kept: "tidemark erasure show". What is left to do, such as VACUUM and old backups, is in docs/erasure.md.
Killed at any point, it is continued by the service, or by "tidemark erasure resume".`;

interface EraseOptions {
  readonly app: string;
  readonly filter: readonly string[];
  readonly reason?: string;
  readonly anonymize?: true;
  readonly dryRun?: true;
  readonly yesMost?: true;
}

export function addErasureCommands(program: Command): void {
  program
    .command('erase')
    .description('erase the events of an app that meet conditions, with a receipt')
    .requiredOption(...APP_OPTION)
    .requiredOption(
      '--filter <condition>',
      `only events whose payload meets this condition; repeat for more, up to ${MAX_CONDITIONS}`,
      collect,
    )
    .option('--reason <text>', 'why, for the receipt; up to 500 characters')
    .option(
      '--anonymize',
      'keep the events, and replace the values at the paths of the conditions by keyed pseudonyms',
    )
    .option('--dry-run', 'say how many events it would take, and change nothing')
    .option('--yes-most', 'also where it takes more than half of the events of the app')
    .addHelpText('after', HELP)
    .run(erase);
  const erasure = program.command('erasure').description('receipts of erased events');
  erasure
    .command('show')
    .description('show what an erasure has done, and what it has not')
    .argument('<id>', 'the erasure, ers_…')
    .option(
      '--filter <condition>',
      'also say whether it was asked for with these conditions; repeat for more',
      collect,
    )
    .run(async (session, id: string, { filter }: { filter?: readonly string[] }) => {
      const found = await requireErasure(session.sql, id);
      if (filter === undefined) return answerOf(session, found);
      const hmac = conditionHmac(await session.secret(), found.appId, filter).toString('hex');
      return answerOf(session, found, hmac === found.conditionHmac);
    });
  erasure
    .command('list')
    .description('list the erasures of an app')
    .requiredOption(...APP_OPTION)
    .list(async (session, options: { app: string }) => {
      const app = await requireApp(session.sql, options.app);
      const found = await listErasures(session.sql, app.id);
      const erasures = await showErasures(session, app.id, found);
      const rows = erasures.map(({ erasureId, state, action, by, askedAt, erased }) => [
        ...[erasureId, state, action, by, askedAt, grouped(erased)],
      ]);
      const head = ['Erasure', 'State', 'Action', 'By', 'Asked', 'Events'];
      return { json: { erasures }, text: formatTable(head, rows, 'Nothing was erased in the app.') };
    });
  erasure
    .command('resume')
    .description('continue erasures that were interrupted; a service does so by itself')
    .argument('[id]', 'the erasure, ers_…; by default all')
    .run(async (session, id: string | undefined) => {
      const parts = await erasureParts(session);
      if (id !== undefined) return await run(parts, id);
      const left = await continueErasures(parts);
      return { json: { left }, text: left.length === 0 ? 'All erasures are finished.' : left.join('\n') };
    });
}

async function erasureParts(session: Session): Promise<ErasureParts> {
  const { sql, storage, config } = session;
  const log = commandLog(config.LOG_LEVEL);
  return { sql, storage, secret: await session.secret(), config, now: () => Date.now(), log };
}

async function erase(session: Session, options: EraseOptions): Promise<Answer> {
  const action: ErasureAction = options.anonymize === true ? 'anonymize' : 'delete';
  const conditions = parseConditions(options.filter, action);
  const reason = options.reason ?? null;
  checkReason(reason);
  const app = await requireApp(session.sql, options.app);
  const askedAt = Date.now();
  const until = await coversUntil(session, app.id, askedAt);
  const match = await counted(session, app.id, conditions, until);
  const { matching, total, days } = match;
  const share = `${grouped(matching)} of ${grouped(total)} events`;
  if (options.dryRun === true) {
    const fields = {
      Matching: share,
      ...Object.fromEntries(days.map(({ day, events }) => [day, grouped(events)])),
    };
    return { json: { appId: app.appId, action, dryRun: true, ...match }, text: formatFields(fields) };
  }
  if (matching * 2 > total && options.yesMost !== true)
    throw new OperatorError(
      `${share} match, more than half of the app: run it again with --yes-most if that is right, or look first with --dry-run`,
    );
  process.stderr.write(`tidemark: ${share} match: ${action === 'delete' ? 'erasing' : 'anonymizing'} them\n`);
  const parts = await erasureParts(session);
  const asked = await askErasure(session.sql, parts.secret, {
    ...{ app, action, conditions, reason, matching, askedAt },
    coversUntil: until,
  });
  return await run(parts, asked.erasureId);
}

async function counted(
  session: Session,
  app: number,
  conditions: ErasureConditions,
  until: number,
): Promise<ErasureMatch> {
  const { progress, onProgress } = await progressOf(session, app, until, 'match');
  try {
    const match = await countMatching(session, app, conditions, { onProgress });
    if (match === null) throw new Error('Counting was stopped, and nobody has asked for it.');
    return match;
  } finally {
    progress.end();
  }
}

async function progressOf(
  { sql, storage }: Pick<Session, 'sql' | 'storage'>,
  app: number,
  until: number,
  what: string,
): Promise<{ readonly progress: Progress; readonly onProgress: (progress: ErasureProgress) => void }> {
  const first = (await storage.reader(sql).appSpan(app)).firstEventAt?.getTime() ?? until;
  const progress = new Progress();
  const onProgress = ({ at, erased }: ErasureProgress): void =>
    progress.update(() => ({
      fraction: until <= first ? null : Math.min(1, Math.max(0, (at - first) / (until - first))),
      text: `${grouped(erased)} events ${what} up to ${new Date(at).toISOString()}`,
    }));
  return { progress, onProgress };
}

const RETRY_MS = 200;

/** Does an erasure, or waits for the process that does it. */
async function run(parts: ErasureParts, erasureId: string): Promise<Answer> {
  const { app, coversUntil: until } = await requireErasure(parts.sql, erasureId);
  const { progress, onProgress } = await progressOf(parts, app, until, 'erased');
  try {
    while ((await runErasure(parts, erasureId, { onProgress })) !== 'finished') await sleep(RETRY_MS);
  } finally {
    progress.end();
  }
  return await answerOf(parts, await requireErasure(parts.sql, erasureId));
}

/** @param isSame whether it was asked for with the conditions that were given */
async function answerOf(
  parts: Pick<ErasureParts, 'sql' | 'storage'>,
  erasure: StoredErasure,
  isSame?: boolean,
): Promise<Answer> {
  const [shown] = await showErasures(parts, erasure.app, [erasure]);
  if (shown === undefined) throw new Error('An erasure was not shown.');
  const {
    erasureId,
    appId,
    state,
    action,
    by,
    reason,
    askedAt,
    finishedAt,
    conditionHmac: hmac,
    erased,
    receipt,
  } = shown;
  const fields = {
    ...{ Erasure: erasureId, App: appId, State: state, Action: action, By: by, Reason: reason },
    ...{ Asked: askedAt, Finished: finishedAt, 'HMAC of the conditions': hmac },
    ...(isSame !== undefined && { 'Those conditions': isSame ? 'yes' : 'no' }),
    Events: grouped(erased),
    ...(receipt !== null && {
      'Committed before': receipt.committedBefore,
      'SHA-256 of their ids': receipt.idsSha256,
      'Answers forgotten': grouped(receipt.answers),
      'Of the quarantine': grouped(receipt.quarantined),
      'Of the archive': grouped(receipt.archived),
      ...(receipt.appliedAgain.length > 0 && { 'Applied again': receipt.appliedAgain }),
    }),
  };
  const days = (receipt?.days ?? []).map(({ day, events }) => [day, grouped(events)]);
  const left = (receipt?.notDone ?? []).map((one: NotDone) => [one.kind, one.name, one.details]);
  const tables = [
    days.length === 0 ? [] : [formatTable(['Day', 'Events'], days, '')],
    left.length === 0 ? [] : [formatTable(['Not done', 'Name', 'Details'], left, '')],
  ].flat();
  const json = isSame === undefined ? shown : { ...shown, sameConditions: isSame };
  return { json, text: [formatFields(fields), ...tables].join('\n\n') };
}
