/**
 * What components make of what a user does, without a browser: names, values, states and requests. Layout, focus rings and what
 * browsers do themselves is for the tours with Chromium.
 */
// @vitest-environment happy-dom
import { render, type VNode } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Problem } from '../../dashboard/api.ts';
import { Confirm } from '../../dashboard/components/confirm.ts';
import { DeclareField } from '../../dashboard/components/declare-field.ts';
import { ConfirmName, Field, Form, Select } from '../../dashboard/components/field.ts';
import { JsonTree } from '../../dashboard/components/json-tree.ts';
import { ProblemBox } from '../../dashboard/components/problem.ts';
import { html } from '../../dashboard/html.ts';
import { useAction } from '../../dashboard/resource.ts';

let page: HTMLElement;
beforeEach(() => {
  page = document.createElement('main');
  document.body.append(page);
});
afterEach(() => {
  render(null, page);
  page.remove();
});

const show = (node: VNode): Promise<void> => act(() => render(node, page));
const all = (selector: string): HTMLElement[] => [...page.querySelectorAll<HTMLElement>(selector)];

function one<E extends HTMLElement = HTMLElement>(selector: string): E {
  const found = page.querySelector<E>(selector);
  if (found === null) throw new Error(`nothing matches ${selector}`);
  return found;
}

function button(label: string): HTMLButtonElement {
  const found = all('button').find((each) => each.textContent?.trim() === label);
  if (found === undefined)
    throw new Error(`no button ${label} among ${all('button').map((b) => b.textContent)}`);
  return found as HTMLButtonElement; // Its selector says so.
}

const press = (label: string): Promise<void> => act(async () => button(label).click());

const submit = (): Promise<void> =>
  act(async () => {
    one('form').dispatchEvent(new Event('submit', { bubbles: true, cancelable: true }));
  });

/** The requests that a page sends, and what each is answered. */
function serve(
  answers: Readonly<Record<string, readonly [status: number, body: object]>>,
): [string, unknown][] {
  const sent: [string, unknown][] = [];
  globalThis.fetch = async (path, init) => {
    const key = `${init?.method ?? 'GET'} ${String(path)}`;
    sent.push([key, init?.body === undefined ? null : JSON.parse(String(init.body))]);
    const [status, body] = answers[key] ?? [404, { error: 'Not found', details: key, code: 'NOT_FOUND' }];
    return new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json' } });
  };
  return sent;
}

test('a field is named by its label, and described by its hint', async () => {
  await show(
    html`<${Field} label="Path" name="path" hint="With dots." /><${Field} label="Other" name="other" />`,
  );
  const [path, other] = all('input');
  expect(one('label').getAttribute('for')).toBe(path?.id);
  expect(one(`#${CSS.escape(path?.getAttribute('aria-describedby') ?? '')}`).textContent).toBe('With dots.');
  expect(other?.hasAttribute('aria-describedby')).toBe(false);
  expect(other?.id).not.toBe(path?.id);
});

test('a form hands over its values by their names, once, and says what failed', async () => {
  const sent: Record<string, string>[] = [];
  let refuse: (problem: Problem) => void = () => undefined;
  const answered = new Promise<void>((_, reject) => {
    refuse = reject;
  });
  function Page(): VNode {
    const action = useAction(async (values: Record<string, string>) => {
      sent.push(values);
      await answered;
    });
    return html`<${Form} action=${action} submit="Save">
      <${Field} label="Name" name="name" defaultValue="Shop" />
      <${Select} label="Role" name="role" options=${[['owner', 'Owner'], ['viewer', 'Viewer']]} chosen="viewer" />
    <//>`;
  }
  await show(html`<${Page} />`);
  await submit();
  await submit();
  expect(sent).toEqual([{ name: 'Shop', role: 'viewer' }]);
  expect(button('Save').getAttribute('aria-disabled')).toBe('true');

  await act(() => refuse(new Problem('Name taken', { status: 409, details: 'Choose another one.' })));
  await vi.waitFor(async () => {
    await act(() => undefined);
    expect(one('[role=alert]').textContent).toContain('Name taken. Choose another one.');
  });
  expect(button('Save').getAttribute('aria-disabled')).toBe('false');
});

test('a confirmation acts by the button that names the action alone', async () => {
  const done: string[] = [];
  function Page(): VNode {
    const action = useAction(async () => {
      done.push('removed');
    });
    return html`<${Confirm} title="Remove the field" action=${action} onClose=${() => done.push('closed')}>Its events stay.<//>`;
  }
  await show(html`<${Page} />`);
  expect(one('dialog').getAttribute('aria-label')).toBe('Remove the field');
  await press('Cancel');
  expect(done).toEqual(['closed']);
  await press('Remove the field');
  expect(done).toEqual(['closed', 'removed']);
});

