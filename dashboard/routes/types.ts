/** Event types: their identifiers for programs, and new ones. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { EventType } from '../answers.ts';
import { call } from '../api.ts';
import { Copyable } from '../components/copy.ts';
import { Field, Form } from '../components/field.ts';
import { matches, Search } from '../components/search.ts';
import { Waiting } from '../components/waiting.ts';
import { count, date } from '../format.ts';
import { html } from '../html.ts';
import { useAction, useResource } from '../resource.ts';
import { notify } from '../state.ts';
import { viewSearch } from '../url.ts';
import { useView } from '../view.ts';
import type { TabProps } from './app.ts';

/** Rows that are shown before "more": an app may have thousands of types. */
const ROWS = 200;
const SEARCH_FROM = 12;

export function TypesPage({ appId }: TabProps): VNode {
  const path = `/api/apps/${appId}/types`;
  const types = useResource<{ types: EventType[] }>(path);
  const { data, reload } = types;
  const [wanted, setWanted] = useState('');
  const [rows, setRows] = useState(ROWS);
  const { view } = useView();
  const create = useAction(async ({ name }: Record<string, string>, form: HTMLFormElement) => {
    await call('POST', path, { body: { name } });
    form.reset();
    notify('The event type was created');
    reload();
  });
  const found = data?.types.filter(({ name, typeId }) => matches(wanted, name, typeId));
  return html`<section aria-label="Event types">
    <div class="toolbar">
      <${Form} layout="row" action=${create} submit="Add the type"><${Field} label="New event type" name="name" maxlength="200" placeholder="order placed" /><//>
      <span class="spacer"></span>
      ${data && data.types.length >= SEARCH_FROM && html`<${Search} label="Find a type" onText=${setWanted} />`}
    </div>
    <${Waiting} for=${types} lines=${8} class="rows" />
    ${
      data?.types.length === 0 &&
      html`<div class="empty"><h2>No event types yet</h2><p>A type is a kind of event: <em>order placed</em>, <em>user signed up</em>. Make one here and send its identifier as <code>typeId</code>, or send a new name as <code>typeName</code> and it is made on the way.</p></div>`
    }
    ${
      found &&
      found.length > 0 &&
      html`<div class="scroll"><table class="list">
        <thead><tr><th scope="col">Name</th><th scope="col">Identifier</th><th scope="col" class="number">Events</th><th scope="col">Created</th></tr></thead>
        <tbody>${found.slice(0, rows).map(
          ({ typeId, name, createdAt, count: events }) => html`<tr key=${typeId}>
            <th scope="row"><a href=${`/apps/${appId}${viewSearch({ ...view, types: [typeId], hidden: [], solo: null, event: null })}`}>${name}</a></th>
            <td><${Copyable} text=${typeId} label=${`Copy the identifier of ${name}`} /></td>
            <td class="number">${count(events)}</td>
            <td>${date(Date.parse(createdAt), view.zone)}</td>
          </tr>`,
        )}</tbody>
      </table></div>`
    }
    ${found && found.length > rows && html`<div class="row-actions"><button type="button" class="button" onClick=${() => setRows(rows + ROWS)}>Show more of ${count(found.length)}</button></div>`}
    ${data && data.types.length > 0 && found?.length === 0 && html`<p class="hint" role="status">No type has this in its name.</p>`}
  </section>`;
}
