/** htm bound to Preact: markup as tagged templates, which the build compiles to calls of {@link element}. */
import htm from 'htm';
import { type ComponentChildren, type ComponentType, h, type VNode } from 'preact';

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

/** An element of the page, or a component. */
export function element(
  type: string | ComponentType,
  props: Record<string, unknown> | null,
  ...children: ComponentChildren[]
): VNode {
  const role = typeof type === 'string' && ROLES[type === 'th' ? String(props?.scope) : type];
  return h(type as string, role ? { role, ...props } : props, ...children);
}

export const html = /* @__PURE__ */ htm.bind(element) as (
  strings: TemplateStringsArray,
  ...values: unknown[]
) => VNode;

export type Children = ComponentChildren;
