/** An error next to what failed: message, details, a retry button, and the request id for the operator. */
import type { VNode } from 'preact';
import type { Problem } from '../api.ts';
import { html } from '../html.ts';
import { CopyButton } from './copy.ts';

export interface ProblemProps {
  readonly problem: Problem | null;
  readonly retry?: () => void;
}

export function ProblemBox({ problem, retry }: ProblemProps): VNode | null {
  if (problem === null) return null;
  const { message, details, status, requestId, retryAfterSeconds } = problem;
  return html`<div class="problem" role="alert">
    <div>
      <strong>${message}.</strong> ${details}
      ${retryAfterSeconds !== null && html` Try again in ${retryAfterSeconds} s.`}
      ${
        // What the user can correct is not in the operator's log.
        status >= 500 &&
        requestId !== null &&
        html`<div class="request-id">Request <code>${requestId}</code><${CopyButton} text=${requestId} label="Copy the request id" /></div>`
      }
    </div>
    ${retry && html`<button class="button" onClick=${retry}>Try again</button>`}
  </div>`;
}
