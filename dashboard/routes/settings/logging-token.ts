/** The logging token: masked until it is asked for, and rotated without losing what is still being sent. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { App, LoggingToken } from '../../../src/api-types/answers.ts';
import type { SectionProps } from '../../app-tab.ts';
import { Callout } from '../../components/callout.ts';
import { FormDialog } from '../../components/confirm.ts';
import { CopyButton } from '../../components/copy.ts';
import { ConfirmName, Select } from '../../components/field.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { dateTime, ownDate } from '../../format.ts';
import { html } from '../../html.ts';
import { ownZone } from '../../time-zone.ts';

const ABOUT = 'Programs write with it. Keep it on servers: anyone who has it can write.';

export function LoggingTokenSection({ app, resource, onChanged }: SectionProps<LoggingToken>): VNode {
  const [shown, setShown] = useState(false);
  const [rotating, setRotating] = useState(false);
  const { data, reload } = resource;
  const until = data?.previousValidUntil ?? null;
  return html`<${Section} title="Logging token" about=${ABOUT}>
    <${Waiting} for=${resource} lines=${2} />
    ${data && html`<${TokenText} text=${data.loggingToken} shown=${shown} />`}
    ${
      data &&
      html`<div class="row-actions">
        ${
          data.loggingToken !== null &&
          html`<button class="button" aria-pressed=${shown} onClick=${() => setShown(!shown)}>${shown ? 'Hide' : 'Reveal'}</button>
          <${CopyButton} text=${data.loggingToken} label="Copy the logging token">Copy<//>`
        }
        <button class="button" onClick=${() => setRotating(true)}>Rotate…</button>
      </div>
      <p class="hint">
        ${data.createdAt !== null && html`Made on ${ownDate(data.createdAt)}.`}
        ${until !== null && Date.parse(until) > Date.now() && html` The previous one is accepted until ${dateTime(Date.parse(until), ownZone())}.`}
      </p>`
    }
    ${
      rotating &&
      html`<${Rotate} app=${app} path=${`/api/apps/${app.appId}/logging-token/rotate`} onClose=${() => setRotating(false)} onRotated=${() => {
        setRotating(false);
        setShown(true);
        reload();
        onChanged();
      }} />`
    }
  <//>`;
}

function TokenText({ text, shown }: { readonly text: string | null; readonly shown: boolean }): VNode {
  if (text === null) {
    return html`<${Callout} tone="note">It cannot be shown: it was sealed under another SECRET of the server. It still works.<//>`;
  }
  return html`<code class="token">${shown ? text : `${text.slice(0, 4)}${'•'.repeat(24)}`}</code>`;
}

interface RotateProps {
  readonly app: App;
  /** Path of the request. */
  readonly path: string;
  readonly onClose: () => void;
  readonly onRotated: (loggingToken: string) => void;
}

const GRACE: readonly (readonly [string, string])[] = [
  ['24', 'a day'],
  ['1', 'an hour'],
  ['168', 'a week'],
  ['0', 'no grace period: it stops working now'],
];

export function Rotate({ app, path, onClose, onRotated }: RotateProps): VNode {
  const [grace, setGrace] = useState(GRACE[0]?.[0]);
  const bodyOf = ({ graceHours, confirm = app.name }: Record<string, string>) => ({
    graceHours: Number(graceHours),
    confirm,
  });
  const intro = html`<p>Programs need the new token before the old one stops working.</p>`;
  return html`<${FormDialog} danger title="Rotate the logging token" submit="Rotate" path=${path} body=${bodyOf} said="The logging token was rotated" intro=${intro} onClose=${onClose}
    onDone=${({ loggingToken }: { readonly loggingToken: string }) => onRotated(loggingToken)}>
      <div onChange=${(event: Event) => event.target instanceof HTMLSelectElement && setGrace(event.target.value)}><${Select} label="The old token stays valid for" name="graceHours" options=${GRACE} /></div>
      ${grace === '0' && html`<${ConfirmName} name=${app.name} />`}
  <//>`;
}
