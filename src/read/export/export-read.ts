/** GET /v1/apps/:appId/export: every event of a scope, streamed. */
import { SEARCHED_BY, type SearchedBy } from '../../base/searched-by.ts';
import { Rejection } from '../../errors.ts';
import { takesCoding } from '../../http/compressed-answer.ts';
import type { Outcome } from '../../http/exchange.ts';
import { objectOf } from '../../http/operation.ts';
import { flag, Invalid, oneOf, type Parameter, Query, text, texts } from '../../http/query.ts';
import type { ReadPlace, ReadSlots, ReadTurn } from '../../http/read-slots.ts';
import type { EventLines, LineReader } from '../../storage/read/event-lines.ts';
import { decodeCursor } from '../../storage/read/event-list.ts';
import type { EventReader } from '../../storage/read/event-reader.ts';
import type { Position } from '../../storage/read/positions.ts';
import { EVENT_ID, PAYLOAD, SEARCHED_BY_NOTE, TIMESTAMP, TYPE_ID } from '../answer-shapes.ts';
import { type AppRead, appReadByParts, type ReadCall } from '../app-read.ts';
import { fieldFilterOf } from '../filter/counted-values.ts';
import { FILTER, filterOf, pathOf } from '../filter/filter-query.ts';
import { MAX_FILTER_LENGTH } from '../filter/parse-filter.ts';
import { checkScope, EXCEPT_TYPES, findScopedTypes, SCOPE, timezone } from '../scope-query.ts';
import { type FieldColumn, FORMULAS, SEPARATOR_NAMES, TEXTS } from './csv-lines.ts';
import { attachment, CONTENT_TYPES, compressed, FORMATS, formatted } from './export-body.ts';
import { type Admission, type Exports, ExportWaiter } from './exports.ts';

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** An event's id, or a cursor of a list. */
type Start = { readonly eventId: string } | { readonly position: Position };

const MOST_COLUMNS = 20;
const COLUMNS = texts(
  'In CSV: a column before the payload with what the payload has at this path, such as `order.country`; several values have commas ' +
    'between them, an object has none. May be given several times.',
  { most: MOST_COLUMNS, items: { maxLength: MAX_FILTER_LENGTH } },
);
const COLUMN: Parameter<readonly FieldColumn[]> = {
  ...COLUMNS,
  convert: (value) => {
    const columns: FieldColumn[] = [];
    // The schema lets texts alone through.
    for (const title of (value as readonly string[] | undefined) ?? []) {
      const path = pathOf(title);
      if (path instanceof Invalid) return path;
      columns.push({ title, path });
    }
    return columns;
  },
};

const EXPORT_QUERY = new Query(
  {
    ...SCOPE,
    format: oneOf('A JSON object a line, or CSV.', FORMATS, 'ndjson'),
    formulas: oneOf(
      'In CSV: `escape` puts an apostrophe before type names, and texts of `column`, that a spreadsheet would run as a formula; `keep` leaves them as they are.',
      FORMULAS,
      'escape',
    ),
    separator: oneOf(
      'In CSV: what stands between columns. Where numbers have a decimal comma, spreadsheets take semicolons.',
      SEPARATOR_NAMES,
      'comma',
    ),
    bom: flag('In CSV: begins with a byte order mark, by which spreadsheets know that the text is UTF-8.'),
    texts: oneOf(
      'In CSV: `quoted` writes short texts of `column` with a digit, `true` and `false`, and numbers of more than 15 digits as `="00123"`, which a spreadsheet keeps as texts.',
      TEXTS,
      'exact',
    ),
    column: COLUMN,
    timezone: timezone('IANA time zone of the days in the name of the file. Absent: UTC.'),
    cursor: text<Start>(
      'Begins after this event: the `id` in the last whole line of an export that was cut, or the `nextCursor` of a list in ascending order.',
      {
        convert: (sent) => {
          if (UUID.test(sent)) return { eventId: sent };
          const cursor = decodeCursor(sent);
          if (cursor?.order === 'asc') return { position: cursor };
          return new Invalid('must be the id of an event, or the nextCursor of a list in ascending order');
        },
      },
    ),
    ...EXCEPT_TYPES,
    ...FILTER,
  },
  (query) =>
    query.column.length > 0 && query.format !== 'csv' ? 'column needs format=csv.' : checkScope(query),
);

type ExportQuery = Exclude<ReturnType<typeof EXPORT_QUERY.parse>, Rejection>;

const LINE = objectOf(
  { id: EVENT_ID, typeId: TYPE_ID, type: { type: 'string' }, createdAt: TIMESTAMP, payload: PAYLOAD },
  { title: 'ExportedEvent' },
);

export const EXPORT = {
  path: '/export',
  query: EXPORT_QUERY,
  operation: {
    id: 'exportEvents',
    summary: 'Read all events of a scope, oldest first, in one streamed answer.',
    description:
      'Counts once for the rate limit. At most two at a time per token. The connection is closed without an end of the ' +
      'answer where the export cannot go on: begin again with `cursor`.',
    answers: {
      200: {
        description: 'The events, one a line: described as an array of lines.',
        content: {
          // An array of the lines, as OpenAPI has it from 3.2 on.
          'application/x-ndjson': { schema: { type: 'array', items: LINE } },
          'text/csv; charset=utf-8': { schema: { type: 'string' } },
        },
        headers: {
          'X-Searched-By': {
            description: `With conditions on payloads, how the first part was found. ${SEARCHED_BY_NOTE}`,
            schema: { enum: SEARCHED_BY },
          },
        },
      },
    },
    refusals: ['eventNotFound', 'eventTypeNotFound', 'tooManyExports'],
  },
} as const;

