/** An app without events: how to send the first one, until it is there. */
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { App, LoggingToken } from '../answers.ts';
import { html } from '../html.ts';
import { type Resource, useResource } from '../resource.ts';
import { CopyButton } from './copy.ts';
import { ProblemBox } from './problem.ts';
import { snippets } from './snippets.ts';
import { Waiting } from './waiting.ts';

const POLL_MS = 2_000;
/** Placeholder in a snippet if the token cannot be shown. */
const PLACEHOLDER = 'YOUR_LOGGING_TOKEN';

export interface FirstEventProps {
  readonly appId: string;
  readonly app: Resource<App>;
}

export function FirstEvent({ appId, app }: FirstEventProps): VNode {
  const token = useResource<LoggingToken>(`/api/apps/${appId}/logging-token`);
  const [shown, setShown] = useState(0);
  usePolling(app);
  const all = snippets(location.origin, token.data?.loggingToken ?? PLACEHOLDER);
  const snippet = all[shown];
  return html`<section class="first-event" aria-label="First event">
    <div class="waiting"><i class="pulse"></i><span role="status">Waiting for the first event</span></div>
    <h2>Send the first event</h2>
    <p>Paste one of these into a terminal or a program on your server. The chart appears here by itself as soon as the event has arrived.</p>
    <${ProblemBox} problem=${app.problem} retry=${app.reload} />
    <${Waiting} for=${token} class="code-block" lines=${9} />
    ${
      (token.data ?? token.problem) &&
      html`<div class="snippets">
            <div class="row-actions"><fieldset class="segmented">
              <legend class="sr-only">Language</legend>
              ${all.map(({ name }, index) => html`<label><input type="radio" name="language" checked=${index === shown} onChange=${() => setShown(index)} /><span>${name}</span></label>`)}
            </fieldset><span class="spacer"></span><${CopyButton} text=${snippet?.text ?? ''} label="Copy the snippet">Copy<//></div>
            <pre class="code-block" tabindex="0" aria-label=${snippet?.name}><code>${snippet?.text}</code></pre>
          </div>`
    }
    <p class="hint">The logging token in it is this app’s own. Keep it on servers: anyone who has it can write events. <code>typeName</code> makes an event type the first time it is used.</p>
  </section>`;
}

/** Asks for the app until it has an event; the page then turns into the chart. */
function usePolling(app: Resource<App>): void {
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden && !app.loading) app.reload();
    }, POLL_MS);
    return () => clearInterval(timer);
  }, [app.loading]);
}
