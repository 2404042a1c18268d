/** Bundles the browser client: a module for import, and a script for a tag. */
import { join } from 'node:path';
import { build } from 'vite';

const SOURCE = join(import.meta.dirname, 'src');

/**
 * @param {string | null} folder where `tidemark.js` and `tidemark.mjs` are written; null: nowhere
 * @returns {Promise<{ script: string, module: string }>} the texts
 */
export async function buildBrowserClient(folder) {
  const [script, module] = await Promise.all([
    bundle('script-tag.ts', 'iife', 'tidemark.js', folder),
    bundle('tidemark.ts', 'es', 'tidemark.mjs', folder),
  ]);
  return { script, module };
}

async function bundle(entry, format, fileName, outDir) {
  const result = await build({
    configFile: false,
    root: SOURCE,
    logLevel: 'error',
    build: {
      ...{
        write: outDir !== null,
        emptyOutDir: false,
        target: 'es2022',
        minify: true,
        reportCompressedSize: false,
      },
      ...(outDir !== null && { outDir }),
      lib: {
        entry: join(SOURCE, entry),
        formats: [format],
        name: 'tidemarkScript',
        fileName: () => fileName,
      },
    },
  });
  const [{ output }] = Array.isArray(result) ? result : [result];
  return output[0].code;
}

if (process.argv[1] === import.meta.filename) await buildBrowserClient(join(import.meta.dirname, 'dist'));
