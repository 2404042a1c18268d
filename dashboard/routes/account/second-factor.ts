/** Codes of an authenticator app as a second factor: turned on in three steps, with recovery codes, and off again. */

import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Enrollment, NewRecoveryCodes, SecondFactorState } from '../../../src/api-types/answers.ts';
import { call } from '../../api.ts';
import { Ago } from '../../components/ago.ts';
import { Callout } from '../../components/callout.ts';
import { Copyable, CopyButton } from '../../components/copy.ts';
import { Dialog } from '../../components/dialog.ts';
import { Field, Form } from '../../components/field.ts';
import { Section } from '../../components/section.ts';
import { Waiting } from '../../components/waiting.ts';
import { html } from '../../html.ts';
import { type Resource, useAction } from '../../resource.ts';
import { notify } from '../../state.ts';

/** What is open: a question for what entitles to the change, or what it has led to. */
type Step =
  | { readonly kind: 'begin' | 'renew' | 'off' }
  | { readonly kind: 'confirm'; readonly enrollment: Enrollment }
  | { readonly kind: 'codes'; readonly codes: readonly string[] };

export interface SecondFactorProps {
  readonly resource: Resource<SecondFactorState>;
  readonly onChanged: () => void;
}

export function SecondFactor({ resource, onChanged }: SecondFactorProps): VNode {
  const { data } = resource;
  const [step, setStep] = useState<Step | null>(null);
  const button = (label: string, kind: 'begin' | 'renew' | 'off'): VNode =>
    html`<button class="button" onClick=${() => setStep({ kind })}>${label}</button>`;
  const proceed = (next: Step | null): void => {
    setStep(next);
    if (next?.kind !== 'confirm') onChanged();
  };
  return html`<${Section} title="Second factor" about="A code from an authenticator app after the password.">
    <${Waiting} for=${resource} lines=${2} />
    ${data?.enabledAt === null && html`<p>Off. You sign in with your password only.</p>${button('Turn on…', 'begin')}`}
    ${
      data &&
      data.enabledAt !== null &&
      html`<p>On since <${Ago} at=${data.enabledAt} />. ${data.recoveryCodesLeft} of 10 recovery codes left.</p>
      ${data.recoveryCodeNeeded && html`<${Callout} tone="note">Too many wrong codes were entered by someone who knows your password: set a new one. The authenticator's codes are refused until a recovery code is used.<//>`}
      <div class="row-actions">${button('New recovery codes…', 'renew')}${button('Turn off…', 'off')}</div>`
    }
    ${step && html`<${StepDialog} key=${step.kind} step=${step} onStep=${proceed} onClose=${() => setStep(null)} />`}
  <//>`;
}

interface StepProps {
  readonly step: Step;
  /** Goes on; null: it is done. */
  readonly onStep: (next: Step | null) => void;
  readonly onClose: () => void;
}

function StepDialog({ step, onStep, onClose }: StepProps): VNode {
  if (step.kind === 'confirm')
    return html`<${Confirmation} enrollment=${step.enrollment} onStep=${onStep} onClose=${onClose} />`;
  if (step.kind === 'codes') return html`<${RecoveryCodes} codes=${step.codes} onStep=${onStep} />`;
  return html`<${Question} kind=${step.kind} onStep=${onStep} onClose=${onClose} />`;
}

const QUESTIONS = {
  begin: ['Turn on the second factor', 'Continue'],
  renew: ['New recovery codes', 'Make new codes'],
  off: ['Turn off the second factor', 'Turn off'],
} as const;

/** Asks for the password, and for a code where the second factor is on. */
function Question({
  kind,
  onStep,
  onClose,
}: Omit<StepProps, 'step'> & { readonly kind: keyof typeof QUESTIONS }): VNode {
  const [title, submit] = QUESTIONS[kind];
  const action = useAction(async (body: Record<string, string>) => {
    if (kind === 'begin') {
      onStep({ kind: 'confirm', enrollment: await call<Enrollment>('POST', '/api/second-factor', { body }) });
    } else if (kind === 'renew') {
      const { recoveryCodes } = await call<NewRecoveryCodes>('POST', '/api/second-factor/recovery-codes', {
        body,
      });
      onStep({ kind: 'codes', codes: recoveryCodes });
    } else {
      await call('DELETE', '/api/second-factor', { body });
      notify('Sign-ins need no code any more');
      onStep(null);
    }
  });
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${kind === 'renew' && html`<p>This invalidates your current recovery codes.</p>`}
    <${Form} action=${action} submit=${submit} danger=${kind === 'off'} onCancel=${onClose}>
      <${Field} label="Password" name="password" type="password" autocomplete="current-password" />
      ${kind !== 'begin' && html`<${CodeField} hint="Of the authenticator app, or a recovery code." />`}
    <//>
  <//>`;
}

function Confirmation({
  enrollment,
  onStep,
  onClose,
}: Omit<StepProps, 'step'> & { readonly enrollment: Enrollment }): VNode {
  const { secret, qr } = enrollment;
  const action = useAction(async (body: Record<string, string>) => {
    const { recoveryCodes } = await call<NewRecoveryCodes>('POST', '/api/second-factor/confirmation', {
      body,
    });
    notify('Sign-ins need a code from now on; all other sessions have ended');
    onStep({ kind: 'codes', codes: recoveryCodes });
  });
  return html`<${Dialog} title="Scan this with the authenticator app" onClose=${onClose}>
    <svg class="qr" role="img" aria-label="QR code of the secret below" viewBox=${`0 0 ${qr.size} ${qr.size}`}>
      <rect width="100%" height="100%" fill="white" /><path d=${qr.path} fill="black" />
    </svg>
    <p>Or enter this secret there: <${Copyable} text=${secret} label="Copy the secret" /></p>
    <${Form} action=${action} submit="Turn on" onCancel=${onClose}>
      <${CodeField} hint="The six digits that the app shows then." />
    <//>
  <//>`;
}

function RecoveryCodes({
  codes,
  onStep,
}: Pick<StepProps, 'onStep'> & { readonly codes: readonly string[] }): VNode {
  return html`<${Dialog} title="Recovery codes" locked onClose=${() => onStep(null)}>
    <p>Each works once instead of an authenticator code. Store them somewhere else: they are not shown again.</p>
    <ol class="recovery-codes">${codes.map((code) => html`<li key=${code}><code>${code}</code></li>`)}</ol>
    <div class="form-actions">
      <${CopyButton} text=${codes.join('\n')} label="Copy the recovery codes">Copy<//>
      <button class="button primary" data-first onClick=${() => onStep(null)}>I have stored them</button>
    </div>
  <//>`;
}

function CodeField({ hint }: { readonly hint: string }): VNode {
  return html`<${Field} label="Code" name="code" autocomplete="one-time-code" spellcheck=${false} hint=${hint} />`;
}
