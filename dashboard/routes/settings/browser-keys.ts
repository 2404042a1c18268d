/** Browser keys: made, listed with the script tag that a page needs, revoked. Such a key may be public, so it is always shown. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { App, BrowserKey, BrowserKeyList } from '../../../src/api-types/answers.ts';
import type { SectionProps } from '../../app-tab.ts';
import { FormDialog } from '../../components/confirm.ts';
import { Copyable } from '../../components/copy.ts';
import { Dialog } from '../../components/dialog.ts';
import { Field, linesOf } from '../../components/field.ts';
import { Section } from '../../components/section.ts';
import { rowButton, table } from '../../components/table.ts';
import { Waiting } from '../../components/waiting.ts';
import { ownDate } from '../../format.ts';
import { html } from '../../html.ts';
import { useRevocation } from './revocation.ts';

const ABOUT =
  'For web pages. A key may be public: it only writes, the types and from the origins that it names.';

type Key = Pick<BrowserKey, 'name' | 'types' | 'browserKey'>;

export function BrowserKeys(props: SectionProps<BrowserKeyList>): VNode {
  const { app, resource } = props;
  const path = `/api/apps/${app.appId}/browser-keys`;
  const { data } = resource;
  const [creating, setCreating] = useState(false);
  const [shown, setShown] = useState<Key | null>(null);
  const [changed, revocation, problem] = useRevocation(path, props);
  return html`<${Section} title="Browser keys" about=${ABOUT}>
    <${Waiting} for=${resource} lines=${3} />
    ${problem}
    ${
      data &&
      table(data.keys, {
        label: 'Browser keys',
        id: ({ tokenId }) => tokenId,
        isOver: ({ revokedAt }) => revokedAt !== null,
        columns: [
          ['Name', ({ name }) => name],
          ['Types', ({ types }) => types.join(', ')],
          ['Origins', ({ origins }) => origins.join(', ') || 'none: no page may use it'],
          [
            'Created',
            ({ createdAt, revokedAt }) =>
              revokedAt === null ? ownDate(createdAt) : `revoked ${ownDate(revokedAt)}`,
          ],
          [
            '',
            (key) =>
              html`${key.revokedAt === null && key.browserKey !== null && rowButton('Script tag', `of ${key.name}`, () => setShown(key))} ${revocation(key)}`,
          ],
        ],
      })
    }
    <div class="row-actions"><button class="button" onClick=${() => setCreating(true)}>New browser key…</button></div>
    ${
      creating &&
      html`<${NewKey} app=${app} path=${path} onClose=${() => setCreating(false)} onMade=${(made: Key) => {
        setShown(made);
        changed();
      }} />`
    }
    ${shown && html`<${ScriptTag} of=${shown} onClose=${() => setShown(null)} />`}
  <//>`;
}

interface NewKeyProps {
  readonly app: App;
  readonly path: string;
  readonly onMade: (key: Key) => void;
  readonly onClose: () => void;
}

function NewKey({ app, path, onMade, onClose }: NewKeyProps): VNode {
  const bodyOf = ({ name = '', types = '', origins = '' }: Record<string, string>) => ({
    ...{ name, types: linesOf(types), origins: linesOf(origins) },
  });
  return html`<${FormDialog} title="New browser key" submit="Create" path=${path} body=${bodyOf} said="The key was created" onClose=${onClose}
    onDone=${({ browserKey }: BrowserKey, { name, types }: ReturnType<typeof bodyOf>) => onMade({ name, types, browserKey })}>
      <${Field} label="Name" name="name" maxlength="200" placeholder=${app.name} hint="What page uses it." />
      <${Field} label="Event types" name="types" rows="3" defaultValue=${'pageview\nclick'} hint="One a line. A type that does not exist is created by its first event." />
      <${Field} label="Origins" name="origins" rows="2" required=${false} placeholder="https://shop.example" hint="One a line: scheme and host, without a path. Without any, no page may use the key." />
  <//>`;
}

/** What a page needs. The tag tracks by itself what the key may write of that. */
function ScriptTag({ of: key, onClose }: { readonly of: Key; readonly onClose: () => void }): VNode {
  const tag = scriptTag(location.origin, key);
  const event = `tidemark.track(${JSON.stringify(key.types[0])}, { from: 'page' });`;
  return html`<${Dialog} title=${`Script tag of ${key.name}`} onClose=${onClose}>
    <p>Put this into the <code>head</code> of your pages:</p>
    <${Copyable} text=${tag} label="Copy the script tag" />
    <p>Then a script can write events as well:</p>
    <${Copyable} text=${event} label="Copy the call" />
    <div class="form-actions"><button class="button primary" onClick=${onClose}>Close</button></div>
  <//>`;
}

/** @param base the service's own address, which serves the script */
export function scriptTag(base: string, { types, browserKey }: Key): string {
  const tracked = `${types.includes('pageview') ? ' data-page-views' : ''}${types.includes('click') ? ' data-clicks' : ''}`;
  return `<script async src="${base}/tidemark.js" data-key="${browserKey}"${tracked}></script>`;
}
