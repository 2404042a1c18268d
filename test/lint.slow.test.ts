/** What `npm run check` finds beyond types and form: each rule on code that it must refuse, and on code that it must let be. */
import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const LINTER = join(ROOT, 'node_modules', '.bin', 'oxlint');

/** Code by what is wrong with it, and the rule that says so. */
const REFUSED: readonly (readonly [string, string, string])[] = [
  [
    'an expression that tries each split of a text',
    'regexp(no-super-linear-backtracking)',
    'export const bad = (text: string): boolean => /^(?:a+)+$/.test(text);',
  ],
  [
    'an expression that begins again at each blank of a header',
    'regexp(no-super-linear-move)',
    'export const bad = (header: string): string[] => header.split(/\\s*;\\s*/);',
  ],
  [
    'an expression that is not known before it runs',
    'tidemark(no-computed-regexp)',
    'export const bad = (text: string): RegExp => new RegExp(text);',
  ],
  [
    'a socket without a listener for its errors',
    'tidemark(error-listeners)',
    `import { Socket } from 'node:net';
     export const bad = (): Socket => { const socket = new Socket(); return socket.connect(1, '10.0.0.1'); };`,
  ],
  [
    'a socket that gets its listener only once it is connected',
    'tidemark(error-listeners)',
    `import { connect } from 'node:net';
     import { once } from 'node:events';
     export async function bad(): Promise<void> {
       const socket = connect(1);
       await once(socket, 'connect');
       socket.on('error', () => undefined);
     }`,
  ],
  [
    'a stream that listens for its first error alone',
    'tidemark(error-listeners)',
    `import { createReadStream as read } from 'node:fs';
     export function bad(): void { const stream = read('x'); stream.once('error', () => undefined); }`,
  ],
  [
    'a listener of another function',
    'tidemark(error-listeners)',
    `import pg from 'pg';
     export function bad(): void { const client = new pg.Client(); void client.connect(); }
     export function good(): void { const client = new pg.Client(); client.on('error', () => undefined); }`,
  ],
  [
    'a child process that nobody keeps',
    'tidemark(error-listeners)',
    `import { spawn } from 'node:child_process';
     export const bad = (): void => { spawn('true').unref(); };`,
  ],
];

const FINE = `
  import { spawn } from 'node:child_process';
  import { createReadStream } from 'node:fs';
  import { connect, type Socket } from 'node:net';
  import { pipeline } from 'node:stream/promises';
  import { createGunzip, type Gunzip } from 'node:zlib';
  export class Fine {
    readonly #gunzip: Gunzip = createGunzip();
    readonly #socket: Socket;
    constructor() {
      this.#gunzip.on('error', () => undefined);
      this.#socket = this.#watched(connect(1));
    }
    #watched(socket: Socket): Socket {
      socket.on('error', () => undefined);
      return socket;
    }
    get port(): number | undefined {
      return this.#socket.remotePort;
    }
  }
  export async function fine(): Promise<void> {
    const child = spawn('true');
    child.on('error', () => undefined);
    await pipeline(createReadStream('x'), createGunzip(), process.stdout);
  }
  export const words = (text: string): string[] => text.split(/[ \\t]/).filter((one) => /^[a-z]+$/.test(one));
`;

/** The rules that each file breaks, by its place in the list. */
const broken = new Map<number, string[]>();

