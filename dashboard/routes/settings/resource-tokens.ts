/** Resource tokens: made, shown once, listed with their last use, revoked. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type {
  App,
  AppList,
  Member,
  NewResourceToken,
  ResourceToken,
  ResourceTokenList,
} from '../../../src/api-types/answers.ts';
import type { SectionProps } from '../../app-tab.ts';
import { Ago } from '../../components/ago.ts';
import { AppChoice } from '../../components/app-choice.ts';
import { FormDialog } from '../../components/confirm.ts';
import { Field, Select } from '../../components/field.ts';
import { Secret } from '../../components/secret.ts';
import { Section } from '../../components/section.ts';
import { Snippets } from '../../components/snippet-choice.ts';
import { table } from '../../components/table.ts';
import { Waiting } from '../../components/waiting.ts';
import { ownDate } from '../../format.ts';
import { html } from '../../html.ts';
import { useResource } from '../../resource.ts';
import { appsPath } from '../apps.ts';
import { useRevocation } from './revocation.ts';

const EXPIRY: readonly (readonly [string, string])[] = [
  ['90', 'in 90 days'],
  ['30', 'in 30 days'],
  ['365', 'in a year'],
  ['', 'never'],
];

export interface ResourceTokensProps extends SectionProps<ResourceTokenList> {
  /** Undefined where they could not be loaded. */
  readonly members: readonly Member[] | undefined;
}

export function ResourceTokens(props: ResourceTokensProps): VNode {
  const { app, resource, members } = props;
  const path = `/api/apps/${app.appId}/tokens`;
  const { data } = resource;
  const [creating, setCreating] = useState(false);
  const [made, setMade] = useState<string | null>(null);
  const [changed, revocation, problem] = useRevocation(path, props);
  return html`<${Section} title="Resource tokens" about="For tools that read events over HTTP. They cannot write.">
    <${Waiting} for=${resource} lines=${3} />
    ${problem}
    ${
      data &&
      table(data.tokens, {
        label: 'Resource tokens',
        id: ({ tokenId }) => tokenId,
        isOver,
        columns: [
          [
            'Name',
            ({ name, appIds }) =>
              html`${name}${appIds.length > 1 && html` <span class="badge">${appIds.length} apps</span>`}`,
          ],
          [
            'Created by',
            (token) =>
              html`${token.createdBy?.email ?? 'the command line'}${isOrphan(token, members) && html` <span class="badge">no longer a member</span>`}`,
          ],
          ['Last used', ({ lastUsedAt }) => html`<${Ago} at=${lastUsedAt} />`],
          ['Expires', expiryText],
          app.may.includes('change') && ['', revocation],
        ],
      })
    }
    ${app.may.includes('change') && html`<div class="row-actions"><button class="button" onClick=${() => setCreating(true)}>New resource token…</button></div>`}
    ${
      creating &&
      html`<${NewToken} app=${app} path=${path} onClose=${() => setCreating(false)} onDone=${({
        resourceToken,
      }: NewResourceToken) => {
        setMade(resourceToken);
        changed();
      }} />`
    }
    ${made && html`<${MadeToken} appId=${app.appId} text=${made} onClose=${() => setMade(null)} />`}
  <//>`;
}

/** Whether it is valid although its creator is no longer a member and may still know it. */
function isOrphan(token: ResourceToken, members: readonly Member[] | undefined): boolean {
  const maker = token.createdBy?.userId;
  return !(isOver(token) || maker === undefined || (members?.some(({ userId }) => userId === maker) ?? true));
}

/** Whether it has expired or was revoked. */
export function isOver({ revokedAt, expiresAt }: ResourceToken): boolean {
  return revokedAt !== null || (expiresAt !== null && Date.parse(expiresAt) < Date.now());
}

function expiryText({ revokedAt, expiresAt }: ResourceToken): string {
  if (revokedAt !== null) return `revoked ${ownDate(revokedAt)}`;
  return expiresAt === null ? 'never' : ownDate(expiresAt);
}

interface NewTokenProps {
  readonly app: App;
  readonly path: string;
  readonly onDone: (made: NewResourceToken) => void;
  readonly onClose: () => void;
}

function NewToken({ app, path, onDone, onClose }: NewTokenProps): VNode {
  const [chosen, setChosen] = useState<readonly string[]>([]);
  const others = useResource<AppList>(appsPath());
  const choices = (others.data?.apps ?? []).filter(({ appId }) => appId !== app.appId);
  const bodyOf = ({ name, expiresInDays }: Record<string, string>) => ({
    name,
    expiresInDays: expiresInDays ? Number(expiresInDays) : null,
    ...(chosen.length > 0 && { appIds: chosen }),
  });
  return html`<${FormDialog} title="New resource token" submit="Create" path=${path} body=${bodyOf} onDone=${onDone} onClose=${onClose}>
      <${Field} label="Name" name="name" maxlength="200" placeholder="Analytics" hint="What or who uses it." />
      <${Select} label="Expires" name="expiresInDays" options=${EXPIRY} />
      ${
        choices.length > 0 &&
        html`<details class="more">
          <summary>Let it read further apps${chosen.length > 0 && ` (${chosen.length})`}</summary>
          <${AppChoice} apps=${choices} chosen=${chosen} onChoose=${setChosen} />
        </details>`
      }
  <//>`;
}

interface MadeTokenProps {
  readonly appId: string;
  readonly text: string;
  readonly onClose: () => void;
}

function MadeToken({ appId, text, onClose }: MadeTokenProps): VNode {
  const place = { base: location.origin, appId, loggingToken: null, resourceToken: text };
  return html`<${Secret} title="The new resource token" text=${text} of="resource token" onClose=${onClose}><${Snippets} place=${place} groups=${['read']} /><//>`;
}
