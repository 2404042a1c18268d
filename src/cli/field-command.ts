/** The commands for declared fields. */
import { isDeepStrictEqual } from 'node:util';
import { Option } from 'commander';
import { internalAppId } from '../accounts/people/members.ts';
import {
  declareField,
  type Field,
  type FieldReference,
  formatProblem,
  listFieldProgress,
  removeField,
} from '../apps/fields.ts';
import { WrongInput } from '../errors.ts';
import { shownField } from '../read/fields/shown-field.ts';
import { parsePath } from '../read/filter/parse-filter.ts';
import type { FieldKind } from '../storage/fields/payload-values.ts';
import { APP_OPTION } from './options.ts';
import { formatFields, formatTable } from './output.ts';
import type { Command, Session } from './session.ts';
import { grouped } from './transfer/progress.ts';

interface FieldOptions {
  readonly app: string;
  readonly path: string;
  readonly type?: string;
  readonly kind: FieldKind;
  readonly by?: string;
  readonly backfill?: true;
  readonly unit?: string;
  readonly decimals?: string;
}

const PATH_OPTION = ['--path <path>', 'where the value is in the payload, such as order.country'] as const;
const BY_OPTION = [
  '--by <path>',
  'count it apart by the values of another path, such as --path amount --kind number --by customer',
] as const;
const TYPE_NAME_OPTION = [
  '--type <name>',
  'only events of this type have it; without it, events of all types',
] as const;

export function addFieldCommands(program: Command): void {
  const field = program
    .command('field')
    .description('declared fields of payloads: events are counted by their values, numbers have statistics');
  const kind = (): Option =>
    new Option(
      '--kind <kind>',
      'value: count events by the value; number: keep sum, minimum, maximum and quantiles; distinct: count the different values',
    )
      .choices(['value', 'number', 'distinct'])
      .default('value');
  field
    .command('add')
    .description('declare a field: its values are counted from now on')
    .requiredOption(...APP_OPTION)
    .requiredOption(...PATH_OPTION)
    .option(...TYPE_NAME_OPTION)
    .addOption(kind())
    .option(...BY_OPTION)
    .option(
      '--backfill',
      'count earlier events, too, in the background; also for a field that is declared already',
    )
    .option(
      '--unit <unit>',
      'what its numbers are of, such as €, ms or MB; also for a field that is declared already ("": none)',
    )
    .option('--decimals <count>', 'digits after the decimal point with which its numbers are shown')
    .run(async (session, options: FieldOptions) => {
      const reference = await referenceOf(session, options);
      const format = formatOf(options);
      const made = await declareField(session.sql, {
        ...{ ...reference, ...format },
        backfill: options.backfill === true,
      });
      const meant = otherSpelling(options.path);
      const note = meant === null ? '' : `\nA path has names with dots between them: did you mean ${meant}?`;
      return { json: shownField(made), text: `Declared: ${nameOf(made)}\n${countedOf(made)}${note}` };
    });
  field
    .command('list')
    .description('list the fields of an app, and from when on each is counted')
    .requiredOption(...APP_OPTION)
    .run(async ({ sql }, options: FieldOptions) => {
      const fields = (await listFieldProgress(sql, await internalAppId(sql, options.app))).map(shownField);
      const rows = fields.map((one) => [
        one.path,
        one.unit === null ? one.kind : `${one.kind} (${one.unit})`,
        one.by,
        one.typeName,
        one.completeFrom,
        one.backfill ? progressOf(one.eventsLeft) : null,
        String(one.values),
        one.otherSince,
      ]);
      const head = ['Field', 'Kind', 'By', 'Type', 'Complete from', 'Backfill', 'Values', 'Other since'];
      return { json: { fields }, text: formatTable(head, rows, 'The app has no fields.') };
    });
  field
    .command('remove')
    .description('remove a field with its counts')
    .requiredOption(...APP_OPTION)
    .requiredOption(...PATH_OPTION)
    .option(...TYPE_NAME_OPTION)
    .addOption(kind())
    .option(...BY_OPTION)
    .run(async (session, options: FieldOptions) => {
      const removed = await removeField(session.sql, await referenceOf(session, options));
      return { json: shownField(removed), text: formatFields({ Removed: nameOf(removed) }) };
    });
}

/** The path that one of JSONPath, jq or JSON Pointer means; arrays are gone into by themselves. Null: it is none of these. */
function otherSpelling(path: string): string | null {
  const plain = (path.startsWith('/') ? path.slice(1).replaceAll('/', '.') : path)
    .replace(/^\$?\./, '')
    .replaceAll(/\[(?:\d{1,9}|\*|)\]/g, '');
  return plain === path || plain === '' ? null : plain;
}

function formatOf({ kind, unit, decimals }: FieldOptions) {
  const format = {
    ...(unit !== undefined && { unit: unit === '' ? null : unit }),
    ...(decimals !== undefined && { decimals: decimals === '' ? null : Number(decimals) }),
  };
  const [name, problem] = formatProblem({ kind, ...format }) ?? [];
  if (name !== undefined) throw new WrongInput(`--${name} ${problem}`);
  return format;
}

function progressOf(eventsLeft: number | null): string {
  return eventsLeft === null ? 'not begun' : `${grouped(eventsLeft)} events left`;
}

/** Paths of a declaration in one text. */
function nameOf(field: Field): string {
  const { path, by } = shownField(field);
  return by === null ? path : `${path} by ${by}`;
}

async function referenceOf(
  { sql }: Session,
  { app, path: spelled, type, kind, by: spelledBy }: FieldOptions,
): Promise<FieldReference> {
  const path = pathOf('--path', spelled);
  const by = spelledBy === undefined ? null : pathOf('--by', spelledBy);
  if (isDeepStrictEqual(path, by)) throw new WrongInput('--by must be another path than --path');
  return { appId: await internalAppId(sql, app), path, kind, by, typeName: type ?? null };
}

/** @throws WrongInput, with the column */
export function pathOf(option: string, spelled: string): readonly string[] {
  const path = parsePath(spelled);
  if ('problem' in path) throw new WrongInput(`${option} is wrong at column ${path.column}: ${path.problem}`);
  return path;
}

/** What is counted of a field that was just declared. */
function countedOf({ backfill, completeFrom }: Field): string {
  if (backfill) return 'Earlier events are counted, too, in the background: see tidemark field list.';
  return completeFrom === null
    ? 'Counted from now on. To count earlier events, too, run the same command with --backfill.'
    : 'Its counts are complete: the app has no earlier events.';
}
