/** The commands for consumers. */
import { internalAppId } from '../accounts/people/members.ts';
import {
  addConsumer,
  removeConsumer,
  seekConsumer,
  shownConsumer,
  skipInConsumer,
} from '../delivery/consumers.ts';
import { OperatorError, WrongInput } from '../errors.ts';
import { parseBound } from '../read/iso-date.ts';
import { ConsumerStore, type StartingPoint } from '../storage/feed/consumers.ts';
import { collect } from './duration.ts';
import { APP_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import type { Command, Session } from './session.ts';

interface ConsumerOptions {
  readonly app: string;
  readonly name: string;
  readonly type?: readonly string[];
  readonly filter?: readonly string[];
  readonly from?: string;
  readonly to?: string;
}

const NAME_OPTION = ['--name <name>', 'name of the consumer, 1 to 100 characters'] as const;
export const TYPES_OPTION = ['--type <name>', 'only events of this type; repeat for more'] as const;
export const FILTER_OPTION = [
  '--filter <filter>',
  'only events whose payload meets this condition, such as status>=500; repeat for more',
] as const;
export const FROM_OPTION = [
  '--from <where>',
  'now, start, or a time such as 2026-11-20T08:00:00Z: events from then on',
] as const;

export function addConsumerCommands(program: Command): void {
  const consumer = program
    .command('consumer')
    .description('durable positions of readers in an app’s events, in commit order');
  one(consumer, 'add', 'add a consumer, which reads with a resource token')
    .option(...TYPES_OPTION, collect)
    .option(...FILTER_OPTION, collect)
    .option(...FROM_OPTION, 'now')
    .run(async (session, options: ConsumerOptions) => {
      const { name, type: types = [], filter = [], from = 'now' } = options;
      const { appId, store } = await placeOf(session, options);
      const most = session.config.MAX_CONSUMERS_PER_APP;
      await addConsumer(session.sql, store, appId, {
        ...{ name, types, filter, most },
        from: startingPoint('--from', from),
      });
      const path = `/v1/apps/${options.app}/consumers/${encodeURIComponent(name)}/events`;
      return {
        json: { appId: options.app, name, types, filter, from },
        text: formatFields({ Consumer: name, 'Read with': `GET ${path}` }),
      };
    });
  consumer
    .command('list')
    .description('list the consumers of an app, and how far behind each is')
    .requiredOption(...APP_OPTION)
    .run(async (session, options: ConsumerOptions) => {
      const { appId, store } = await placeOf(session, options);
      const reach = session.config.CONSUMER_REACH_HOURS;
      const consumers = (await store.list(appId, 'consumer')).map((one) =>
        shownConsumer(one, reach, Date.now()),
      );
      const rows = consumers.map((one) => [
        one.name,
        one.state,
        `${one.lagSeconds} s`,
        one.types,
        one.filter,
        one.leasedUntil,
        String(one.deliveries),
        one.createdAt,
      ]);
      const head = ['Consumer', 'State', 'Lag', 'Types', 'Filter', 'Leased until', 'Deliveries', 'Created'];
      return { json: { consumers }, text: formatTable(head, rows, 'The app has no consumers.') };
    });
  addChangingCommands(consumer);
}

function addChangingCommands(consumer: Command): void {
  one(consumer, 'seek', 'have a consumer go on elsewhere; its lease ends')
    .requiredOption('--to <where>', FROM_OPTION[1])
    .run(async (session, options: ConsumerOptions) => {
      const { name, to = '' } = options;
      const { appId, store } = await placeOf(session, options);
      await seekConsumer(session.sql, store, appId, { name, from: startingPoint('--to', to) });
      return {
        json: { appId: options.app, name, to },
        text: formatFields({ Consumer: name, 'Goes on': to }),
      };
    });
  one(consumer, 'skip', 'leave out the one event that comes next, for a client that fails at it').run(
    async (session, options: ConsumerOptions) => {
      const { name } = options;
      const { appId, store } = await placeOf(session, options);
      const eventId = await skipInConsumer(session.sql, store, appId, { name });
      if (eventId === null) throw new OperatorError('no event waits for this consumer');
      return {
        json: { appId: options.app, name, eventId },
        text: formatFields({ Consumer: name, 'Left out': eventId }),
      };
    },
  );
  one(consumer, 'remove', 'remove a consumer with its position').run(
    async (session, options: ConsumerOptions) => {
      const { appId, store } = await placeOf(session, options);
      await removeConsumer(session.sql, store, appId, options.name);
      return {
        json: { appId: options.app, name: options.name },
        text: formatFields({ Removed: options.name }),
      };
    },
  );
}

/** A command about one consumer of an app. */
function one(consumer: Command, name: string, description: string): Command {
  return consumer
    .command(name)
    .description(description)
    .requiredOption(...APP_OPTION)
    .requiredOption(...NAME_OPTION);
}

async function placeOf(
  { sql, storage }: Session,
  { app }: ConsumerOptions,
): Promise<{ readonly appId: number; readonly store: ConsumerStore }> {
  return { appId: await internalAppId(sql, app), store: new ConsumerStore(storage.engine, sql) };
}

/** @throws WrongInput */
export function startingPoint(option: string, text: string): StartingPoint {
  if (text === 'now' || text === 'start') return text;
  const at = parseBound(text, 'start');
  if (typeof at === 'string')
    throw new WrongInput(`${option} must be now, start, or a time in ISO 8601: it ${at}`);
  return new Date(at);
}