test('a name is confirmed exactly as it is, whatever characters it has', async () => {
  const name = 'a.b (c) [d] $1|{2}^\\?*+/';
  await show(html`<${ConfirmName} name=${name} />`);
  const pattern = new RegExp(`^(?:${one<HTMLInputElement>('input').pattern})$`, 'v');
  expect(pattern.test(name)).toBe(true);
  expect(pattern.test('axb (c) [d] $1|{2}^\\?*+/')).toBe(false);
});

test('a failure names the request to look for only where the server failed', async () => {
  const problem = (status: number) =>
    new Problem('Failed', { status, requestId: 'abc-1', retryAfterSeconds: 7 });
  await show(html`<${ProblemBox} problem=${problem(400)} />`);
  expect(page.textContent).not.toContain('abc-1');
  expect(page.textContent).toContain('Try again in 7 s.');
  let retries = 0;
  await show(html`<${ProblemBox} problem=${problem(503)} retry=${() => (retries += 1)} />`);
  expect(page.textContent).toContain('abc-1');
  await press('Try again');
  expect(retries).toBe(1);
  await show(html`<${ProblemBox} problem=${null} />`);
  expect(page.textContent).toBe('');
});

test('a tree shows JSON as it was spelled, opens on demand, and filters by a value', async () => {
  const filters: unknown[] = [];
  const text = '{"n": 1e400, "user.name": "A\\u0042", "items": [{"id": 1}, {"id": 20}], "none": {}}';
  await show(html`<${JsonTree} text=${text} onFilter=${(...given: unknown[]) => filters.push(given)} />`);
  expect(all('.scalar').map(({ textContent }) => textContent)).toEqual(['1e400', '"A\\u0042"']);
  const items = all('button.fold').find(({ textContent }) => textContent?.includes('items'));
  expect(items?.getAttribute('aria-expanded')).toBe('false');
  await act(async () => items?.click());
  const second = all('button.fold').find(({ textContent }) => textContent?.includes('20'));
  await act(async () => second?.click());
  await press('20');
  await press('Filter by it');
  await press('20');
  await press('"A\\u0042"');
  await press('Exclude');
  expect(filters).toEqual([
    ['items.id', '20', false],
    ['"user.name"', 'AB', true],
  ]);
});

test('a long list is shown in parts', async () => {
  await show(html`<${JsonTree} text=${JSON.stringify(Array.from({ length: 250 }, (_, n) => n))} />`);
  expect(all('.scalar')).toHaveLength(100);
  await press('More');
  expect(all('.scalar')).toHaveLength(250);
});

test('a field is declared with the type, the kind and the earlier events that were chosen; a refusal keeps the dialog', async () => {
  const types = 'GET /api/apps/app_1/types';
  const declare = 'POST /api/apps/app_1/declared-fields';
  const refusal = { error: 'Too many fields', details: 'Remove one first.', code: 'TOO_MANY_FIELDS' };
  const answers: Record<string, readonly [number, object]> = {
    [types]: [200, { success: true, data: { types: [{ name: 'order' }, { name: '' }] } }],
    [declare]: [400, refusal],
  };
  const sent = serve(answers);
  const done: string[] = [];
  await show(
    html`<${DeclareField} appId="app_1" path="duration_ms" typeName=${null} onDone=${() => done.push('done')} onClose=${() => done.push('closed')} />`,
  );
  const select = (name: string): HTMLSelectElement => one<HTMLSelectElement>(`select[name=${name}]`);
  const offered = (): string[] => [...select('type').options].map(({ text }) => text);
  await vi.waitFor(async () => {
    await act(() => undefined);
    expect(offered()).toEqual(['All types', 'order', '']);
  });
  expect(one<HTMLInputElement>('input[name=path]').value).toBe('duration_ms');
  select('kind').value = 'number';
  select('type').value = '=order';
  await submit();
  const body = { path: 'duration_ms', kind: 'number', typeName: 'order', backfill: true };
  expect(sent).toEqual([
    [types, null],
    [declare, body],
  ]);
  await vi.waitFor(async () => {
    await act(() => undefined);
    expect(one('[role=alert]').textContent).toContain('Too many fields. Remove one first.');
  });
  expect(done).toEqual([]);

  answers[declare] = [200, { success: true, data: {} }];
  await submit();
  await vi.waitFor(() => expect(done).toEqual(['closed', 'done']));
});
