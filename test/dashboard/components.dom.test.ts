/**
 * What components make of what a user does, without a browser: names, values, states and requests. Layout, focus rings and what
 * browsers do themselves is for the tours with Chromium.
 */
// @vitest-environment happy-dom

import { render, type VNode } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { Problem } from '../../dashboard/api.ts';
import type { Drawing } from '../../dashboard/charts/drawing.ts';
import { chartCsv } from '../../dashboard/charts/table.ts';
import { Confirm } from '../../dashboard/components/confirm.ts';
import { DeclareField } from '../../dashboard/components/declare-field.ts';
import { ConfirmName, Field, Form, Select } from '../../dashboard/components/field.ts';
import { JsonTree } from '../../dashboard/components/json-tree.ts';
import { ProblemBox } from '../../dashboard/components/problem.ts';
import { Groups } from '../../dashboard/explore/cross-table.ts';
import { changed } from '../../dashboard/explore/explain.ts';
import { readArrivals } from '../../dashboard/explore/follow.ts';
import { count } from '../../dashboard/format.ts';
import { html } from '../../dashboard/html.ts';
import { useCatalog } from '../../dashboard/known-fields.ts';
import { forgetAll, useAction } from '../../dashboard/resource.ts';
import { BrowserKeys, scriptTag } from '../../dashboard/routes/settings/browser-keys.ts';

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

test('a confirmation makes its request by the button that names the action alone', async () => {
  const path = '/api/apps/app_1/fields/1';
  const sent = serve({ [`DELETE ${path}`]: [200, { success: true }] });
  const done: string[] = [];
  await show(html`<${Confirm} title="Remove the field" path=${path} said="The field is removed."
    onClose=${() => done.push('closed')} onDone=${() => done.push('removed')}>Its events stay.<//>`);
  expect(one('dialog').getAttribute('aria-label')).toBe('Remove the field');
  await press('Cancel');
  expect([done, sent]).toEqual([['closed'], []]);
  await press('Remove the field');
  expect(sent.map(([request]) => request)).toEqual([`DELETE ${path}`]);
  await expect.poll(() => done).toEqual(['closed', 'closed', 'removed']);
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
    ['"user.name"', '"A\\u0042"', true],
  ]);
});

test('a long list is shown in parts', async () => {
  await show(html`<${JsonTree} text=${JSON.stringify(Array.from({ length: 250 }, (_, n) => n))} />`);
  expect(all('.scalar')).toHaveLength(100);
  await press('More');
  expect(all('.scalar')).toHaveLength(250);
});

test('a menu of paths that are known has them at once, before they are asked for again', async () => {
  const fields = [{ path: 'order.country', examples: ['DE'] }];
  const sent = serve({ 'GET /api/apps/app_1/fields': [200, { success: true, data: { fields } }] });
  function Menu({ appId, isWanted }: { readonly appId: string; readonly isWanted: boolean }): VNode {
    const seen = useCatalog(appId, isWanted).data?.fields ?? [];
    return html`<ul>${seen.map(({ path }) => html`<li key=${path}>${path}</li>`)}</ul>`;
  }
  const shown = (): (string | null)[] => all('li').map(({ textContent }) => textContent);
  const menu = (appId: string, isWanted: boolean): Promise<void> =>
    show(html`<${Menu} appId=${appId} isWanted=${isWanted} />`);
  await menu('app_1', false);
  expect(shown()).toEqual([]);
  expect(sent).toEqual([]);
  await menu('app_1', true);
  await vi.waitFor(async () => {
    await act(() => undefined);
    expect(shown()).toEqual(['order.country']);
  });
  render(null, page);

  // Another page of the app, which asks for them later, and one of another app.
  await menu('app_1', false);
  expect(shown()).toEqual(['order.country']);
  await menu('app_2', false);
  expect(shown()).toEqual([]);
  expect(sent).toHaveLength(1);
  await menu('app_1', true);
  expect(shown()).toEqual(['order.country']);
  expect(sent).toHaveLength(2);
  // Whoever signs in next knows nothing.
  render(null, page);
  forgetAll();
  await menu('app_1', false);
  expect(shown()).toEqual([]);
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
  const body = { path: 'duration_ms', kind: 'number', typeName: 'order', by: null, backfill: true };
  expect(sent.at(0)).toEqual([types, null]);
  expect(sent.at(-1)).toEqual([declare, body]);
  await vi.waitFor(async () => {
    await act(() => undefined);
    expect(one('[role=alert]').textContent).toContain('Too many fields. Remove one first.');
  });
  expect(done).toEqual([]);

  answers[declare] = [200, { success: true, data: {} }];
  await submit();
  await vi.waitFor(() => expect(done).toEqual(['closed', 'done']));
});

