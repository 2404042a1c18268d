/** The values of a field, for completion: those of the events that a view is about. */
import type { FieldValues } from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { countablePath } from '../filter-text.ts';
import { count } from '../format.ts';
import { pathKey } from '../known-fields.ts';
import { isOpen } from '../range.ts';
import { type Resource, useResource } from '../resource.ts';
import { eventsQuery, type ViewAndChange } from '../view.ts';

/** The values of a field with their counts, most first. */
export interface ValueCounts {
  /** As JSON. */
  readonly values: readonly { readonly value: string; readonly count: number }[];
  /** Events with other values, several or none. */
  readonly otherEvents: number;
  /** Whether they are those of the newest events alone. */
  readonly isSample: boolean;
  readonly isLoading: boolean;
}

export function useValueCounts(appId: string, path: string, viewed: ViewAndChange): ValueCounts {
  const { data, loading } = useValues(appId, path, viewed);
  return {
    values: (data?.values ?? []).map((one) => ({ value: spelling(one), count: one.events })),
    otherEvents: data?.otherEvents ?? 0,
    isSample: data?.exact === false,
    isLoading: data === undefined && loading,
  };
}

/**
 * The values that a field has in a view, whatever else the view asks of it; conditions on the field itself count as absent.
 * The most frequent first.
 * @param path null: asks for nothing
 */
export function useFieldValues(appId: string, path: string | null, viewed: ViewAndChange): ValueCount[] {
  const { data } = useValues(appId, path, viewed);
  return data === undefined ? [] : countsOf(data);
}

function useValues(appId: string, path: string | null, { view, span }: ViewAndChange): Resource<FieldValues> {
  const others = view.filters.filter(
    (filter) => pathKey(countablePath(filter) ?? '') !== pathKey(path ?? ''),
  );
  const query = eventsQuery(
    { ...view, filters: others },
    { from: span.from, to: isOpen(view.range) ? null : span.to },
  );
  query.set('path', path ?? '');
  const key = `/api/apps/${appId}/fields/values?${query}`;
  return useResource<FieldValues>(path === null ? null : key, { scope: `${appId} ${path}` });
}

/** A value as JSON, and of how many events it is. */
export interface ValueCount {
  readonly value: string;
  readonly events: string;
}

const countsOf = ({ values, sample }: FieldValues): ValueCount[] =>
  values.map((one) => ({
    value: spelling(one),
    events:
      sample === null ? count(one.events) : `${count(one.events)} of the newest ${count(sample.events)}`,
  }));

/** Most fields whose values are looked through for a word. */
const MOST_FIELDS = 6;

/** The values of the fields that are counted, by path: where a word is typed that may be one of them. */
export function useCountedValues(
  appId: string,
  paths: readonly string[],
  { view, span }: ViewAndChange,
): readonly { readonly path: string; readonly values: readonly ValueCount[] }[] {
  const query = eventsQuery(view, { from: span.from, to: isOpen(view.range) ? null : span.to });
  const asked = paths.slice(0, MOST_FIELDS);
  const key = `/api/apps/${appId}/fields/values?${query}`;
  const { data } = useResource<{ path: string; values: ValueCount[] }[]>(
    asked.length === 0 ? null : `${key} ${asked.join(' ')}`,
    {
      scope: `values ${appId}`,
      load: async (signal) =>
        await Promise.all(
          asked.map(async (path) => {
            const found = await call<FieldValues>('GET', `${key}&${new URLSearchParams({ path })}`, {
              signal,
            });
            return { path, values: countsOf(found) };
          }),
        ),
    },
  );
  return data ?? [];
}

/** A value as JSON. */
const spelling = ({ value, valueIsNumber }: FieldValues['values'][number]): string =>
  valueIsNumber ? String(value) : JSON.stringify(value);