const NO_START = new Rejection(
  'eventNotFound',
  'The app has no event with the id of cursor, or its row is no longer kept.',
);

export interface ExportReadOptions {
  readonly exports: Exports;
  /** Whether the caller may still read the app: checked before each part. */
  readonly mayRead: (call: ReadCall) => Promise<boolean>;
}

export function exportRead(options: ExportReadOptions): AppRead {
  const { exports } = options;
  return appReadByParts(EXPORT, async (call, query, slots) => {
    const waiter = new ExportWaiter(call.exchange);
    // Each part waits for its turn among all reads.
    const turn = { kind: 'export', turns: call.turns, waiter } as const;
    const admitted = await exports.admit(call.turns, () =>
      slots.run(turn, (place) => begun(place, call.app.id, query)),
    );
    if (admitted instanceof Rejection) return admitted;
    const { admission, prepared } = admitted;
    const parts = readAhead(exports, prepared, slots, turn);
    const { name, searchedBy } = prepared;
    return streamed(options, call, query, { name, searchedBy, admission, waiter, parts });
  });
}

/** What is found before the answer begins: what fails then is refused while there is still a status to say so. */
interface Begun {
  /** The app's name. */
  readonly name: string;
  readonly reader: LineReader;
  readonly first: EventLines | null;
  readonly searchedBy: SearchedBy | undefined;
}

async function begun(
  { sql, events }: ReadPlace,
  appId: number,
  query: ExportQuery,
): Promise<Begun | Rejection> {
  const types = await findScopedTypes(sql, appId, query);
  if (types instanceof Rejection) return types;
  const { typeIds, exceptTypes } = types;
  const after = await positionOf(events, appId, query.cursor);
  if (after instanceof Rejection) return after;
  const scope = {
    appId,
    typeIds,
    exceptTypes,
    from: query.from,
    until: query.to,
    order: 'asc',
    after,
  } as const;
  // The counts of a field find events of all types.
  const field = exceptTypes.length > 0 ? null : fieldFilterOf(query);
  const filter = filterOf(query);
  const reader = field === null ? events.lines(scope, filter) : events.filteredLines(scope, field);
  const [app] = await sql<{ name: string }[]>`SELECT name FROM apps WHERE id = ${appId}`;
  const first = await reader.next();
  // Where there is nothing to be looked at, no list has said so.
  const searchedBy = first === null && reader.isSearch ? 'scan' : first?.searchedBy;
  return { name: app?.name ?? '', reader, first, searchedBy };
}

interface Source {
  readonly name: string;
  readonly searchedBy: SearchedBy | undefined;
  readonly admission: Admission;
  readonly waiter: ExportWaiter;
  readonly parts: AsyncIterable<EventLines>;
}

function streamed(
  { exports, mayRead }: ExportReadOptions,
  call: ReadCall,
  query: ExportQuery,
  { name, searchedBy, admission, waiter, parts }: Source,
): Outcome {
  const { format, from, to, timezone } = query;
  const range = { from, until: to ?? Date.now(), timezone: timezone ?? 'UTC', format };
  const isGzipped = takesCoding(call.exchange, 'gzip');
  return {
    status: 200,
    contentType: CONTENT_TYPES[format],
    headers: {
      'Content-Disposition': attachment(name, range),
      Vary: 'Accept-Encoding',
      ...(searchedBy !== undefined && { 'X-Searched-By': searchedBy }),
      ...(isGzipped && { 'Content-Encoding': 'gzip' }),
      // nginx would store the answer on its disk before its reader gets it.
      'X-Accel-Buffering': 'no',
    },
    filler: '',
    isFinite: true,
    open: (stream) => {
      waiter.begin(stream);
      const text = formatted(parts, { ...query, holder: call.turns });
      void exports.send(admission, stream, isGzipped ? compressed(text) : text, () => mayRead(call));
    },
  };
}

/** The parts of a reader; while one is sent the next one is read. */
async function* readAhead(
  exports: Exports,
  { reader, first }: Begun,
  slots: ReadSlots,
  turn: ReadTurn,
): AsyncGenerator<EventLines> {
  const next = async (): Promise<EventLines | null> => {
    const part = await slots.run(turn, () => reader.next());
    if (part instanceof Rejection) throw new Error(part.details);
    return part;
  };
  let part = first;
  while (part !== null) {
    const following = next();
    // It is awaited after the part is sent; until then its failure must not be unhandled.
    following.catch(() => undefined);
    exports.events += part.events;
    yield part;
    part = await following;
  }
}

async function positionOf(
  events: EventReader,
  appId: number,
  start: Start | null,
): Promise<Position | null | Rejection> {
  if (start === null) return null;
  if ('position' in start) return start.position;
  const event = await events.event(appId, start.eventId);
  return event === null ? NO_START : { at: event.createdAt.getTime(), id: event.id };
}
