/** Shares of a view or a board: made, with a link that is shown once, listed and revoked. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { NewShare, ShareCollection, ShareEntry } from '../../src/api-types/answers.ts';
import { OWN_RANGES } from '../../src/base/view.ts';
import { rangeName } from '../format.ts';
import { html } from '../html.ts';
import { type Range, rangeText, resolveRange } from '../range.ts';
import { useResource } from '../resource.ts';
import { now } from '../state.ts';
import { Ago } from './ago.ts';
import { Confirm, FormDialog } from './confirm.ts';
import { Copyable } from './copy.ts';
import { Dialog } from './dialog.ts';
import { Field, linesOf, Select } from './field.ts';
import { rowButton, table } from './table.ts';
import { Waiting } from './waiting.ts';

export interface ShareDialogProps {
  readonly appId: string;
  /** The field of what is shared, and its id. */
  readonly of: readonly ['viewId' | 'boardId', string];
  readonly name: string;
  readonly range: Range;
  /** Whether each view of a board is shown in its own. */
  readonly hasOwn?: boolean;
  readonly zone: string;
  /** Conditions of the page that are shared too. */
  readonly filters?: readonly string[];
  readonly onClose: () => void;
}

const SHOWN = { none: 'charts', times: 'charts, times of events', payloads: 'charts and events' };

export function ShareDialog({
  appId,
  of,
  name,
  range,
  hasOwn = false,
  zone,
  filters,
  onClose,
}: ShareDialogProps): VNode {
  const path = `/api/apps/${appId}/shares`;
  const shares = useResource<ShareCollection>(path);
  const [open, setOpen] = useState<ShareEntry | 'new' | null>(null);
  const [made, setMade] = useState({ url: '', password: '' });
  const [field, id] = of;
  const back = (): void => setOpen(null);
  if (open === 'new') {
    const { from, to } = resolveRange(range, now.value, zone);
    const dates: Range | null = from === null ? null : { kind: 'between', from, to };
    const texts = (range.kind === 'between' || dates === null ? [range] : [range, dates]).map(rangeText);
    const ranges = hasOwn ? [OWN_RANGES] : field === 'boardId' ? [...texts, OWN_RANGES] : texts;
    const bodyOf = ({ password, endsAt = '', origins = '', ...values }: Record<string, string>) => ({
      ...{ ...values, [field]: id, timezone: zone, filters, password: password || undefined },
      ...{ endsAt: endsAt === '' ? undefined : new Date(endsAt).toISOString(), origins: linesOf(origins) },
    });
    return html`<${FormDialog} title=${`Share ${name}`} submit="Make the link" path=${path} body=${bodyOf} said="The link was made" onClose=${back} onDone=${(
      { url }: NewShare,
      { password = '' }: ReturnType<typeof bodyOf>,
    ) => {
      setMade({ url, password });
      shares.reload();
    }}>
      <${Select} label="Range" name="range" options=${ranges.map((one) => [one, rangeName(one, zone)])} />
      ${field === 'viewId' && html`<${Select} label="Shows" name="list" options=${Object.entries(SHOWN)} />`}
      <${Field} label="Password" name="password" minlength="8" required=${false} hint="Optional, for all viewers." />
      <${Field} label="Ends" name="endsAt" type="datetime-local" required=${false} />
      <${Field} label="Sites that may embed it" name="origins" rows="2" required=${false} placeholder="https://intranet.example" hint="One a line. They add ?embed=true to the link." />
    <//>`;
  }
  if (open !== null)
    return html`<${Confirm} title="Revoke the share" path=${`${path}/${open.shareId}`} said="The share was revoked" onDone=${shares.reload} onClose=${back}>Nobody sees <b>${name}</b> by its link any more.<//>`;
  return html`<${Dialog} title=${`Shares of ${name}`} onClose=${onClose}>
    ${made.url && html`<p>Anyone with this link${made.password && ' and the password'} sees it. It is shown once:</p><${Copyable} text=${made.url} label="Copy the link" />`}
    <${Waiting} for=${shares} lines=${3} />
    ${
      shares.data &&
      table(
        shares.data.shares.filter((share) => share[field] === id),
        {
          label: 'Shares',
          id: ({ shareId }) => shareId,
          isOver: ({ isAllowed, endsAt }) =>
            !isAllowed || (endsAt !== null && Date.parse(endsAt) <= Date.now()),
          columns: [
            ['Made', ({ createdAt, createdBy }) => html`<${Ago} at=${createdAt} /> by ${createdBy}`],
            [
              'Shows',
              ({ list, range, timezone, hasPassword }) =>
                `${rangeName(range, timezone)}: ${SHOWN[list]}${hasPassword ? ', password' : ''}`,
            ],
            ['Ends', ({ endsAt }) => (endsAt === null ? 'never' : html`<${Ago} at=${endsAt} />`)],
            ['', (share) => rowButton('Revoke', SHOWN[share.list], () => setOpen(share))],
          ],
        },
      )
    }
    <div class="form-actions"><button class="button primary" onClick=${() => setOpen('new')}>New share…</button></div>
  <//>`;
}
