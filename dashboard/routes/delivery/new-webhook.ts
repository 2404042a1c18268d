/** A new webhook, and the secret of one that was made or rotated. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { NewWebhookAnswer } from '../../../src/api-types/answers.ts';
import { FORMAT_NAMES, type WebhookFormat } from '../../../src/base/webhook-formats.ts';
import { FormDialog } from '../../components/confirm.ts';
import { Field, linesOf, Select } from '../../components/field.ts';
import { Secret } from '../../components/secret.ts';
import { html } from '../../html.ts';

/** Whether a new one is typed, or the one whose secret is shown. */
export type Making = boolean | NewWebhookAnswer;

export interface WebhookDialogProps {
  /** Path of the app. */
  readonly path: string;
  readonly making: Making;
  readonly onStep: (making: Making) => void;
  /** Called when there is a new one. */
  readonly onMade: (made: NewWebhookAnswer) => void;
}

export function WebhookDialog({ path, making, onStep, onMade }: WebhookDialogProps): VNode | null {
  const [format, setFormat] = useState<WebhookFormat>('standard');
  const close = (): void => onStep(false);
  if (making === false) return null;
  if (making !== true)
    return html`<${Secret} title="Secret of the webhook" text=${making.secret} of="secret" onClose=${close}>
      <p>Receivers check the signatures by it; an earlier one signs as well for a day.</p>
    <//>`;
  const isStandard = format === 'standard';
  const bodyOf = ({ url, types = '', filter = '', order }: Record<string, string>) => ({
    ...{ url, format, types: linesOf(types), filter: linesOf(filter), unordered: order === 'none' },
  });
  const done = (made: NewWebhookAnswer): void => {
    onMade(made);
    if (isStandard) onStep(made);
  };
  return html`<${FormDialog} title="New webhook" submit="Add" path=${`${path}/webhooks`} body=${bodyOf} said="" onClose=${close} onDone=${done}>
      <${Select} label="Where to?" name="format" options=${Object.entries(FORMAT_NAMES)} chosen=${format} onChosen=${setFormat} hint=${!isStandard && 'It gets the messages of the alerts that name it. Try it with Test.'} />
      <${Field} label="Address" name="url" placeholder="https://example.com/hook" />
      ${
        isStandard &&
        html`<${Field} label="Event types" name="types" rows="2" required=${false} hint="One a line. Without any, it gets all." />
      <${Field} label="Filter" name="filter" rows="2" required=${false} placeholder="total>100" hint="One condition a line." />
      <${Select} label="Order" name="order" options=${[
        ['commit', 'In order: one event waits for the one before'],
        ['none', 'Without order: eight at once'],
      ]} />`
      }
  <//>`;
}
