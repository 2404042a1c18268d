/** Browser keys: made, listed with the script tag that a page needs, revoked. Such a key may be public, so it is always shown. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { App, BrowserKey, BrowserKeyList } from '../../../src/api-types/answers.ts';
import { call } from '../../api.ts';
import { Confirm } from '../../components/confirm.ts';
import { Copyable } from '../../components/copy.ts';
import { Dialog } from '../../components/dialog.ts';
import { Field, Form, linesOf } from '../../components/field.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { date } from '../../format.ts';
import { html } from '../../html.ts';
import { useAction } from '../../resource.ts';
import { notify } from '../../state.ts';
import { ownZone } from '../../time-zone.ts';
import type { SectionProps } from '../settings.ts';

const ABOUT =
  'For web pages that write events. A key may be public: it writes the types that it names, from the origins that it names, and reads nothing.';

type Key = Pick<BrowserKey, 'name' | 'types' | 'browserKey'>;

export function BrowserKeys({ app, resource, onChanged }: SectionProps<BrowserKeyList>): VNode {
  const path = `/api/apps/${app.appId}/browser-keys`;
  const { data, reload } = resource;
  const [creating, setCreating] = useState(false);
  const [shown, setShown] = useState<Key | null>(null);
  const [revoking, setRevoking] = useState<BrowserKey | null>(null);
  const changed = (): void => {
    reload();
    onChanged();
  };
  const revoke = useAction(async () => {
    await call('DELETE', `${path}/${revoking?.tokenId}`);
    notify('The key was revoked');
    setRevoking(null);
    changed();
  });
  return html`<${Section} title="Browser keys" about=${ABOUT}>
    <${Waiting} for=${resource} lines=${3} />
    ${data?.keys.length === 0 && html`<p class="hint">None yet.</p>`}
    ${data && data.keys.length > 0 && html`<${Keys} keys=${data.keys} onShow=${setShown} onRevoke=${setRevoking} />`}
    <div class="row-actions"><button type="button" class="button" onClick=${() => setCreating(true)}>New browser key…</button></div>
    ${
      creating &&
      html`<${NewKey} app=${app} path=${path} onClose=${() => setCreating(false)} onMade=${(made: Key) => {
        setCreating(false);
        setShown(made);
        changed();
      }} />`
    }
    ${shown && html`<${ScriptTag} of=${shown} onClose=${() => setShown(null)} />`}
    ${
      revoking &&
      html`<${Confirm} title="Revoke the key" action=${revoke} onClose=${() => setRevoking(null)}>Pages that use <b>${revoking.name}</b> can write no more events.<//>`
    }
  <//>`;
}

interface KeysProps {
  readonly keys: readonly BrowserKey[];
  readonly onShow: (key: BrowserKey) => void;
  readonly onRevoke: (key: BrowserKey) => void;
}

function Keys({ keys, onShow, onRevoke }: KeysProps): VNode {
  return html`<div class="scroll"><table class="list">
    <thead><tr><th scope="col">Name</th><th scope="col">Types</th><th scope="col">Origins</th><th scope="col">Created</th><th scope="col"><span class="sr-only">Actions</span></th></tr></thead>
    <tbody>${keys.map(
      (key) => html`<tr key=${key.tokenId} class=${key.revokedAt === null ? '' : 'ended'}>
        <th scope="row">${key.name}</th>
        <td class="wraps" data-label="Types">${key.types.join(', ')}</td>
        <td class="wraps" data-label="Origins">${key.origins.length === 0 ? 'none: no page may use it' : key.origins.join(', ')}</td>
        <td class="wraps" data-label="Created">${key.revokedAt === null ? dateOf(key.createdAt) : `revoked ${dateOf(key.revokedAt)}`}</td>
        <td class="number">${
          key.revokedAt === null &&
          html`${key.browserKey !== null && html`<button type="button" class="button quiet" aria-label=${`Script tag of ${key.name}`} onClick=${() => onShow(key)}>Script tag</button>`}
          <button type="button" class="button quiet" aria-label=${`Revoke ${key.name}`} onClick=${() => onRevoke(key)}>Revoke</button>`
        }</td>
      </tr>`,
    )}</tbody>
  </table></div>`;
}

const dateOf = (at: string): string => date(Date.parse(at), ownZone());

interface NewKeyProps {
  readonly app: App;
  readonly path: string;
  readonly onMade: (key: Key) => void;
  readonly onClose: () => void;
}

function NewKey({ app, path, onMade, onClose }: NewKeyProps): VNode {
  const action = useAction(async ({ name = '', types = '', origins = '' }: Record<string, string>) => {
    const body = { name, types: linesOf(types), origins: linesOf(origins) };
    const { browserKey } = await call<Pick<BrowserKey, 'browserKey'>>('POST', path, { body });
    notify('The key was created');
    onMade({ name, types: body.types, browserKey });
  });
  return html`<${Dialog} title="New browser key" onClose=${onClose}>
    <${Form} action=${action} submit="Create" onCancel=${onClose}>
      <${Field} label="Name" name="name" maxlength="200" placeholder=${app.name} hint="What page uses it." />
      <${Field} label="Event types" name="types" rows="3" defaultValue=${'pageview\nclick'} hint="One a line. A type that does not exist is created by its first event." />
      <${Field} label="Origins" name="origins" rows="2" required=${false} placeholder="https://shop.example" hint="One a line: scheme and host, without a path. Without any, no page may use the key." />
    <//>
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
    <div class="form-actions"><button type="button" class="button primary" onClick=${onClose}>Close</button></div>
  <//>`;
}

/** @param base the service's own address, which serves the script */
export function scriptTag(base: string, { types, browserKey }: Key): string {
  const tracked = `${types.includes('pageview') ? ' data-page-views' : ''}${types.includes('click') ? ' data-clicks' : ''}`;
  return `<script async src="${base}/tidemark.js" data-key="${browserKey}"${tracked}></script>`;
}
