/** Templates that the build has compiled make the elements that htm makes of them. */
import { parseAst } from 'vite';
import { expect, test } from 'vitest';
import { compileTemplates, htm } from '../../dashboard/compile-templates.ts';

/** What Preact is given. */
const element = (type: unknown, props: unknown, ...children: unknown[]): unknown => [type, props, children];

const part = (): null => null;
const some = { id: 'a', title: 'from the spread' };
type Html = (texts: TemplateStringsArray, ...values: unknown[]) => unknown;

/** What the templates of the dashboard are made of, and what none has yet. */
const TEMPLATES: readonly ((html: Html, name: string, list: readonly number[]) => unknown)[] = [
  (html, name) => html`<p class="a ${name} b" data-x=${name}>one ${name}, three</p>`,
  (html, name) => html`<button type=button disabled title=${name}>it’s “quoted”, \\ and ${1 + 1}</button>`,
  (html) => html`<${part} ...${some} title="later" />`,
  (html) => html`<${part} title="earlier" ...${some}><b>child</b><//>`,
  (html, _, list) =>
    html`<ul>${list.map((n) => html`<li key=${n}>${n > 1 ? html`<i>${n}</i>` : 'none'}</li>`)}</ul>`,
  (html) => html`<table><tr><th scope="col">a</th><td colspan=${2}>c</td></tr></table>`,
  (html) => html`<p>
    indented
    <b> kept </b>
  </p>`,
  (html, name) => html`<a href="/">one</a> and ${name}<b></b>`,
  (html, name) => html`${name}`,
  (html) => html`<svg viewBox="0 0 1 1" aria-hidden="true"><rect width=${1} /></svg>`,
  (html, _, list) => [html`<i />`, [html`<b x=${list.length > 1 ? 1 : 2} />`]],
];

test.each(TEMPLATES.map((template) => [String(template), template] as const))('%s', (code, template) => {
  const compiled = compileTemplates(code, parseAst(code), 'element');
  expect(compiled).not.toContain('html`');
  const run: unknown = new Function('element', 'part', 'some', `return ${compiled}`)(element, part, some);
  const given = ['two', [1, 2]] as const;
  expect((run as typeof template)(() => 'not compiled', ...given)).toEqual(
    template(htm.bind(element), ...given),
  ); // It is the same function.
});