describe('browser keys', () => {
  const app = { appId: 'app_1', name: 'Shop', role: 'maintainer', may: ['read', 'change'] };
  const path = '/api/apps/app_1/browser-keys';
  const key = {
    ...{ tokenId: 'tok_1', name: 'The shop', types: ['pageview', 'bought'], browserKey: 'tdb_one' },
    ...{
      origins: ['https://shop.example'],
      createdBy: null,
      createdAt: '2026-01-05T10:00:00Z',
      revokedAt: null,
    },
  };
  const revoked = {
    ...key,
    tokenId: 'tok_2',
    name: 'The old one',
    revokedAt: '2026-01-06T10:00:00Z',
    origins: [],
  };
  let changes: string[];
  const section = (keys: readonly object[]): VNode => {
    changes = [];
    const resource = {
      ...{ data: { keys }, problem: null, loading: false, isStale: false, replace: () => undefined },
      reload: () => changes.push('reload'),
    };
    return html`<${BrowserKeys} app=${app} resource=${resource} onChanged=${() => changes.push('changed')} />`;
  };
  const fill = (name: string, value: string): void => {
    one<HTMLInputElement>(`form [name=${name}]`).value = value;
  };

  test('are listed with what they may do; only those in force have buttons, named by their key, or can be restored', async () => {
    await show(
      section([key, revoked, { ...revoked, name: 'Of today', restorableUntil: '2026-01-07T10:00:00Z' }]),
    );
    const [first, second] = all('tbody tr').map(({ textContent }) => textContent);
    expect(first).toContain('pageview, bought');
    expect(first).toContain('https://shop.example');
    expect(first).toMatch(/(?:5 Jan|Jan 5,) 2026/);
    expect(second).toContain('none: no page may use it');
    expect(second).toMatch(/revoked (?:6 Jan|Jan 6,) 2026/);
    expect(all('tbody button').map((each) => each.getAttribute('aria-label'))).toEqual([
      'Script tag of The shop',
      'Revoke The shop',
      'Restore Of today',
    ]);
  });

  test('are created with a line for each type and origin; a refusal keeps what was typed', async () => {
    const refusal = { error: 'Invalid body', details: 'the origin has a path', code: 'INVALID_REQUEST' };
    const answers: Record<string, readonly [number, object]> = { [`POST ${path}`]: [400, refusal] };
    const sent = serve(answers);
    await show(section([]));
    await press('New browser key…');
    for (const [name, hint] of [
      ['types', 'One a line'],
      ['origins', 'without a path'],
    ] as const) {
      const described = one(`form [name=${name}]`).getAttribute('aria-describedby');
      expect(one(`#${CSS.escape(described ?? '')}`).textContent).toContain(hint);
    }
    fill('name', 'The shop');
    fill('types', ' bought \n\nclick\n');
    fill('origins', 'https://shop.example/cart\nhttps://m.shop.example');
    await submit();
    await vi.waitFor(async () => {
      await act(() => undefined);
      expect(one('dialog [role=alert]').textContent).toContain('the origin has a path');
    });
    expect(one<HTMLTextAreaElement>('form [name=origins]').value).toContain('/cart');
    answers[`POST ${path}`] = [201, { success: true, data: { tokenId: 'tok_3', browserKey: 'tdb_new' } }];
    fill('origins', 'https://shop.example');
    await submit();
    await vi.waitFor(async () => {
      await act(() => undefined);
      expect(one('dialog .copyable').textContent).toBe(
        `<script async src="${location.origin}/tidemark.js" data-key="tdb_new" data-clicks></script>`,
      );
    });
    expect(changes).toEqual(['reload', 'changed']);
    const body = { name: 'The shop', types: ['bought', 'click'] };
    expect(sent).toEqual([
      [`POST ${path}`, { ...body, origins: ['https://shop.example/cart', 'https://m.shop.example'] }],
      [`POST ${path}`, { ...body, origins: ['https://shop.example'] }],
    ]);
  });

  test('have a script tag that tracks what they may write, and are revoked at once', async () => {
    expect(scriptTag('https://events.example', key)).toBe(
      '<script async src="https://events.example/tidemark.js" data-key="tdb_one" data-page-views></script>',
    );
    const sent = serve({ [`DELETE ${path}/tok_1`]: [200, { success: true, data: {} }] });
    await show(section([key]));
    await press('Script tag');
    expect(one('dialog').getAttribute('aria-label')).toBe('Script tag of The shop');
    expect(page.textContent).toContain(`tidemark.track("pageview", { from: 'page' });`);
    await press('Close');
    await press('Revoke');
    await vi.waitFor(() => expect(changes).toEqual(['reload', 'changed']));
    expect(sent).toEqual([[`DELETE ${path}/tok_1`, {}]]);
  });
});

