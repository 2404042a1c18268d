/** The event types that a page names: the busiest ones, and those of what is on screen. */
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { EventType } from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { type Resource, useResource } from '../resource.ts';
import { BUSIEST_TYPES, MOST_TYPES, typesPath } from '../view.ts';

interface Types {
  readonly types: readonly EventType[];
}

/** The busiest types, and those of these ids, each of which is asked for once. @param ids null: asks for nothing yet */
export function useTypes(appId: string, ids: readonly string[]): Resource<Types> & Types {
  const busiest = useResource<Types>(typesPath(appId));
  const [others, setOthers] = useState<readonly EventType[]>([]);
  const types = useMemo(() => [...(busiest.data?.types ?? []), ...others], [busiest.data, others]);
  const asked = useRef(new Set<string>());
  const known = new Set(types.map(({ typeId }) => typeId));
  const missing = [...new Set(ids)]
    .filter((id) => !known.has(id) && !asked.current.has(id))
    .slice(0, MOST_TYPES);
  const isReady = busiest.data !== undefined;
  useEffect(() => {
    if (!isReady || missing.length === 0) return;
    for (const id of missing) asked.current.add(id);
    const query = missing.map((id) => `typeId=${id}`).join('&');
    call<Types>('GET', typesPath(appId, query)).then(
      (found) => setOthers((before) => [...before, ...found.types]),
      () => undefined, // Their ids stand for them.
    );
  }, [isReady && missing.join()]);
  return { ...busiest, types };
}

/** The types whose name contains a text, where these are not all there are. @param known the busiest ones */
export function useFoundTypes(
  appId: string,
  search: string,
  known: readonly EventType[],
): readonly EventType[] {
  const isAsked = search !== '' && known.length >= MOST_TYPES;
  const query = `search=${encodeURIComponent(search)}&${BUSIEST_TYPES}`;
  const found = useResource<Types>(isAsked ? typesPath(appId, query) : null).data?.types ?? [];
  const ids = new Set(known.map(({ typeId }) => typeId));
  return isAsked ? [...known, ...found.filter(({ typeId }) => !ids.has(typeId))] : known;
}
