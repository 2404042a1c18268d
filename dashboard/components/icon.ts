/** Line icons of one weight, drawn in the text's color. They are decorative: next to text or in labeled buttons. */
import type { VNode } from 'preact';
import { html } from '../html.ts';

const PATHS = {
  back: 'M10 3 5 8l5 5',
  forward: 'm6 3 5 5-5 5',
  down: 'm3.500 6 4.500 4.500L12.500 6',
  pause: 'M5.500 3.500v9M10.500 3.500v9',
  play: 'M5 3.200v9.600L12.500 8z',
  copy: 'M5.500 5.500h8v8h-8zM3 10.500H2.500v-8h8V3',
  check: 'm3 8.500 3.500 3.500L13 4.500',
  close: 'm4 4 8 8m0-8-8 8',
  light:
    'M8 5a3 3 0 1 1 0 6 3 3 0 0 1 0-6M8 1.500v1M8 13.500v1M1.500 8h1M13.500 8h1M3.400 3.400l.7.7M11.900 11.900l.7.7M12.600 3.400l-.7.7M4.100 11.900l-.7.7',
  dark: 'M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z',
  system: 'M2 3h12v8H2zM6 13.500h4',
  zoomOut: 'M7 2.500a4.500 4.500 0 1 1 0 9 4.500 4.500 0 0 1 0-9m3.300 7.800 3.200 3.200M5 7h4',
  search: 'M7 2.500a4.500 4.500 0 1 1 0 9 4.500 4.500 0 0 1 0-9m3.300 7.800 3.200 3.200',
  plus: 'M8 3v10M3 8h10',
  bookmark: 'M4.500 2.500h7v11L8 10.500l-3.500 3z',
  reload: 'M13 8a5 5 0 1 1-1.600-3.700M13 2v3h-3',
  clock: 'M8 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2m0 3v3l2 1.500',
  filter: 'M2 4h12M4.500 8h7M7 12h2',
  options: 'M2 4.500h7M12.500 4.500H14M2 11.500h2M7.500 11.500H14M10.800 3v3M5.800 10v3',
  eye: 'M1.500 8s2.300-4 6.500-4 6.500 4 6.500 4-2.300 4-6.500 4-6.500-4-6.500-4M8 6.300a1.700 1.700 0 1 1 0 3.400 1.700 1.700 0 0 1 0-3.400',
  eyeClosed:
    'M1.500 7s2.300 3.500 6.500 3.500S14.500 7 14.500 7M8 10.500V13M3.700 9.300 2.200 11M12.300 9.300l1.500 1.700',
  user: 'M8 2.500a2.500 2.500 0 1 1 0 5 2.500 2.500 0 0 1 0-5M3 13.500c.5-3 2.500-4 5-4s4.500 1 5 4',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { readonly name: IconName }): VNode {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;
}

/** The logo. */
export function Mark(): VNode {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
    <path d="M10 13V9M16 13V6M22 13v-3" />
    <path class="tide" d="M6 21c3.300 0 3.300-3 6.700-3s3.300 3 6.600 3 3.300-3 6.700-3" />
  </svg>`;
}
