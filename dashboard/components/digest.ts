/** The box that asks for the weekly mail of an app or a board. It is shown where there is a mail server. */
import type { VNode } from 'preact';
import type { DigestState } from '../../src/api-types/answers.ts';
import { call } from '../api.ts';
import { html } from '../html.ts';
import { useAction, useResource } from '../resource.ts';
import { notify } from '../state.ts';
import { ownZone } from '../time-zone.ts';
import { ProblemBox } from './problem.ts';
import { Section } from './section.ts';

/** @prop of the app's id, with `/boards/…` of a board */
export function WeeklyMail({ of }: { readonly of: string }): VNode | null {
  const path = `/api/account/digests/${of}`;
  const { data, reload } = useResource<DigestState>(path);
  const set = useAction(async (isWanted: boolean, now = false) => {
    await call(isWanted ? 'PUT' : 'DELETE', path, { body: { timezone: ownZone(), now } });
    if (now) notify('The mail of the last seven days is on its way');
    reload();
  });
  if (data?.sendsMail !== true) return null;
  return html`<${Section} title="Weekly mail">
    <label class="check"><input type="checkbox" checked=${data.digest !== null} disabled=${set.busy} onChange=${() => set.run(data.digest === null)} /><span>Send me the numbers of the week, every Monday at 08:00 ${data.digest?.timezone ?? ownZone()}</span></label>
    ${data.digest !== null && html`<button class="button" aria-disabled=${set.busy} onClick=${() => set.run(true, true)}>Send me one now</button>`}
    <${ProblemBox} problem=${set.problem} />
  <//>`;
}
