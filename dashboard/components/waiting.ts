/** Placeholders of the final size, and pages that are loaded on demand. */
import type { FunctionComponent, VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Problem } from '../api.ts';
import { html } from '../html.ts';
import type { Resource } from '../resource.ts';
import { ProblemBox } from './problem.ts';

export interface WaitingProps {
  readonly for: Resource<unknown>;
  /** Lines of the skeleton. */
  readonly lines: number;
  readonly class?: string;
}

/** A placeholder until the answer has arrived, or its error. */
export function Waiting({ for: resource, lines, class: kind = '' }: WaitingProps): VNode | null {
  const { data, problem, reload } = resource;
  if (problem !== null) return html`<${ProblemBox} problem=${problem} retry=${reload} />`;
  return data === undefined ? html`<${Skeleton} lines=${lines} class=${kind} />` : null;
}

/** Gray lines in place of text. */
export function Skeleton({
  lines = 3,
  class: kind = '',
}: {
  readonly lines?: number;
  readonly class?: string;
}): VNode {
  return html`<div class=${`skeleton ${kind}`} role="status" aria-label="Loading">
    ${Array.from({ length: lines }, (_, index) => html`<span key=${index}></span>`)}
  </div>`;
}

export type Load<P> = () => Promise<FunctionComponent<P>>;

const loaded = new Map<unknown, unknown>();

/** Starts loading a page's code; safe to call at any time. */
export function prepare<P>(load: Load<P>): void {
  load().then(
    (component) => loaded.set(load, component),
    () => undefined,
  ); // Shown by the component that needs the page.
}

export interface PartProps<P> {
  readonly load: Load<P>;
  readonly props: P;
}

/** A component whose code is loaded on demand. */
export function Part<P>({ load, props }: PartProps<P>): VNode {
  const [, setTurn] = useState(0);
  const [problem, setProblem] = useState<Problem | null>(null);
  const component = loaded.get(load);
  const start = (): void => {
    setProblem(null);
    load().then(
      (found) => {
        loaded.set(load, found);
        setTurn((turn) => turn + 1);
      },
      () =>
        setProblem(
          new Problem('This page could not be loaded', {
            details: 'The server cannot be reached, or was updated: reload the page.',
          }),
        ),
    );
  };
  useEffect(() => {
    if (component === undefined) start();
  }, [load]);
  if (component !== undefined) return html`<${component} ...${props} />`;
  if (problem !== null) return html`<${ProblemBox} problem=${problem} retry=${() => location.reload()} />`;
  return html`<${Skeleton} lines=${8} />`;
}
