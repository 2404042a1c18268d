/** Builds dashboard/ into dist/dashboard: hashed names and no inline code, so that the CSP needs no exception; compressed files beside them. */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { defineConfig, type Plugin } from 'vite';

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

/** What is worth compressing: fonts and bitmaps are compressed already. */
const COMPRESSIBLE = /\.(?:css|js|json|svg|txt|webmanifest)$/;
/** Bytes. Below that, compression gains nothing. */
const WORTH_COMPRESSING = 512;

/**
 * Writes FILE.gz and FILE.br beside each file in assets/, for the server to send. The names there contain a hash of the
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

async function compress(path: string): Promise<void> {
  const bytes = await readFile(path);
  if (bytes.length < WORTH_COMPRESSING) return;
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
    [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
  };
  await writeFile(`${path}.gz`, await promisify(gzip)(bytes, { level: constants.Z_BEST_COMPRESSION }));
  await writeFile(`${path}.br`, await promisify(brotliCompress)(bytes, { params }));
}

export default defineConfig({
  root: join(import.meta.dirname, 'dashboard'),
  plugins: [renderBlockingScript(), compressedFiles()],
  build: {
    outDir: join(import.meta.dirname, 'dist', 'dashboard'),
    emptyOutDir: true,
    target: ['chrome123', 'firefox128', 'safari17.5'],
    // A data: URI would need its own permission in the CSP.
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    // The one page that comes later asks for all its parts itself.
    modulePreload: false,
    reportCompressedSize: false,
    rolldownOptions: {
      output: {
        // The chart's page, and uPlot alone: it stays cached when the dashboard changes.
        codeSplitting: { groups: [{ name: 'uplot', test: /node_modules[\\/]uplot/ }] },
      },
    },
  },
});
