/** Builds dashboard/ into dist/dashboard: hashed names and no inline code, so that the CSP needs no exception; compressed files beside them. */
import { copyFile, mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';
import { buildBrowserClient } from './client/browser/build.mjs';
import { compileTemplates } from './dashboard/compile-templates.ts';
import { serverPaths } from './dashboard/paths.ts';

/** The first paint waits for the script, which knows the chosen theme: no flash of the other one. */
function renderBlockingScript(): Plugin {
  return {
    name: 'tidemark-render-blocking-script',
    transformIndexHtml: {
      order: 'post',
      handler: (page) => page.replace('<script type="module"', '<script type="module" blocking="render"'),
    },
  };
}

const FONT = join(import.meta.dirname, 'node_modules', '@fontsource-variable', 'instrument-sans');

/** The font is asked for with the page, not only once its style sheet is there; its license goes with it. */
function preloadedFont(): Plugin {
  return {
    name: 'tidemark-preloaded-font',
    apply: 'build',
    transformIndexHtml: {
      order: 'post',
      handler: (_, { bundle = {} }) =>
        Object.keys(bundle)
          .filter((name) => name.endsWith('.woff2'))
          .map((name) => ({
            tag: 'link',
            attrs: { rel: 'preload', as: 'font', type: 'font/woff2', href: `/${name}`, crossorigin: '' },
            injectTo: 'head-prepend' as const,
          })),
    },
    writeBundle: ({ dir = '' }) => copyFile(join(FONT, 'LICENSE'), join(dir, 'font-license.txt')),
  };
}

/** Compiles the templates, so that no page loads htm. */
function compiledTemplates(): Plugin {
  const element = '$element';
  const from = JSON.stringify(join(import.meta.dirname, 'dashboard', 'html.ts'));
  return {
    name: 'tidemark-compiled-templates',
    apply: 'build',
    transform: {
      order: 'post',
      filter: { id: /\/dashboard\/[^?]*\.ts$/, code: 'html`' },
      handler(code) {
        const compiled = compileTemplates(code, this.parse(code), element);
        return { code: `import { element as ${element} } from ${from};\n${compiled}`, map: null };
      },
    },
  };
}

/** The part of a page that comes later asks for nothing beside itself, so that nothing has to be loaded before it. */
function plainImports(): Plugin {
  return {
    name: 'tidemark-plain-imports',
    apply: 'build',
    load: {
      order: 'pre',
      filter: { id: /vite\/preload-helper\.js$/ },
      handler: () => 'export const __vitePreload = (load) => load();',
    },
  };
}

/** What is worth compressing: fonts and bitmaps are compressed already. */
const COMPRESSIBLE = /\.(?:css|js|json|svg|txt|webmanifest)$/;
/** Bytes. Below that, compression gains nothing. */
const WORTH_COMPRESSING = 512;

/**
 * Writes FILE.br beside each file in assets/, for the server to send. The names there contain a hash of the
 * content, so a compressed file always belongs to the file beside it, even while another build replaces dist/.
 */
function compressedFiles(): Plugin {
  return {
    name: 'tidemark-compressed-files',
    apply: 'build',
    async writeBundle({ dir = '' }) {
      const assets = join(dir, 'assets');
      const names = (await readdir(assets)).filter((name) => COMPRESSIBLE.test(name));
      await Promise.all(names.map((name) => compress(join(assets, name))));
    },
  };
}

/** Above that the best quality of Brotli takes seconds, which every build would pay. */
const MOST_THOROUGH = 500_000;
const GOOD_QUALITY = 9;

async function compress(path: string): Promise<void> {
  const bytes = await readFile(path);
  if (bytes.length < WORTH_COMPRESSING) return;
  const isLarge = bytes.length > MOST_THOROUGH;
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: isLarge ? GOOD_QUALITY : constants.BROTLI_MAX_QUALITY,
    [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
  };
  await writeFile(`${path}.br`, await promisify(brotliCompress)(bytes, { params }));
}

/** The files of Swagger UI that the page at /docs needs. They are complete, and pass the CSP as they are. */
const SWAGGER_UI = ['swagger-ui-bundle.js', 'swagger-ui-bundle.js.LICENSE.txt', 'swagger-ui.css', 'LICENSE'];

/**
 * The page that `docs` of an error body leads to: a paragraph on each code, as the table in docs/api.md has it.
 * @throws Error where the table is not there
 */
async function errorsPage(): Promise<string> {
  const reference = await readFile(join(import.meta.dirname, 'docs', 'api.md'), 'utf8');
  const [, table = ''] = /<!-- errors -->\n([\s\S]*?)<!-- end of errors -->/.exec(reference) ?? [];
  const rows = [...table.matchAll(/^\| `(\w+)` \| (\d+) \| (.*) \|$/gm)];
  if (rows.length === 0) throw new Error('docs/api.md has no table of errors');
  const markup = (text: string): string =>
    text
      .replace(/[&<>]/g, (character) => `&#${character.charCodeAt(0)};`)
      .replace(/\[([^[\]]*)\]\([^()]*\)/g, '$1')
      .replace(/`([^`]*)`/g, '<code>$1</code>');
  const paragraphs = rows.map(
    ([, code = '', status = '', text = '']) =>
      `<h2 id="${code}">${code} <small>${status}</small></h2>\n<p>${markup(text)}</p>\n`,
  );
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Errors of the Tidemark API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/docs/docs.css">
</head>
<body>
<main>
<h1>Errors</h1>
<p>The codes of <code>/public</code> and <code>/v1</code>. <code>details</code> of an error says what is wrong, and <code>param</code>
names the parameter or field that is at fault. <a href="/docs">The API</a></p>
${paragraphs.join('')}</main>
</body>
</html>
`;
}

