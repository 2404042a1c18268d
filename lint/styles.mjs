/**
 * Checks that class names are scoped by component. The sheets in style/ declare what every component may use. Any other sheet stands
 * beside one component and has its name (legend.css beside legend.ts), and then:
 *
 * - a component uses no class that neither its own sheet nor style/ declares;
 * - a sheet declares no class that its component does not use, and style/ none that fewer than two components use;
 * - each selector of a component's sheet has a class that no other sheet has, so that it cannot reach another component by its name;
 * - a name that sheets share (.legend .name, .tooltip .name) is used by no component that is rendered inside;
 * - style.css imports each sheet.
 *
 * node lint/styles.mjs [FOLDER]: the folder of the sources, by default dashboard
 */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join, normalize, relative, resolve } from 'node:path';
import { parseAst } from 'vite';

const root = resolve(process.argv[2] ?? join(import.meta.dirname, '..', 'dashboard'));
const files = readdirSync(root, { recursive: true });
const read = (path) => readFileSync(join(root, path), 'utf8');
const problems = [];
const complain = (path, text) => problems.push(`${relative(process.cwd(), join(root, path))}: ${text}`);

/** The selectors of a style sheet, those within @media too. */
function selectorsOf(css) {
  const text = css.replace(/\/\*[\s\S]*?\*\//g, '').replace(/"[^"]*"/g, '""');
  const selectors = [];
  const blocks = [];
  let start = 0;
  for (const [index, character] of [...text].entries()) {
    if (character === '{') {
      const prelude = text.slice(start, index).trim();
      if (!prelude.startsWith('@') && !blocks.some((block) => block.startsWith('@keyframes')))
        selectors.push(...listed(prelude));
      blocks.push(prelude);
    } else if (character === '}') blocks.pop();
    if ('{};'.includes(character)) start = index + 1;
  }
  return selectors;
}

/** The parts of a list of selectors, whose commas are those outside of parentheses. */
function listed(prelude) {
  const parts = [''];
  let depth = 0;
  for (const character of prelude) {
    if (character === '(') depth += 1;
    if (character === ')') depth -= 1;
    if (character === ',' && depth === 0) parts.push('');
    else parts.push(parts.pop() + character);
  }
  return parts.map((part) => part.trim());
}

const classesIn = (selector) => [...selector.matchAll(/\.([a-z][\w-]*)/gi)].map(([, name]) => name);

/** The nodes of a syntax tree that a test holds for. */
function find(node, test, found = []) {
  if (typeof node !== 'object' || node === null) return found;
  if (test(node)) found.push(node);
  for (const part of Object.values(node)) find(part, test, found);
  return found;
}

/** Stands for an expression within a class name: a number. */
const NUMBER = '\0';

/** The classes that a file gives to elements: names, or beginnings that end with NUMBER. */
class Uses {
  #program;
  #path;
  names = new Set();

  constructor(path, code) {
    this.#path = path;
    this.#program = parseAst(code, { lang: 'ts' });
    const templates = find(
      this.#program,
      ({ type, tag }) => type === 'TaggedTemplateExpression' && tag.name === 'html',
    );
    for (const { quasi } of templates) this.#template(quasi);
    const assigned = find(
      this.#program,
      ({ type, left }) => type === 'AssignmentExpression' && left.property?.name === 'className',
    );
    for (const { right } of assigned) this.#add(right);
  }

  /** Whether a class may be one of those. */
  has(name) {
    return [...this.names].some((used) => isUseOf(used, name));
  }

  #template({ quasis, expressions }) {
    for (const [index, { value }] of quasis.entries()) {
      for (const [, names] of value.raw.matchAll(/\sclass="([^"]*)"/g)) this.#text(names);
      if (/\sclass="[^"]*$/.test(value.raw))
        complain(
          this.#path,
          'has a class of text and expressions in quotes: write one template literal, for this check to read',
        );
      if (/\sclass=$/.test(value.raw)) this.#add(expressions[index]);
    }
  }

  #text(text) {
    for (const name of text.split(/\s+/)) if (name !== '' && name !== NUMBER) this.names.add(name);
  }

  #add(expression) {
    for (const text of this.#texts(expression)) this.#text(text);
  }

  /** The texts that an expression may have. */
  #texts(node) {
    if (node.type === 'Literal') return [typeof node.value === 'string' ? node.value : ''];
    if (node.type === 'ConditionalExpression')
      return [...this.#texts(node.consequent), ...this.#texts(node.alternate)];
    if (node.type === 'LogicalExpression') return [...this.#texts(node.left), ...this.#texts(node.right)];
    if (node.type === 'TemplateLiteral') {
      const between = node.expressions.flatMap((part) =>
        part.type === 'ConditionalExpression' ? this.#texts(part) : [],
      );
      return [node.quasis.map(({ value }) => value.raw).join(NUMBER), ...between];
    }
    if (node.type === 'Identifier') return this.#named(node.name);
    return this.#unknown();
  }

  /** Texts of a variable, or of a function's parameter by the calls in the file. A prop `class` is read where it is given. */
  #named(name) {
    const variables = find(
      this.#program,
      ({ type, id }) => type === 'VariableDeclarator' && id.name === name,
    );
    if (variables.length > 0) return variables.flatMap(({ init }) => this.#texts(init));
    for (const { id, params } of find(this.#program, ({ type }) => type === 'FunctionDeclaration')) {
      if (params.some((param) => isClassProp(param, name))) return [];
      const position = params.findIndex((param) => param.name === name);
      if (position < 0) continue;
      return this.#callsOf(id.name).flatMap(({ arguments: given }) =>
        given[position].name === name ? [] : this.#texts(given[position]),
      );
    }
    return this.#unknown();
  }

  #callsOf(name) {
    return find(this.#program, ({ type, callee }) => type === 'CallExpression' && callee.name === name);
  }

  #unknown() {
    complain(this.#path, 'has a class that this check cannot read: write its names where it is used');
    return [];
  }
}