test('a table by two fields has a cell of its own for each value, whatever it looks like', async () => {
  const values = ['other', '(none)', 5, '5', null, 'null', true, '', 'plain'];
  const groups = values.flatMap((a, row) =>
    ['x', '5', 5].map((b, column) => ({ by: { a, b }, count: 10 * row + column + 1 })),
  );
  const line = {
    ...{ complete: true, counted: true, events: 100 },
    groups: [...groups, { other: true as const, count: 1_000 }, { by: { b: 'x' }, count: 2_000 }],
  };
  await show(html`<${Groups} line=${line} by=${['a', 'b']} stat=${null} what="Events" text=${count} />`);
  const rows = new Map(
    all('tbody tr').map((row) => [
      row.querySelector('th')?.textContent,
      [...row.querySelectorAll('td')].map((cell) => [cell.getAttribute('data-label'), cell.textContent]),
    ]),
  );
  expect([...rows.keys()].toSorted()).toEqual(
    [
      '"(none)"',
      '"5"',
      '"null"',
      '"other"',
      '""',
      '(none)',
      '5',
      'null',
      'other',
      'plain',
      'true',
    ].toSorted(),
  );
  expect(Object.fromEntries(rows.get('5') ?? [])).toMatchObject({
    x: '21',
    '"5"': '22',
    '5': '23',
    other: '–',
  });
  expect(Object.fromEntries(rows.get('"5"') ?? [])).toMatchObject({ x: '31', '"5"': '32', '5': '33' });
  expect(Object.fromEntries(rows.get('other') ?? [])).toMatchObject({ other: '1,000', x: '–' });
  expect(Object.fromEntries(rows.get('(none)') ?? [])).toMatchObject({ x: '2,000' });
});

test('a table of a statistic by one field has the highest first, with its unit', async () => {
  const group = (a: string, count: number, p95: number | null) => ({ by: { a }, count, of: { n: { p95 } } });
  const others = { other: true as const, count: 3, of: { n: { p95: null } } };
  const groups = [group('busy', 900, 5), group('none', 4, null), group('slow', 1, 70), others];
  const line = { complete: true, counted: true, events: 908, groups };
  const stat = { kind: 'stat', of: 'n', stat: 'p95' } as const;
  const text = (value: number): string => `${value} ms`;
  await show(html`<${Groups} line=${line} by=${['a']} stat=${stat} what="p95 of n" text=${text} />`);
  expect(all('tbody tr').map(({ textContent }) => textContent)).toEqual(['slow70 ms', 'busy5 ms', 'none–']);
});

test('a file of a chart has none of the digits that only a sum of doubles has', () => {
  const series = { starts: [0, 1], end: 2, interval: { from: 0, until: 2 } };
  const columns = () => [{ name: 'Sum', values: [0.1 + 0.2, null], text: String }];
  const drawing = { series, columns } as unknown as Drawing; // What a file is made of.
  expect(chartCsv(drawing).split('\r\n').slice(1, 3)).toEqual([
    '1970-01-01T00:00:00Z,1970-01-01T00:00:00.001Z,0.3',
    '1970-01-01T00:00:00.001Z,1970-01-01T00:00:00.002Z,',
  ]);
});

test('a share that has changed a lot is so many times as much, not a percentage of hardly anything', () => {
  const shares = [
    [0.5, 0.0005],
    [0.6, 0.4],
    [0.1, 0.4],
    [0.1, 0],
    [0, 0.1],
  ] as const;
  expect(shares.map(([partShare, restShare]) => changed({ partShare, restShare }))).toEqual([
    ...['1,000×', '+50%', '-75%'],
    ...['only here', 'not here'],
  ]);
});

test('arrivals are read page by page, and are too many beyond what a list takes', async () => {
  const row = (id: number): object => ({
    ...{ id: `evt_${id}`, typeId: 'typ_a', createdAt: '2026-01-05T00:00:00.000Z' },
    payload: {},
  });
  const page = (events: readonly object[], nextCursor: string | null): readonly [number, object] => [
    200,
    { success: true, data: { events, pagination: { nextCursor } } },
  ];
  // A slow search has nothing on its first page.
  serve({ 'GET /e?a': page([], 'c 1'), 'GET /e?a&cursor=c%201': page([row(2), row(1)], null) });
  expect((await readArrivals('/e?a'))?.map(({ id }) => id)).toEqual(['evt_2', 'evt_1']);
  const many = Array.from({ length: 1_500 }, (_, index) => row(index));
  serve({ 'GET /e?b': page(many, 'more'), 'GET /e?b&cursor=more': page(many, 'more') });
  expect(await readArrivals('/e?b')).toBeNull();
});
