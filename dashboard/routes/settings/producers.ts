/** The programs that write events: each with a token of its own, which is shown, rotated and revoked alone. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { NewProducer, Producer, ProducerList } from '../../../src/api-types/answers.ts';
import { call } from '../../api.ts';
import { Copyable } from '../../components/copy.ts';
import { Dialog } from '../../components/dialog.ts';
import { Field, Form } from '../../components/field.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { ago, count, date } from '../../format.ts';
import { html } from '../../html.ts';
import { useAction } from '../../resource.ts';
import { notify } from '../../state.ts';
import { ownZone } from '../../time-zone.ts';
import type { SectionProps } from '../settings.ts';
import { Rotate } from './logging-token.ts';

const ABOUT =
  'Give each program a logging token of its own: you see who sends, and replace or end one without the others. The limit of requests is that of the app.';

export function Producers({ app, resource, onChanged }: SectionProps<ProducerList>): VNode {
  const path = `/api/apps/${app.appId}/producers`;
  const { data, reload } = resource;
  const [creating, setCreating] = useState(false);
  const [shown, setShown] = useState<NewProducer | null>(null);
  const [rotating, setRotating] = useState<Producer | null>(null);
  const changed = (): void => {
    reload();
    onChanged();
  };
  const restore = useAction(async ({ tokenId, name }: Producer) => {
    await call('POST', `${path}/${tokenId}/restore`);
    notify(`${name} may write again`);
    changed();
  });
  const revoke = useAction(async (producer: Producer) => {
    await call('DELETE', `${path}/${producer.tokenId}`);
    notify(`${producer.name} was revoked`, () => void restore.run(producer));
    changed();
  });
  const show = useAction(async ({ tokenId, name }: Producer) => {
    const { loggingToken } = await call<NewProducer>('GET', `${path}/${tokenId}/token`);
    setShown({ tokenId, name, loggingToken });
  });
  return html`<${Section} title="Producers" about=${ABOUT}>
    <${Waiting} for=${resource} lines=${3} />
    ${
      data &&
      html`<div class="scroll"><table class="list" aria-label="Producers">
      <thead><tr><th scope="col">Name</th><th scope="col">First used</th><th scope="col">Last used</th><th scope="col" class="number">Events a minute</th><th scope="col" class="number">Refused in an hour</th><th scope="col"><span class="sr-only">Actions</span></th></tr></thead>
      <tbody>${data.producers.map(
        (one) => html`<tr key=${one.tokenId} class=${one.revokedAt === null ? '' : 'ended'}>
          <th scope="row">${one.name}</th>
          <td data-label="First used">${one.firstUsedAt === null ? 'never' : date(Date.parse(one.firstUsedAt), ownZone())}</td>
          <td data-label="Last used">${one.revokedAt !== null ? `revoked ${date(Date.parse(one.revokedAt), ownZone())}` : one.lastUsedAt === null ? 'never' : ago(Date.parse(one.lastUsedAt), Date.now())}</td>
          <td class="number" data-label="Events a minute">${count(one.eventsPerMinute)}</td>
          <td class="number" data-label="Refused in an hour">${count(one.refused)}</td>
          <td class="number">${
            one.revokedAt === null
              ? html`<button type="button" class="button quiet" aria-label=${`Show the token of ${one.name}`} onClick=${() => show.run(one)}>Show</button>
                <button type="button" class="button quiet" aria-label=${`Rotate the token of ${one.name}`} onClick=${() => setRotating(one)}>Rotate…</button>
                <button type="button" class="button quiet" aria-label=${`Revoke ${one.name}`} onClick=${() => revoke.run(one)}>Revoke</button>`
              : Date.now() - Date.parse(one.revokedAt) < 86_400_000 &&
                html`<button type="button" class="button quiet" aria-label=${`Restore ${one.name}`} onClick=${() => restore.run(one)}>Restore</button>`
          }</td>
        </tr>`,
      )}</tbody>
    </table></div>`
    }
    <div class="row-actions"><button type="button" class="button" onClick=${() => setCreating(true)}>New producer…</button></div>
    ${
      creating &&
      html`<${NewName} path=${path} onClose=${() => setCreating(false)} onMade=${(made: NewProducer) => {
        setCreating(false);
        setShown(made);
        changed();
      }} />`
    }
    ${
      shown &&
      html`<${Dialog} title=${`Logging token of ${shown.name}`} onClose=${() => setShown(null)}>
        <p>${shown.loggingToken === null ? 'It cannot be shown: it was sealed under another SECRET of the server. It still works.' : html`<${Copyable} text=${shown.loggingToken} label="Copy the logging token" />`}</p>
      <//>`
    }
    ${
      rotating &&
      html`<${Rotate} app=${app} path=${`${path}/${rotating.tokenId}/rotate`} onClose=${() => setRotating(null)} onRotated=${(
        loggingToken: string,
      ) => {
        setShown({ ...rotating, loggingToken });
        setRotating(null);
        changed();
      }} />`
    }
  <//>`;
}

interface NewNameProps {
  readonly path: string;
  readonly onMade: (made: NewProducer) => void;
  readonly onClose: () => void;
}

function NewName({ path, onMade, onClose }: NewNameProps): VNode {
  const action = useAction(async ({ name = '' }: Record<string, string>) => {
    onMade(await call<NewProducer>('POST', path, { body: { name } }));
    notify('The producer was created');
  });
  return html`<${Dialog} title="New producer" onClose=${onClose}>
    <${Form} action=${action} submit="Create" onCancel=${onClose}>
      <${Field} label="Name" name="name" maxlength="200" placeholder="checkout service" hint="What program it is." />
    <//>
  <//>`;
}
