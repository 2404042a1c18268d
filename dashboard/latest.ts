/** What is called later sees what was rendered last. */
import { useRef } from 'preact/hooks';

export function useLatest<T>(value: T): { readonly current: T } {
  const latest = useRef(value);
  latest.current = value;
  return latest;
}
