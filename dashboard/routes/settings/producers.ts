/** The programs that write events: each with a token of its own, which is shown, rotated and revoked alone. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { NewProducer, Producer, ProducerList } from '../../../src/api-types/answers.ts';
import { call } from '../../api.ts';
import type { SectionProps } from '../../app-tab.ts';
import { Ago } from '../../components/ago.ts';
import { FormDialog } from '../../components/confirm.ts';
import { Field } from '../../components/field.ts';
import { Secret } from '../../components/secret.ts';
import { Section } from '../../components/section.ts';
import { rowButton, table } from '../../components/table.ts';
import { Waiting } from '../../components/waiting.ts';
import { count, ownDate } from '../../format.ts';
import { html } from '../../html.ts';
import { useAction } from '../../resource.ts';
import { Rotate } from './logging-token.ts';
import { useRevocation } from './revocation.ts';

const ABOUT = 'Give each program a token: you see who sends, and replace or end one alone.';

export function Producers(props: SectionProps<ProducerList>): VNode {
  const { app, resource } = props;
  const path = `/api/apps/${app.appId}/producers`;
  const { data } = resource;
  const [creating, setCreating] = useState(false);
  const [shown, setShown] = useState<NewProducer | null>(null);
  const [rotating, setRotating] = useState<Producer | null>(null);
  const [changed, revocation, problem] = useRevocation(path, props);
  const show = useAction(async ({ tokenId, name }: Producer) => {
    const { loggingToken } = await call<NewProducer>('GET', `${path}/${tokenId}/token`);
    setShown({ tokenId, name, loggingToken });
  });
  return html`<${Section} title="Producers" about=${ABOUT}>
    <${Waiting} for=${resource} lines=${3} />
    ${problem}
    ${
      data &&
      table(data.producers, {
        label: 'Producers',
        id: ({ tokenId }) => tokenId,
        isOver: ({ revokedAt }) => revokedAt !== null,
        columns: [
          ['Name', ({ name }) => name],
          ['First used', ({ firstUsedAt }) => (firstUsedAt === null ? 'never' : ownDate(firstUsedAt))],
          [
            'Last used',
            ({ lastUsedAt, revokedAt }) =>
              revokedAt === null ? html`<${Ago} at=${lastUsedAt} />` : `revoked ${ownDate(revokedAt)}`,
          ],
          ['Events a minute', ({ eventsPerMinute }) => count(eventsPerMinute), true],
          ['Refused in an hour', ({ refused }) => count(refused), true],
          [
            '',
            (one) =>
              html`${
                one.revokedAt === null &&
                html`${rowButton('Show', `the token of ${one.name}`, () => show.run(one))}
                  ${rowButton('Rotate…', `the token of ${one.name}`, () => setRotating(one))}`
              } ${revocation(one)}`,
          ],
        ],
      })
    }
    <div class="row-actions"><button class="button" onClick=${() => setCreating(true)}>New producer…</button></div>
    ${
      creating &&
      html`<${FormDialog} title="New producer" submit="Create" path=${path} said="The producer was created" onClose=${() => setCreating(false)} onDone=${(
        made: NewProducer,
      ) => {
        setShown(made);
        changed();
      }}><${Field} label="Name" name="name" maxlength="200" placeholder="checkout service" hint="What program it is." /><//>`
    }
    ${
      shown &&
      html`<${Secret} title=${`Logging token of ${shown.name}`} text=${shown.loggingToken} of="logging token" again="It writes events. Show has it again at any time." onClose=${() => setShown(null)}>
        <p>The program sends it as <code>loggingToken</code>: <b>Send and read</b> below has examples.</p>
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
