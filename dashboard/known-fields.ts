/** The fields of an app's payloads from the server: those of recent events, and the declared ones. */
import type {
  DeclaredField,
  DeclaredFields,
  FieldCatalog,
  FieldKind,
  SeenField,
} from '../src/api-types/answers.ts';
import { callText } from './api.ts';
import { children, members } from './raw-json.ts';
import { lastAnswer, type Resource, useResource } from './resource.ts';

export const declaredPath = (appId: string): string => `/api/apps/${appId}/declared-fields`;

/** The declared fields, in order of declaration. @param version asks again when it changes */
export function useDeclaredFields(appId: string, isWanted = true, version = 0): Resource<DeclaredFields> {
  return useResource<DeclaredFields>(isWanted ? declaredPath(appId) : null, { version });
}

/** The fields of recent events. */
export function useCatalog(appId: string, isWanted = true): Resource<FieldCatalog> {
  const path = `/api/apps/${appId}/fields`;
  const catalog = useResource<FieldCatalog>(isWanted ? path : null, {
    load: async (signal) => catalogOf(await callText('GET', path, { signal })),
  });
  // What is known is shown before it is asked for again.
  return isWanted ? catalog : { ...catalog, data: lastAnswer<FieldCatalog>(path) };
}

/** Examples keep their spelling: JSON.parse would round a number of twenty digits. */
export function catalogOf(text: string): FieldCatalog {
  const { data } = JSON.parse(text) as { data: FieldCatalog }; // The shape of the server's answer.
  const answer = members(text, text.indexOf('{')).get('data');
  const fields = members(text, answer?.start ?? 0).get('fields');
  const spellings = children(text, fields?.start ?? 0).items.map(({ start }): string[] => {
    const examples = members(text, start).get('examples');
    return examples === undefined
      ? []
      : children(text, examples.start).items.map((example) => text.slice(example.start, example.end));
  });
  return {
    ...data,
    fields: data.fields.map((field, index): SeenField => ({ ...field, examples: spellings[index] ?? [] })),
  };
}

/** The names that a path leads through, as one text: two spellings of a path have the same. */
export function pathKey(path: string): string {
  const names = path.match(/"(?:[^"\\]|\\.)*"|[^".]+/g) ?? [];
  return JSON.stringify(names.map((name) => (name.startsWith('"') ? nameOf(name) : name.trim())));
}

function nameOf(quoted: string): string {
  try {
    return JSON.parse(quoted) as string;
  } catch {
    return quoted; // Typed by the user, and not valid JSON.
  }
}

/**
 * The declared fields that count the values, or numbers, at a path, for a type or for all. Of values, a pair is the same both ways.
 * @param typeId null: of all types
 */
export function countersOf(
  declared: readonly DeclaredField[],
  path: string,
  typeId: string | null,
  { kind = 'value', by = null }: { readonly kind?: FieldKind; readonly by?: string | null } = {},
): DeclaredField[] {
  const [key, other] = [pathKey(path), by === null ? null : pathKey(by)];
  const isAsked = (own: string, second: string | null): boolean =>
    (own === key && second === other) || (kind === 'value' && second === key && own === other);
  return declared.filter(
    (field) =>
      field.kind === kind &&
      isAsked(pathKey(field.path), field.by === null ? null : pathKey(field.by)) &&
      (field.typeId === null || field.typeId === typeId),
  );
}

/** The paths at which events have values, each once: objects have none. @param kind only those with values of this kind */
export function scalarPaths(fields: readonly SeenField[], kind: string | null = null): string[] {
  const found = fields.filter(({ kinds }) =>
    kinds.some((one) => (kind === null ? one.kind !== 'object' && one.kind !== 'array' : one.kind === kind)),
  );
  return [...new Map(found.map(({ path }) => [pathKey(path), path])).values()];
}

/** The paths whose values are counted, each once. */
export function countedPaths(fields: readonly DeclaredField[]): string[] {
  const counted = fields.filter(
    ({ kind, by, completeFrom }) => kind === 'value' && by === null && completeFrom !== null,
  );
  return [...new Map(counted.map(({ path }) => [pathKey(path), path])).values()];
}
