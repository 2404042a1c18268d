/**
 * Checks the props of components: TypeScript sees nothing in the templates of htm. Each html`<${Field} label=${text} />` becomes a
 * call, $element(Field, { label: text }), in a copy of the dashboard in which everything keeps its line; tsc then says which prop is
 * missing, unknown or of another type.
 *
 * node lint/props.mjs [FOLDER]: the folder of the sources, by default dashboard
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { parseAst } from 'vite';

const ROOT = resolve(import.meta.dirname, '..');
const from = resolve(process.argv[2] ?? join(ROOT, 'dashboard'));
/** As far below its base as dashboard/ is below the project: shapes of answers are imported from src/. */
const base = join(ROOT, 'dist', `props-${process.pid}`);
const to = join(base, 'dashboard');

/** What calls are checked against. A component takes its children, a key and a ref from the template itself. */
const TYPES = `
type $Given<P> = Omit<P, 'children'> & { readonly children?: unknown; readonly key?: unknown; readonly ref?: unknown };
declare function $element<C extends (props: never) => unknown>(component: C, props: $Given<Parameters<C>[0]>): unknown;
declare function $html(...parts: unknown[]): import('preact').VNode;
`;

/** The text between two offsets, with its templates as calls. */
function translated(code, node, { start, end } = node) {
  let [text, at] = ['', start];
  for (const template of templatesIn(node).filter((one) => one.start >= start && one.end <= end)) {
    text += code.slice(at, template.start) + call(code, template);
    at = template.end;
  }
  return text + code.slice(at, end);
}

/** The outermost templates within a node, in order. */
function templatesIn(node, isInside = false) {
  if (typeof node !== 'object' || node === null) return [];
  if (isInside && node.type === 'TaggedTemplateExpression' && node.tag.name === 'html') return [node];
  return Object.values(node)
    .flatMap((part) => templatesIn(part, true))
    .sort((a, b) => a.start - b.start);
}

function call(code, { quasi: { quasis, expressions } }) {
  const template = new Template();
  for (const [index, quasi] of quasis.entries()) {
    template.text(quasi.value.raw);
    const expression = expressions[index];
    if (expression === undefined) continue;
    const isTemplate = expression.type === 'TaggedTemplateExpression' && expression.tag.name === 'html';
    template.skip(code.slice(quasi.end, expression.start));
    template.expression(isTemplate ? call(code, expression) : translated(code, expression));
    template.skip(code.slice(expression.end, quasis[index + 1].start));
  }
  return `$html(${template.parts.join(',')})`;
}

/** The grammar of htm, as far as the dashboard uses it. */
class Template {
  #parts = [];
  #isTag = false;
  #quote = '';
  #component = null;
  #props = [];
  /** What has been read of the attribute at hand. */
  #name = '';
  #value = null;
  /** Line breaks since the last part or prop, which keep the numbers of lines. */
  #lines = '';
  /** Line breaks before the tag at hand. */
  #before = '';

  get parts() {
    return [...this.#parts, `${this.#lines}''`];
  }

  text(text) {
    for (const [index, character] of [...text].entries()) {
      if (this.#quote !== '') {
        if (character === this.#quote) this.#quote = '';
        else this.#add(character);
      } else if (!this.#isTag) {
        if (character === '<') this.#open(text.slice(index + 1));
      } else if (character === '>') this.#close();
      else if (/[\s/]/.test(character)) this.#attribute();
      else if (this.#value !== null && /["']/.test(character)) this.#quote = character;
      else if (character === '=') this.#value = [];
      else if (this.#value !== null) this.#add(character);
      else this.#name += character;
      if (character === '\n') this.#lines += '\n';
    }
  }

  /** What stands around an expression within its braces. */
  skip(code) {
    this.#lines += code.replace(/[^\n]/g, '');
  }

  expression(code) {
    const value = `(${code})`;
    if (!this.#isTag) this.#push(this.#parts, value);
    else if (this.#value !== null) this.#value.push(value);
    else if (this.#name === '...') this.#name = `...${value}`;
    else if (this.#name === '' && this.#component === '') this.#component = code;
    else this.#push(this.#parts, value);
  }

  #open(rest) {
    this.#isTag = true;
    this.#before = this.#lines;
    this.#lines = '';
    this.#props = [];
    this.#name = '';
    this.#value = null;
    // A component's name comes as an expression.
    this.#component = rest === '' ? '' : null;
  }

  #attribute() {
    const name = this.#name;
    const value = this.#value;
    this.#name = '';
    this.#value = null;
    if (name.startsWith('...')) this.#push(this.#props, name);
    else if (name !== '' && (value !== null || this.#component !== null))
      this.#push(this.#props, `${JSON.stringify(name)}: ${valueText(value)}`);
  }

  #close() {
    this.#attribute();
    const props = `{${this.#props.join(',')}${this.#lines}}`;
    this.#parts.push(
      this.#before + (this.#component ? `$element(${this.#component}, ${props})` : `(${props})`),
    );
    this.#lines = '';
    this.#isTag = false;
  }

  /** A character of a literal. */
  #add(character) {
    const last = this.#value.at(-1);
    if (last?.startsWith('"'))
      this.#value[this.#value.length - 1] = JSON.stringify(JSON.parse(last) + character);
    else this.#value.push(JSON.stringify(character));
  }

  #push(list, part) {
    list.push(this.#lines + part);
    this.#lines = '';
  }
}

function valueText(value) {
  if (value === null) return 'true';
  if (value.length === 1) return value[0];
  return value.length === 0 ? '""' : `[${value.join(',')}].join("")`;
}

try {
  for (const path of readdirSync(from, { recursive: true }).filter((name) => name.endsWith('.ts'))) {
    const code = readFileSync(join(from, path), 'utf8');
    const target = join(to, path);
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(
      target,
      code.includes('html`')
        ? translated(code, parseAst(code, { lang: 'ts' }), { start: 0, end: code.length })
        : code,
    );
  }
  symlinkSync(join(ROOT, 'src'), join(base, 'src'));
  writeFileSync(join(to, 'props.d.ts'), TYPES);
  const options = {
    exactOptionalPropertyTypes: false,
    noUnusedLocals: false,
    noUnusedParameters: false,
    rootDir: ROOT,
  };
  const config = {
    extends: relative(to, join(ROOT, 'dashboard', 'tsconfig.json')),
    compilerOptions: options,
    include: ['.'],
    exclude: [],
  };
  writeFileSync(join(to, 'tsconfig.json'), JSON.stringify(config));
  const checked = spawnSync(join(ROOT, 'node_modules', '.bin', 'tsc'), ['-p', to], {
    cwd: to,
    encoding: 'utf8',
  });
  process.stdout.write(checked.stdout.replace(/^(?=\S)/gm, `${relative(process.cwd(), from) || '.'}/`));
  process.exitCode = checked.status === 0 ? 0 : 1;
} finally {
  rmSync(base, { recursive: true, force: true });
}
