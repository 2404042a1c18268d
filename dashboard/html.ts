/** htm bound to Preact: markup as tagged templates, which the build compiles to calls of {@link element}. */
import htm from 'htm';
import { type Component, type ComponentChildren, type ComponentType, h, type VNode } from 'preact';

/** What browsers may forget of a table where a style shows its rows as blocks. */
const ROLES: Readonly<Record<string, string>> = {
  table: 'table',
  thead: 'rowgroup',
  tbody: 'rowgroup',
  tr: 'row',
  td: 'cell',
  col: 'columnheader',
  row: 'rowheader',
};

/** An element of the page, or a component. A button sends no form unless it says so. */
export function element(
  type: string | ComponentType,
  props: Record<string, unknown> | null,
  ...children: ComponentChildren[]
): VNode {
  const role = typeof type === 'string' && ROLES[type === 'th' ? String(props?.scope) : type];
  const usual = role ? { role } : type === 'button' && { type };
  return h(type as string, usual ? { ...usual, ...props } : props, ...children);
}

export const html = /* @__PURE__ */ htm.bind(element) as (
  strings: TemplateStringsArray,
  ...values: unknown[]
) => VNode;

export type Children = ComponentChildren;

/**
 * The component, rendered again only where one of its properties is another one. A node that is kept for that would keep the elements
 * that it was drawn with, also when they are no longer in the document.
 */
export function keptWhileSame<P extends object>(component: (props: P) => VNode): (props: P) => VNode {
  return function (this: Component<P>, props: P) {
    this.shouldComponentUpdate = (next) => {
      // Both have the same names.
      const names = Object.keys(next) as (keyof P)[];
      return names.some((name) => next[name] !== this.props[name]);
    };
    // A node has one type, whatever its properties are.
    return h(component, props) as VNode;
  };
}
