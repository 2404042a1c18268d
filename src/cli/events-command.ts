/** `tidemark events`: the newest events of an app, or those with a word, a text or other conditions. */
import { eventText } from '../read/events/event-text.ts';
import { readSearchPage } from '../read/events/search-page.ts';
import { payloadFilter } from '../read/filter/payload-filter.ts';
import type { Sql } from '../storage/database/connect.ts';
import { EVERY_ROW } from '../storage/fields/row-filter.ts';
import type { Storage } from '../storage/storage.ts';
import { collect, parseCount, parseInstant } from './duration.ts';
import { conditionsOf, type ScopeOptions, scanOfOptions } from './export-command.ts';
import { APP_OPTION, JSON_LIST } from './options.ts';
import { formatTable } from './output.ts';
import type { Command } from './session.ts';
import { withInstallation } from './transfer/installation.ts';

const MOST_EVENTS = 1_000;
/** Bytes of payloads, which are in memory at once. */
const MOST_BYTES = 64 * 1_048_576;
/** A command looks at all events, however long that takes. */
const NO_BUDGET = { rows: Number.POSITIVE_INFINITY, ms: Number.POSITIVE_INFINITY };

interface EventsOptions extends ScopeOptions {
  readonly find?: string;
  readonly inside?: string;
  readonly limit: number;
  readonly json?: true;
}

export function addEventsCommand(program: Command): void {
  program
    .command('events')
    .description('show the newest events of an app, or find those with a word or an id')
    .requiredOption(...APP_OPTION)
    .option('--find <text>', 'only events whose payload has this word, name or id')
    .option('--inside <text>', 'only events whose payload contains this text, also inside longer words')
    .option('--from <time>', 'from this instant on, ISO 8601; without an offset it is UTC', parseInstant)
    .option('--to <time>', 'up to this instant, exclusive', parseInstant)
    .option('--type <name>', 'only events of this type, by name or id; repeat for more', collect)
    .option(
      '--filter <condition>',
      'only events whose payload meets this condition; repeat for more',
      collect,
    )
    .option('--limit <n>', `most events, 1 to ${MOST_EVENTS}`, parseCount(1, MOST_EVENTS), 20)
    .option(...JSON_LIST)
    .action(async (options: EventsOptions) => {
      const { events, next, ...end } = await withInstallation(({ sql, storage }) =>
        findEvents(sql, storage, options),
      );
      const isWhole = next === null;
      const rows = events.map(({ createdAt, id, payload }) => [createdAt, id, payload]);
      const shown = formatTable(['Time', 'Event', 'Payload'], rows, 'There are no such events.');
      // Payloads are the very text that was sent.
      const json = `{"events":[${events.map(eventText).join()}],${JSON.stringify({ isWhole, ...end }).slice(1)}`;
      const text = isWhole ? shown : `${shown}\nThere may be older ones: see --limit and --to.`;
      process.stdout.write(`${options.json === true ? json : text}\n`);
    });
}

async function findEvents(sql: Sql, storage: Storage, options: EventsOptions) {
  const texts = { word: options.find ?? null, q: options.inside ?? null };
  const filter = payloadFilter(conditionsOf(options.filter ?? []), texts);
  const scope = await scanOfOptions(sql, options);
  const { events, next, searchedBy } = await readSearchPage(
    storage.reader(sql),
    { ...scope, order: 'desc', limit: options.limit, maxBytes: MOST_BYTES },
    filter ?? EVERY_ROW,
    { budget: NO_BUDGET, now: () => performance.now(), pass: async () => true },
  );
  return { events, next, ...(filter !== null && searchedBy !== null && { searchedBy }) };
}