beforeAll(async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-lint-'));
  try {
    for (const [index, code] of [...REFUSED.map(([, , code]) => code), FINE].entries())
      await writeFile(join(folder, `${index}.ts`), code);
    const rules = join(ROOT, '.oxlintrc.json');
    const { stdout } = spawnSync(LINTER, ['-c', rules, '--format', 'json', '--deny-warnings', folder], {
      encoding: 'utf8',
    });
    const { diagnostics } = JSON.parse(stdout) as { diagnostics: { code: string; filename: string }[] };
    for (const { code, filename } of diagnostics) {
      const file = Number.parseInt(basename(filename), 10);
      broken.set(file, [...(broken.get(file) ?? []), code]);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});

test.each(REFUSED.map(([what, rule], index) => [what, rule, index] as const))(
  '%s is refused',
  (_, rule, index) => {
    expect(broken.get(index)).toEqual([rule]);
  },
);

test('what listens, and expressions that take linear time, are let be', () => {
  expect(broken.get(REFUSED.length)).toBeUndefined();
});

test('`npm run check` runs these rules over everything that meets input', async () => {
  const { scripts } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
  expect(scripts.check).toMatch(/ && oxlint --deny-warnings src client dashboard /);
});

test('props of components in templates: what is missing, unknown or of another type, with its line', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-props-'));
  const page = (markup: string): string => `import type { VNode } from 'preact';
    declare const html: (strings: TemplateStringsArray, ...values: unknown[]) => VNode;
    interface FieldProps { readonly label: string; readonly most?: number; readonly onPick?: (value: number) => void; readonly children?: unknown }
    declare function Field(props: FieldProps): VNode;
    export const page = html\`<div class="a">
      <p title=\${'text'}>\${[1].map((n) => html\`<i>\${n}</i>\`)}</p>
      ${markup}
    </div>\`;`;
  const good = `<\${Field} key=\${1} label=\${'a'} ...\${{ most: 2 }} onPick=\${(n) => n.toFixed()}>more<//><\${Field} label="b" />`;
  const pages: Record<string, string> = {
    good,
    missing: `<\${Field} most=\${2} />`,
    unknown: `<\${Field} label="a" lable="b" />`,
    another: `<\${Field}\n        label="a"\n        most="2"\n      />`,
    nested: `\${
        [1].map((n) => html\`<\${Field} label=\${n} />\`)
      }
      <\${Field} label=\${2} />`,
  };
  try {
    for (const [name, markup] of Object.entries(pages))
      await writeFile(join(folder, `${name}.ts`), page(markup));
    const { stdout, status } = spawnSync(process.execPath, [join(ROOT, 'lint', 'props.mjs'), folder], {
      cwd: folder,
      encoding: 'utf8',
    });
    expect(status).toBe(1);
    const found = stdout.split('\n').filter((line) => line.includes('error'));
    expect(found.map((line) => line.replace(/^\.\/(\w+)\.ts\((\d+),.*/s, '$1 $2')).toSorted()).toEqual([
      'another 9',
      'missing 7',
      'nested 10',
      'nested 8',
      'unknown 7',
    ]);
    expect(stdout).toContain("'label'");
    expect(stdout).toContain('"lable"');
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('class names of components: each sheet declares what its component uses, and nothing of it reaches another', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-styles-'));
  const good: Record<string, string> = {
    'style.css': '@import "./style/all.css";\n@import "./card.css";\n@import "./chip.css";\n',
    'style/all.css': '.button { color: red }\n.c0, .c1 { color: blue }\n',
    'card.css': '.card { color: red }\n@media print { .card .name, a.card:hover { color: black } }\n',
    'card.ts': `import { Chip } from './chip.ts';
      export const Card = ({ color, kind }) => html\`<div class="card button"><b class=\${kind === 1 ? 'name' : ''}>\${color}</b>
        <i class=\${\`button c\${color}\`}></i><\${Chip} /></div>\`;`,
    'chip.css': '.chip-off .text { color: red }\n',
    'chip.ts': `export const Chip = ({ color }) => html\`<b class="button chip-off"><i class=\${\`c\${color}\`}></i></b>\`;
      function make(kind) { element.className = kind; }
      make('text');`,
  };
  const bad: Record<string, readonly [file: string, text: string, complaint: RegExp]> = {
    undeclared: ['chip.ts', "make('txt')", /chip\.ts: \.txt is declared neither/],
    unused: ['chip.css', '.chip-on { color: red }', /chip\.css: \.chip-on is not used by chip\.ts/],
    foreign: ['chip.css', '.chip-off .card { color: red }', /chip\.css: \.card is not used by chip\.ts/],
    reaching: ['card.css', '.card .text { color: red }', /card\.css: \.text would also reach chip\.ts/],
    loose: ['card.css', 'p { color: red }', /card\.css: p has no class that is this sheet's alone/],
    alone: ['style/all.css', '.once { color: red }', /style: \.once is used by 0 components/],
    orphan: ['gone.css', '.gone { color: red }', /gone\.css: no component gone\.ts/],
    unread: ['chip.ts', 'element.className = names[0]', /chip\.ts: has a class that this check cannot read/],
    missing: ['more.css', '', /style\.css: does not import more\.css/],
  };
  const check = async (files: Record<string, string>) => {
    await mkdir(join(folder, 'style'), { recursive: true });
    for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
    const { stdout, status } = spawnSync(process.execPath, [join(ROOT, 'lint', 'styles.mjs'), folder], {
      encoding: 'utf8',
    });
    return { stdout, status };
  };
  try {
    expect(await check(good)).toEqual({ stdout: '', status: 0 });
    const files = { ...good };
    for (const [file, text] of Object.values(bad)) files[file] = `${files[file] ?? ''}\n${text}\n`;
    const { stdout, status } = await check(files);
    for (const [name, [, , complaint]] of Object.entries(bad)) expect(stdout, name).toMatch(complaint);
    expect(status).toBe(1);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