const isClassProp = ({ type, properties }, name) =>
  type === 'ObjectPattern' &&
  properties.some(
    ({ key, value }) => key?.name === 'class' && (value.name === name || value.left?.name === name),
  );

/** Whether a use, which may have numbers that are only known at run time, is of a class. */
const isUseOf = (used, name) => used === name || used === name.replace(/\d+/g, NUMBER);

const components = new Map(
  files.filter((path) => path.endsWith('.ts')).map((path) => [path, new Uses(path, read(path))]),
);
const sheets = files
  .filter((path) => path.endsWith('.css') && path !== 'style.css' && !path.startsWith('docs/'))
  .map((path) => ({ path, selectors: selectorsOf(read(path)) }))
  .map((sheet) => ({ ...sheet, classes: new Set(sheet.selectors.flatMap(classesIn)) }));
const isShared = ({ path }) => path.startsWith('style/');
const shared = new Set(sheets.filter(isShared).flatMap(({ classes }) => [...classes]));
const own = sheets.filter((sheet) => !isShared(sheet));
for (const { classes } of own) for (const name of shared) classes.delete(name);
const sheetsOf = (name) => own.filter(({ classes }) => classes.has(name));

/** The components that a component imports, and those that they do. */
function inside(path, known = new Set()) {
  for (const [, imported, later] of read(path).matchAll(
    /^(?:import|export)\b[^;]*?from '(\.[^']+\.ts)'|import\('(\.[^']+\.ts)'\)/gm,
  )) {
    const target = normalize(join(dirname(path), imported ?? later));
    if (known.has(target) || !components.has(target)) continue;
    known.add(target);
    inside(target, known);
  }
  return known;
}

for (const name of shared) {
  const users = [...components.values()].filter((uses) => uses.has(name)).length;
  if (users < 2)
    complain('style', `.${name} is used by ${users} components: only what several use belongs here`);
}
for (const { path, selectors, classes } of own) {
  const component = path.replace(/css$/, 'ts');
  const uses = components.get(component);
  if (uses === undefined) {
    complain(path, `no component ${basename(component)} stands beside it`);
    continue;
  }
  for (const name of classes) {
    if (!uses.has(name)) complain(path, `.${name} is not used by ${basename(component)}`);
    if (sheetsOf(name).length === 1) continue;
    for (const other of inside(component))
      if (other !== component && components.get(other).has(name))
        complain(
          path,
          `.${name} would also reach ${other}, which is rendered inside: give it a name of its own`,
        );
  }
  for (const selector of selectors)
    if (!classesIn(selector).some((name) => classes.has(name) && sheetsOf(name).length === 1))
      complain(path, `${selector} has no class that is this sheet's alone`);
  if (/^(?!.*\bimport\b).*\$\{children\}/m.test(read(component)))
    for (const name of classes)
      if (sheetsOf(name).length > 1) complain(path, `.${name} would also reach the component's children`);
}
for (const [path, { names }] of components) {
  const sheet = own.find((one) => one.path === path.replace(/ts$/, 'css'));
  for (const name of names) {
    const declared = [...shared, ...(sheet?.classes ?? [])];
    if (!declared.some((one) => isUseOf(name, one)))
      complain(
        path,
        `.${name.replaceAll(NUMBER, '…')} is declared neither by style/ nor by ${basename(path).replace(/ts$/, 'css')}`,
      );
  }
}
const imports = new Set([...read('style.css').matchAll(/@import "\.\/([^"]+)"/g)].map(([, path]) => path));
for (const { path } of sheets) if (!imports.has(path)) complain('style.css', `does not import ${path}`);

for (const problem of problems) console.log(problem);
process.exitCode = problems.length === 0 ? 0 : 1;
