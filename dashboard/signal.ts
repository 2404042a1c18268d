/** Values that components share: one that reads a value while it renders is rendered again when the value changes. */
import { type Component, options, type VNode } from 'preact';

export interface Signal<T> {
  value: T;
}

/** Called by Preact with what it is about to render, by a name that its own hooks use, too; and when it has rendered it. */
interface Hooks {
  __r?: (vnode: Rendered) => void;
  diffed?: (vnode: Rendered) => void;
  unmount?: (vnode: Rendered) => void;
}
type Rendered = VNode & { readonly __c?: Component };

let rendering: Component | null = null;
/** The values that a component has read. */
const read = new WeakMap<Component, Set<Set<Component>>>();

const hooks = options as Hooks; // The types leave out the first one.
const { __r: render, diffed, unmount } = hooks;
hooks.__r = (vnode) => {
  rendering = vnode.__c ?? null;
  render?.(vnode);
};
hooks.diffed = (vnode) => {
  rendering = null;
  diffed?.(vnode);
};
hooks.unmount = (vnode) => {
  for (const readers of (vnode.__c && read.get(vnode.__c)) ?? []) if (vnode.__c) readers.delete(vnode.__c);
  unmount?.(vnode);
};

/** @param onChange called with each new value, and with the first one */
export function signal<T>(first: T, onChange?: (value: T) => void): Signal<T> {
  const readers = new Set<Component>();
  let current = first;
  onChange?.(first);
  return {
    get value() {
      if (rendering !== null) {
        readers.add(rendering);
        const known = read.get(rendering) ?? new Set();
        read.set(rendering, known.add(readers));
      }
      return current;
    },
    set value(next) {
      if (Object.is(next, current)) return;
      current = next;
      onChange?.(next);
      for (const reader of readers) reader.setState({});
    },
  };
}
