/** For how long events are kept, and erasures of events. A change says first what it takes. */
import type { VNode } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type {
  ErasureMatch,
  Erasures,
  EventTypeList,
  RetentionAnswer,
  RetentionPreview,
} from '../../../src/api-types/answers.ts';
import { useAddress } from '../../address.ts';
import type { SectionProps } from '../../app-tab.ts';
import { FormDialog, type FormDialogProps } from '../../components/confirm.ts';
import { CopyButton } from '../../components/copy.ts';
import { Field, linesOf, Select } from '../../components/field.ts';
import { Section } from '../../components/section.ts';
import { table } from '../../components/table.ts';
import { Waiting } from '../../components/waiting.ts';
import { count, counted, ownDate } from '../../format.ts';
import { type Children, html } from '../../html.ts';
import { type Resource, useResource } from '../../resource.ts';
import { typesPath } from '../../view.ts';

type Values = Record<string, string>;
type Asked = readonly [answer: never, body: never];

interface PartProps {
  readonly title: string;
  readonly resource: Pick<Resource<unknown>, 'data' | 'problem' | 'reload'>;
  readonly list: Children;
  /** The button's label, and the dialogs' title; empty: nothing can be changed. */
  readonly change: string;
  /** Asks what a change would take. */
  readonly ask: Partial<FormDialogProps>;
  /** Whether it is asked at once. */
  readonly isAsked?: boolean;
  /** Makes it: who asks knows the type of the answer. */
  readonly make: (...asked: Asked) => Partial<FormDialogProps>;
  readonly path: string;
  readonly onChanged: () => void;
}

function Part({
  title,
  path,
  resource,
  list,
  change,
  ask,
  isAsked = false,
  make,
  onChanged,
}: PartProps): VNode {
  const [asked, setAsked] = useState<Asked | boolean>(isAsked);
  const common = { title: change, path, onClose: () => setAsked(false) };
  const changed = (): void => {
    resource.reload();
    onChanged();
  };
  return html`<${Section} title=${title}>
    <${Waiting} for=${resource} lines=${3} />
    ${list}
    ${change && html`<div class="row-actions"><button class="button" onClick=${() => setAsked(true)}>${change}…</button></div>`}
    ${asked === true && html`<${FormDialog} submit="Preview" onDone=${(...answered: Asked) => setAsked(answered)} ...${common} ...${ask} />`}
    ${typeof asked === 'object' && html`<${FormDialog} danger submit=${change} onDone=${changed} ...${common} ...${make(...asked)} />`}
  <//>`;
}

/** What is proposed. */
const DAYS = ['7', '30', '90', '365', 'forever', 'default'];

export function Retention({ app, resource, onChanged }: SectionProps<RetentionAnswer>): VNode {
  const types = useResource<EventTypeList>(typesPath(app.appId)).data?.types;
  return html`<${Part}
    title="Retention"
    path=${`/api/apps/${app.appId}/retention`}
    onChanged=${onChanged}
    change=${app.may.includes('own') ? 'Change retention' : ''}
    resource=${resource}
    list=${
      resource.data &&
      table(resource.data.rules, {
        label: 'Retention by type',
        id: ({ typeId }) => `${typeId}`,
        columns: [
          ['Type', ({ typeName }) => typeName ?? 'All others'],
          ['Days', ({ days }) => days],
          // Days are those of UTC.
          ['Readable from', ({ readableFrom }) => readableFrom?.slice(0, 10)],
        ],
      })
    }
    ask=${{
      method: 'PUT',
      body: ({ type, days }: Values) => ({ type: type || null, days, dryRun: true }),
      children: html`<${Field} label="Type" name="type" required=${false} placeholder="all that have no days of their own" list="retention-types" />
        <datalist id="retention-types">${types?.map(({ name }) => html`<option key=${name} value=${name} />`)}</datalist>
        <${Field} label="Days" name="days" placeholder="90" list="retention-days" hint="A number, forever or default." />
        <datalist id="retention-days">${DAYS.map((days) => html`<option key=${days} value=${days} />`)}</datalist>`,
    }}
    make=${(
      { hidden }: RetentionPreview,
      { type, days, ...body }: { type: string | null; days: string },
    ) => ({
      method: 'PUT',
      body: () => ({ ...body, type, days, dryRun: false }),
      intro: html`<p>Events of <b>${type ?? 'all types that have no days of their own'}</b> would be kept for <b>${/^\d+$/.test(days) ? counted(Number(days), 'day') : days === 'default' ? 'the default time' : 'ever'}</b>: ${counted(hidden, 'event')} would go.</p>`,
    })}
  />`;
}

/** How often what runs is asked for again. */
const WATCH_MS = 2_000;

const ACTIONS: readonly (readonly [string, string])[] = [
  ['', 'Remove the events'],
  ['yes', 'Anonymize: replace these values by pseudonyms'],
];

export function Erasure({ app, resource, onChanged }: SectionProps<Erasures>): VNode {
  const { data, reload } = resource;
  const { erase } = useAddress().query;
  useEffect(() => {
    if (!data?.erasures.some(({ receipt }) => receipt === null)) return;
    const timer = setTimeout(reload, WATCH_MS);
    return () => clearTimeout(timer);
  }, [data]);
  return html`<${Part}
    title="Erasure"
    path=${`/api/apps/${app.appId}/erasures`}
    onChanged=${onChanged}
    change="Erase events"
    isAsked=${erase !== undefined}
    resource=${resource}
    list=${
      data &&
      table(data.erasures, {
        label: 'Erasure',
        id: ({ erasureId }) => erasureId,
        columns: [
          ['Asked', ({ askedAt }) => ownDate(askedAt)],
          ['Reason', ({ reason }) => reason],
          [
            'Events',
            ({ action, state, erased }) =>
              `${counted(erased, 'event')} ${action}d${state === 'running' ? ' so far' : ''}`,
          ],
          ['', (one) => html`<${CopyButton} text=${JSON.stringify(one)} label="Copy the receipt" />`],
        ],
      })
    }
    ask=${{
      body: ({ filter = '', reason, anonymize }: Values) => ({
        ...{ filter: linesOf(filter), reason, anonymize: anonymize !== '', dryRun: true },
      }),
      children: html`<${Field} label="Conditions" name="filter" rows="3" defaultValue=${erase} placeholder="user.id:42" hint="One a line." />
        <${Select} label="What to do" name="anonymize" options=${ACTIONS} />
        <${Field} label="Reason" name="reason" required=${false} />`,
    }}
    make=${({ matching, total }: ErasureMatch, body: { readonly anonymize: boolean }) => ({
      ...(body.anonymize && { submit: 'Anonymize events' }),
      intro: html`<p>${counted(matching, 'event')} of ${count(total)} match${matching * 2 > total && ': more than half of the app'}.</p>`,
      body: ({ password }: Values) => ({ ...body, password, most: matching * 2 > total, dryRun: false }),
      children: html`<${Field} label="Password" name="password" type="password" autocomplete="current-password" />`,
    })}
  />`;
}
