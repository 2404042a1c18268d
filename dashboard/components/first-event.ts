/** Shown for an app without events: how to send the first one. */
import type { VNode } from 'preact';
import type { App, LoggingToken } from '../../src/api-types/answers.ts';
import { html } from '../html.ts';
import { type Resource, useRepeated, useResource } from '../resource.ts';
import { ProblemBox } from './problem.ts';
import { Snippets } from './snippet-choice.ts';
import { Waiting } from './waiting.ts';

const POLL_MS = 2_000;

export interface FirstEventProps {
  readonly appId: string;
  readonly app: Resource<App>;
}

export function FirstEvent({ appId, app }: FirstEventProps): VNode {
  const mayChange = app.data?.may.includes('change') ?? true;
  const token = useResource<LoggingToken>(mayChange ? `/api/apps/${appId}/logging-token` : null);
  // Until it has an event: the page then shows the chart.
  useRepeated(app.reload, POLL_MS, !app.loading);
  const loggingToken = token.data?.loggingToken ?? null;
  const place = { base: location.origin, appId, loggingToken, resourceToken: null };
  return html`<section class="first-event" aria-label="First event">
    <div class="waiting"><i class="pulse"></i><span role="status">Waiting for the first event</span></div>
    <h2>Send the first event</h2>
    <p>${mayChange ? 'Paste one of these into a terminal or a program.' : 'A maintainer of the app can.'} The chart appears here by itself as soon as the event has arrived.</p>
    <${ProblemBox} problem=${app.problem} retry=${app.reload} />
    ${
      mayChange &&
      html`<${Waiting} for=${token} class="code-block" lines=${9} />
      ${
        (token.data ?? token.problem) &&
        html`<${Snippets} place=${place} groups=${['send']} />
      <details><summary>Or from a tool that sends already: Fluent Bit, OpenTelemetry, Filebeat and others</summary><${Snippets} place=${place} groups=${['producers']} /></details>`
      }
      <p class="hint">The logging token in it is this app’s own. Keep it on servers: anyone who has it can write. <code>typeName</code> makes an event type the first time it is used.</p>`
    }
  </section>`;
}
