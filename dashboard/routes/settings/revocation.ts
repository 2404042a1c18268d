/** Revokes tokens at once, and restores them: by Undo of the notice, or in the list for as long as the server allows it. */
import type { VNode } from 'preact';
import { call } from '../../api.ts';
import { ProblemBox } from '../../components/problem.ts';
import { rowButton } from '../../components/table.ts';
import { html } from '../../html.ts';
import { type Resource, useAction } from '../../resource.ts';
import { notify } from '../../state.ts';

interface Revocable {
  readonly tokenId: string;
  readonly name: string;
  readonly revokedAt: string | null;
  readonly restorableUntil?: string;
}

/** @param path of the tokens @returns what a change of the list calls, the button of a row, and why the last change failed */
export function useRevocation(
  path: string,
  {
    resource,
    onChanged,
  }: { readonly resource: Pick<Resource<never>, 'reload'>; readonly onChanged: () => void },
): readonly [changed: () => void, button: (one: Revocable) => VNode | null, problem: VNode] {
  const changed = (): void => {
    resource.reload();
    onChanged();
  };
  const restore = useAction(async ({ tokenId, name }: Revocable) => {
    await call('POST', `${path}/${tokenId}/restore`);
    notify(`${name} was restored`);
    changed();
  });
  const revoke = useAction(async (one: Revocable) => {
    restore.clear();
    await call('DELETE', `${path}/${one.tokenId}`);
    notify(`${one.name} was revoked`, () => void restore.run(one));
    changed();
  });
  return [
    changed,
    (one) =>
      one.revokedAt === null
        ? rowButton('Revoke', one.name, () => revoke.run(one))
        : one.restorableUntil === undefined
          ? null
          : rowButton('Restore', one.name, () => restore.run(one)),
    html`<${ProblemBox} problem=${revoke.problem ?? restore.problem} />`,
  ];
}
