/** htm bound to Preact: markup as tagged templates, without a compiler. */
import htm from 'htm';
import { type ComponentChildren, h, type VNode } from 'preact';

export const html = htm.bind(h) as (strings: TemplateStringsArray, ...values: unknown[]) => VNode;

export type Children = ComponentChildren;
