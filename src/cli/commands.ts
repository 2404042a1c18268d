/** The commands for apps and event types. */
import { requireEmail } from '../accounts/people/email.ts';
import { hasUsers, requireVerifiedUser } from '../accounts/people/users.ts';
import { createApp, listApps, type OwnedApp, suspendApp } from '../apps/apps.ts';
import { createEventType, listEventTypes } from '../apps/event-types.ts';
import { rotateLoggingToken } from '../apps/logging-tokens.ts';
import { type AppOverview, listAppOverviews } from '../apps/overview.ts';
import { listRemovedApps, restoreApp } from '../apps/removed-apps.ts';
import { readWordSearch, setWordSearch } from '../apps/word-search.ts';
import { WrongInput } from '../errors.ts';
import type { Sql } from '../storage/database/connect.ts';
import { addGrantCommand, UNVERIFIED_OPTION } from './account-commands.ts';
import { mailNotice } from './command-notice.ts';
import { parseHours } from './duration.ts';
import { addLimitCommand } from './limit-command.ts';
import { APP_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import { addSchemaCommands } from './schema-commands.ts';
import type { Command } from './session.ts';

export function addAppCommands(program: Command): void {
  const app = program.command('app').description('apps and their logging tokens');
  app
    .command('create')
    .description('create an app with its logging token')
    .requiredOption('--name <name>', '1 to 200 characters')
    .option(
      '--owner <email>',
      'the account that owns it; what has no owner belongs to the first account, and until then the dashboard does not show it',
    )
    .option(...UNVERIFIED_OPTION)
    .run(async ({ sql, secret }, options: { name: string; owner?: string; allowUnverified?: true }) => {
      const { owner: email, allowUnverified = false } = options;
      const owner =
        email === undefined ? null : await requireVerifiedUser(sql, requireEmail(email), allowUnverified);
      const made = await createApp(sql, await secret(), { name: options.name, ownerId: owner?.id ?? null });
      const { appId, name, loggingToken } = made;
      const fields = { App: appId, Name: name, 'Logging token': loggingToken };
      const owned = owner?.email ?? (await whoWillOwn(sql, appId));
      return { json: made, text: formatFields({ ...fields, Owner: owned }) };
    });
  app
    .command('list')
    .description('list all apps')
    .option('--all', 'with the events, bytes, limits and refusals of each')
    .list(async ({ sql, storage, config }, options: { all?: true }) => {
      if (options.all === true) {
        const apps = await listAppOverviews(sql, storage.reader(sql), config, Date.now());
        return { json: { apps }, text: overviewTable(apps) };
      }
      const apps = await listApps(sql);
      const rows = apps.map((app) => [...namedColumns(app), app.createdAt]);
      const head = ['App', 'Name', 'Owners', 'Created'];
      return { json: { apps }, text: formatTable(head, rows, 'There are no apps.') };
    });
  addRotateCommand(app);
  addRestoreCommand(app);
  addLimitCommand(app);
  addGrantCommand(app);
  addSearchCommand(app);
  for (const isSuspended of [true, false]) addSuspendCommand(app, isSuspended);
}

function addRotateCommand(app: Command): void {
  app
    .command('rotate-token')
    .description('create a new logging token; the earlier ones end after a grace period')
    .requiredOption(...APP_OPTION)
    .option('--grace <hours>', 'how long the earlier tokens stay valid; 0 ends them at once', parseHours, 24)
    .run(async (session, options: { app: string; grace: number }) => {
      const rotation = { appId: options.app, graceHours: options.grace };
      const rotated = await rotateLoggingToken(session.sql, await session.secret(), rotation);
      const text = formatFields({
        App: rotated.appId,
        'Logging token': rotated.loggingToken,
        'Earlier tokens end': rotated.previousValidUntil,
      });
      const { appId } = rotated;
      return {
        json: rotated,
        text,
        afterwards: () => mailNotice(session, 'logging-token.rotate', { appId }),
      };
    });
}

function addRestoreCommand(app: Command): void {
  app
    .command('restore')
    .description('restore an app that was deleted in the last seven days; without an id, list those')
    .argument('[id]', 'the app, app_…')
    .run(async (session, appId: string | undefined) => {
      if (appId === undefined) {
        const apps = await listRemovedApps(session.sql, null);
        const rows = apps.map((one) => [one.appId, one.name, one.removedAt, one.erasedAt]);
        const head = ['App', 'Name', 'Deleted', 'Gone for good'];
        return { json: { apps }, text: formatTable(head, rows, 'There are no deleted apps.') };
      }
      const restored = await restoreApp(session.sql, { appId });
      return { json: restored, text: formatFields({ App: restored.appId, Name: restored.name }) };
    });
}

function addSearchCommand(app: Command): void {
  app
    .command('search')
    .description('show whether searches of an app go by lists of words, or turn the lists on or off')
    .requiredOption(...APP_OPTION)
    .option('--on', 'list the words of payloads in the background')
    .option('--off', 'remove the lists: searches read payloads')
    .run(
      async (
        { sql },
        { app: appId, on = false, off = false }: { app: string; on?: boolean; off?: boolean },
      ) => {
        if (on && off) throw new WrongInput('--on and --off cannot be given together');
        const known =
          on || off ? await setWordSearch(sql, { appId, isOn: on }) : await readWordSearch(sql, appId);
        const { isOn, listedEvents, isComplete } = known;
        const events = listedEvents === null ? 'this engine keeps no lists' : String(listedEvents);
        return {
          json: known,
          text: formatFields({
            App: appId,
            'Lists of words': isOn ? 'on' : 'off',
            'Events listed': events,
            'All but today listed': isComplete ? 'yes' : 'no',
          }),
        };
      },
    );
}

/** `app suspend` and `app resume`. */
function addSuspendCommand(app: Command, isSuspended: boolean): void {
  app
    .command(isSuspended ? 'suspend' : 'resume')
    .description(
      isSuspended
        ? 'refuse all writes to an app and all reads of it, in every process within a second; its events are kept'
        : 'let an app be written to and read again that was suspended',
    )
    .requiredOption(...APP_OPTION)
    .run(async ({ sql }, options: { app: string }) => {
      const changed = await suspendApp(sql, { appId: options.app, isSuspended });
      const { appId, name, suspendedAt } = changed;
      return {
        json: changed,
        text: formatFields({ App: appId, Name: name, 'Suspended since': suspendedAt }),
      };
    });
}

function namedColumns({ appId, name, owners }: OwnedApp): [string, string, string[] | null] {
  return [appId, name, owners.length === 0 ? null : owners];
}

function overviewTable(apps: readonly AppOverview[]): string {
  const head = [
    ...['App', 'Name', 'Owners', 'Suspended since', 'Events', 'Last event', 'Bytes', 'Bytes today'],
    ...['Requests per minute', 'Bytes per day', 'Types', 'Refused in the last hour'],
  ];
  const number = (count: number | null): string | null => count?.toString() ?? null;
  const rows = apps.map((app) => {
    const { createPerMinute, bytesPerDay, types } = app.limits;
    const refused = [...Object.entries(app.refused), ...Object.entries(app.refusedEvents)];
    return [
      ...[...namedColumns(app), app.suspendedAt, number(app.events), app.lastEventAt],
      ...[app.bytes, app.bytesToday, createPerMinute, bytesPerDay, types].map(number),
      refused.length === 0 ? null : refused.map(([code, count]) => `${code}:${count}`),
    ];
  });
  return formatTable(head, rows, 'There are no apps.');
}

/** What an app without an owner is told about: who sees it in the dashboard, and how somebody does. */
async function whoWillOwn(sql: Sql, appId: string): Promise<string> {
  if (!(await hasUsers(sql))) return 'nobody yet: the first account of the dashboard will own it';
  return `nobody, so no account sees it: tidemark app grant --app ${appId} --email you@example.com --role owner`;
}

export function addTypeCommands(program: Command): void {
  const type = program.command('type').description('event types of an app');
  type
    .command('create')
    .description('create an event type')
    .requiredOption(...APP_OPTION)
    .requiredOption('--name <name>', '1 to 200 characters, unique in the app')
    .run(async ({ sql, config }, options: { app: string; name: string }) => {
      const maxTypes = config.MAX_EVENT_TYPES_PER_APP;
      const made = await createEventType(sql, { appId: options.app, name: options.name, maxTypes });
      return { json: made, text: formatFields({ 'Event type': made.typeId, Name: made.name }) };
    });
  type
    .command('list')
    .description('list the event types of an app')
    .requiredOption(...APP_OPTION)
    .list(async ({ sql }, options: { app: string }) => {
      const types = await listEventTypes(sql, options.app);
      const rows = types.map(({ typeId, name, createdAt }) => [typeId, name, createdAt]);
      const head = ['Event type', 'Name', 'Created'];
      return { json: { types }, text: formatTable(head, rows, 'The app has no event types.') };
    });
  addSchemaCommands(type);
}