/** Makes docs/, a page apart from the dashboard: neither loads anything of the other. */
function apiDocs(): Plugin {
  return {
    name: 'tidemark-api-docs',
    apply: 'build',
    async writeBundle({ dir = '' }) {
      const own = join(import.meta.dirname, 'dashboard', 'docs');
      const swagger = join(import.meta.dirname, 'node_modules', 'swagger-ui-dist');
      const target = join(dir, 'docs');
      await mkdir(target, { recursive: true });
      const copies = [
        ...(await readdir(own)).map((name) => [join(own, name), name] as const),
        ...SWAGGER_UI.map((name) => [join(swagger, name), name] as const),
      ];
      await Promise.all(copies.map(([path, name]) => copyFile(path, join(target, name))));
      await writeFile(join(target, 'errors.html'), await errorsPage());
      const compressible = copies.map(([, name]) => name).filter((name) => COMPRESSIBLE.test(name));
      await Promise.all(compressible.map((name) => compress(join(target, name))));
    },
  };
}

/** Writes down at which addresses the server answers with the page: those that it routes in the browser. */
function pagePaths(): Plugin {
  return {
    name: 'tidemark-page-paths',
    apply: 'build',
    writeBundle: ({ dir = '' }) => writeFile(join(dir, 'pages.json'), JSON.stringify(serverPaths())),
  };
}

/** The browser client, which pages of other sites load as `/tidemark.js`. */
function browserClient(): Plugin {
  return {
    name: 'tidemark-browser-client',
    apply: 'build',
    async writeBundle({ dir = '' }) {
      const { script } = await buildBrowserClient(null);
      const path = join(dir, 'tidemark.js');
      await writeFile(path, script);
      await compress(path);
    },
  };
}

export default defineConfig({
  root: join(import.meta.dirname, 'dashboard'),
  plugins: [
    compiledTemplates(),
    plainImports(),
    renderBlockingScript(),
    preloadedFont(),
    compressedFiles(),
    apiDocs(),
    pagePaths(),
    browserClient(),
  ],
  build: {
    outDir: join(import.meta.dirname, 'dist', 'dashboard'),
    emptyOutDir: true,
    target: ['chrome123', 'firefox128', 'safari17.5'],
    // A data: URI would need its own permission in the CSP.
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    // With the second pass, two hundredths smaller than what the default makes.
    minify: 'terser',
    terserOptions: {
      ecma: 2020,
      module: true,
      compress: {
        ...{ passes: 3, unsafe_arrows: true, pure_getters: true, sequences: false },
        // Shorter before the scripts are compressed, but not after it.
        ...{ inline: 1, lhs_constants: false },
      },
      format: { comments: false },
    },
    // The one page that comes later asks for all its parts itself.
    modulePreload: false,
    reportCompressedSize: false,
  },
});
