/** The chart's numbers as a table: for screen readers, for exact reading, and for spreadsheets. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Series } from '../answers.ts';
import { CopyButton } from '../components/copy.ts';
import { bucketSpan, count } from '../format.ts';
import { html } from '../html.ts';
import { isoText } from '../range.ts';
import { bucketEnd, type Line, type Stack } from './series-data.ts';

/** Rows that are made at once: a thousand times ten cells would hold the page up. */
const ROWS = 100;

export interface TableProps {
  readonly name: string;
  readonly series: Series;
  readonly stack: Stack;
  readonly zone: string;
}

export function ChartTable({ name, series, stack, zone }: TableProps): VNode {
  const [rows, setRows] = useState(ROWS);
  const columns = stack.layers.map((line) => columnOf(line, stack));
  const indices = series.starts.map((_, index) => index).reverse();
  const total = (index: number): number => columns.reduce((sum, column) => sum + (column[index] ?? 0), 0);
  return html`<div class="chart-table">
    <div class="scroll" tabindex="0" role="region" aria-label="The chart's numbers">
      <table>
        <caption class="sr-only">${name}, newest first</caption>
        <thead><tr><th scope="col">Time</th><th scope="col" class="number">Total</th>
          ${stack.layers.map((line) => html`<th scope="col" class="number"><i class=${`swatch c${line.color}`}></i>${line.name}</th>`)}
        </tr></thead>
        <tbody>
          ${indices.slice(0, rows).map(
            (index) => html`<tr key=${index}>
              <th scope="row">${bucketSpan(series.starts[index] ?? 0, bucketEnd(series, index), series.bucket, zone)}</th>
              <td class="number"><b>${count(total(index))}</b></td>
              ${columns.map((column) => html`<td class="number">${count(column[index] ?? 0)}</td>`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <div class="row-actions">
      ${rows < indices.length && html`<button type="button" class="button" onClick=${() => setRows(rows + ROWS)}>Show ${Math.min(ROWS, indices.length - rows)} more of ${indices.length}</button>`}
      <${CopyButton} text=${() => chartCsv(series, stack)} label="Copy all rows as CSV">Copy as CSV<//>
    </div>
  </div>`;
}

/** A line's numbers, in the chart's mode. */
function columnOf(line: Line, { mode }: Stack): number[] {
  if (mode === 'histogram') return [...line.counts];
  let value = mode === 'running' ? line.before : 0;
  return line.counts.map((added) => {
    value += added;
    return value;
  });
}

/** RFC 4180; a name that a spreadsheet would run as a formula is kept a text. */
export function chartCsv(series: Series, stack: Stack): string {
  const columns = stack.layers.map((line) => columnOf(line, stack));
  const cell = (text: string): string => `"${text.replace(/^(?=[=+\-@\t])/, "'").replaceAll('"', '""')}"`;
  const head = ['start', 'end', ...stack.layers.map(({ name }) => cell(name))];
  const lines = series.starts.map((start, index) =>
    [
      isoText(Math.max(start, series.interval.from)),
      isoText(Math.min(bucketEnd(series, index), series.interval.until)),
      ...columns.map((column) => column[index] ?? 0),
    ].join(','),
  );
  return [head.join(','), ...lines, ''].join('\r\n');
}
