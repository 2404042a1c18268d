/** Builds dashboard/ into dist/dashboard: hashed names, nothing inline, so that the pages' CSP needs no exception. */
import { join } from 'node:path';
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

/**
 * uPlot without what the chart never uses. Its own build has switches for that, but the package ships with all of them
 * on. The minifier takes away what these edits make unreachable: 12 KB in place of 22. An edit that does not fit any
 * more ends the build.
 */
const UPLOT_EDITS: readonly (readonly [RegExp, string])[] = [
  // Only aligned data, linear scales, a horizontal time axis, and dragging along it.
  [/const mode = self\.mode;/, 'const mode = 1;'],
  [/\b(sc|scaleX|wsc|psc|scale)\.distr\b/g, '1'],
  [/let distr = /, 'const distr = '],
  [/\bscaleX\.ori\b/g, '0'],
  [/\bdrag\.y\b/g, 'false'],
  [/let uni = .*;/, 'const uni = null;'],
  // Ranges are always given.
  [/\[_min, _max\] = rangeNum\(_min, _max, rangePad, true\);/, ';'],
  [/rangeNum\(dataMin, dataMax, (cfg|rangePad, true)\)/g, 'nullNullTuple'],
  // No labels of whole axes, none askew.
  [/if \(axis\.label != null\)/g, 'if (false)'],
  [/axis\.label != null \? axis\.labelSize : 0/, '0'],
  [/axis\.labelFont = .*;/, ''],
  [/\[axis\.font, axis\.labelFont\]/, '[axis.font]'],
  [/let angle = .*;/, 'const angle = 0;'],
  // No legend, no formats of time.
  [/const showLegend = legend\.show;/, 'const showLegend = false;'],
  [/\blegend\.live\b/g, 'false'],
  [/let isTime = [^;]+;/g, 'const isTime = false;'],
  [/const _tzDate {2}=[\s\S]*?_fmtDate\)\);(?=\s*const activeIdxs)/, ''],
  [/^const \[ timeIncrs.*$/gm, ''],
  [/const months = \[[\s\S]*?(?=const onlyWhole)/, ''],
  [/const markers {4}= legend\.markers;[\s\S]*?\n\t\}/, ''],
  // Increments are always given.
  [/axis\.incrs {2}= .*;/, 'axis.incrs = fnOrSelf(axis.incrs);'],
  [/const (\w+Incrs) = .*;/g, 'const $1 = null;'],
  // Padding is always given, and no plugins or bands.
  [/opts\.padding \|\| \[[^\]]*\]/, 'opts.padding'],
  [/ifNull\(p, autoPadSide\)/, 'p'],
  [/\(opts\.plugins \|\| \[\]\)\.forEach\(p => \{[\s\S]*?\n\t\}\);/g, ''],
  [/bands\.forEach\(b => \{[\s\S]*?\n\t\}\);/, ''],
  // Nothing painted but axes and grid, and nothing that follows the cursor but its line.
  [/else if \(s\.show && s\.auto\)\s*accScale\(.*\);/, ';'],
  [/pt = initCursorPt\(s, i\);/g, ';'],
  [/(let|const) pt = cursorPts\[i\];/g, 'const pt = null;'],
  [/cursorPts(Lft|Top)?\.splice\(i, 0, .*\);/g, ''],
  [/const legendOpts = \{[\s\S]*?\n\};/, 'const legendOpts = {};'],
  [/points: \{\s*one:[\s\S]*?\n\t\},/, 'points: {},'],
  [/if \(cursor\.dataIdx == null\) \{[\s\S]*?\n\t\}\n/, 'cursor.dataIdx = (self, seriesIdx, idx) => idx;'],
  [/const linearPath = linear\(\) ;/, 'const linearPath = null;'],
  [/const pointsPath = points\(\) ;/, 'const pointsPath = null;'],
  [/series: drawSeries/, 'series: noop'],
  [/if \(shouldSetLegend \|\| cursorOnePt\)/, 'if (false)'],
  // No series that comes into focus, or comes and goes; no cursor shared with other charts.
  [/const cursorFocus = .*;/, 'const cursorFocus = false;'],
  [/const cursorOnePt = .*;/, 'const cursorOnePt = false;'],
  [/self\.(addSeries|delSeries|addBand|delBand|setBand|setSeries|pub|setLegend) *= .*;/g, ''],
  [/events\["setSeries"\] = [\s\S]*?\n\t\};/, ''],
  [/\bsrc == null\b/g, 'true'],
  [/\bsrc != null\b/g, 'false'],
  [/if \(_pub\)/g, 'if (false)'],
  [/const syncOpts = [\s\S]*?sync\.sub\(self\);/, ''],
  [/sync\.unsub\(self\);/, ''],
  [/(rect\.top;\s*\})\s*else \{[\s\S]*?\n\t\t\}(?=\s*if \(snap)/, '$1'],
  [/^uPlot\.assign = assign;[\s\S]*(?=\nexport \{)/m, ''],
];

function leanUplot(): Plugin {
  return {
    name: 'tidemark-lean-uplot',
    apply: 'build',
    transform(code, id) {
      if (!/uPlot\.esm\.js$/.test(id)) return null;
      return UPLOT_EDITS.reduce((text, [pattern, replacement]) => {
        const edited = text.replace(pattern, replacement);
        if (edited === text) throw new Error(`uPlot has changed: there is no ${pattern} in it`);
        return edited;
      }, code);
    },
  };
}

/** htm drops line breaks and indentation in templates when it runs; dropped here they need not be downloaded. */
function denseTemplates(): Plugin {
  return {
    name: 'tidemark-dense-templates',
    enforce: 'pre',
    apply: 'build',
    transform: (code, id) =>
      /\/dashboard\/.*\.ts$/.test(id) && code.includes('html`') ? code.replace(/\n[ ]+/g, '\n') : null,
  };
}

/** The helper around `import()` preloads styles and modules of what comes later. There are none: all styles are one file. */
function plainImports(): Plugin {
  return {
    name: 'tidemark-plain-imports',
    enforce: 'pre',
    apply: 'build',
    load: (id) =>
      id === '\0vite/preload-helper.js' ? 'export const __vitePreload = (load) => load();' : null,
  };
}

export default defineConfig({
  root: join(import.meta.dirname, 'dashboard'),
  plugins: [denseTemplates(), leanUplot(), plainImports(), renderBlockingScript()],
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
