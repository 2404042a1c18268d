/** A short inline message: a note or a success. Errors use Problem. */
import type { VNode } from 'preact';
import { type Children, html } from '../html.ts';

export interface CalloutProps {
  /** `note`: information. `good`: success. */
  readonly tone: 'note' | 'good';
  /** Whether screen readers announce it. */
  readonly status?: boolean;
  readonly children: Children;
}

export function Callout({ tone, status = false, children }: CalloutProps): VNode {
  return html`<div class=${tone === 'good' ? 'callout good' : 'callout'} role=${status ? 'status' : undefined}>${children}</div>`;
}
