/** The values of a field, for completion: those of the events that a view is about. */
import type { FieldValues } from '../answers.ts';
import { countablePath, valueText } from '../filter-text.ts';
import { pathKey } from '../known-fields.ts';
import { isOpen } from '../range.ts';
import { useResource } from '../resource.ts';
import { eventsQuery, type ViewAndChange } from '../view.ts';

/**
 * The values that a field has in a view, whatever else the view asks of it; conditions on the field itself count as absent.
 * In the grammar of filters, the most frequent first.
 * @param path null: asks for nothing
 */
export function useFieldValues(appId: string, path: string | null, { view, span }: ViewAndChange): string[] {
  const others = view.filters.filter(
    (filter) => pathKey(countablePath(filter) ?? '') !== pathKey(path ?? ''),
  );
  const query = eventsQuery(
    { ...view, filters: others },
    { from: span.from, to: isOpen(view.range) ? null : span.to },
  );
  query.set('path', path ?? '');
  const key = `/api/apps/${appId}/fields/values?${query}`;
  const { data } = useResource<FieldValues>(path === null ? null : key, { scope: `${appId} ${path}` });
  return (data?.values ?? []).map(({ value }) => spelling(value));
}

function spelling(value: FieldValues['values'][number]['value']): string {
  // Without quotes a text that spells a number is that number, too.
  const isNumber = typeof value === 'string' && /^-?\d+(?:\.\d+)?(?:e-?\d+)?$/.test(value);
  return isNumber ? value : valueText(JSON.stringify(value));
}
