/** Why the way back from the OIDC issuer led to this page. The log explains each code. */
import type { VNode } from 'preact';
import { useAddress } from '../address.ts';
import { callText } from '../api.ts';
import { html } from '../html.ts';
import { useResource } from '../resource.ts';

/** A code and its text a line. A file of its own, for scripts are what every visit waits for. */
const FILE = new URL('../issuer-problems.txt', import.meta.url).href;

export function IssuerProblem(): VNode | null {
  const code = useAddress().query.problem;
  const { data } = useResource<string>(code ? FILE : null, {
    load: (signal) => callText('GET', FILE, { signal }),
  });
  const text = data?.split('\n').find((line) => line.split(' ')[0] === code);
  return text ? html`<p class="problem" role="alert">${text.slice(text.indexOf(' '))} (${code})</p>` : null;
}
