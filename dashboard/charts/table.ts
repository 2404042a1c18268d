/** The chart's numbers as a table: for screen readers, for exact reading, and for spreadsheets. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import { CopyButton } from '../components/copy.ts';
import { bucketSpan } from '../format.ts';
import { html } from '../html.ts';
import { isoText } from '../range.ts';
import type { Drawing } from './drawing.ts';
import { bucketEnd } from './series-data.ts';

/** Rows rendered at once: thousands of cells would block the page. */
const ROWS = 100;

export interface TableProps {
  readonly name: string;
  readonly drawing: Drawing;
  readonly zone: string;
}

export function ChartTable({ name, drawing, zone }: TableProps): VNode {
  const [rows, setRows] = useState(ROWS);
  const { series } = drawing;
  const columns = drawing.columns();
  const indices = series.starts.map((_, index) => index).reverse();
  return html`<div class="chart-table">
    <div class="scroll" tabindex="0" role="region" aria-label="The chart's numbers">
      <table>
        <caption class="sr-only">${name}, newest first</caption>
        <thead><tr><th scope="col">Time</th>
          ${columns.map(({ name: head, color }) => html`<th scope="col" class="number">${color !== undefined && html`<i class=${`swatch c${color}`}></i>`}${head}</th>`)}
        </tr></thead>
        <tbody>
          ${indices.slice(0, rows).map(
            (index) => html`<tr key=${index}>
              <th scope="row">${bucketSpan(series.starts[index] ?? 0, bucketEnd(series, index), series.bucket, zone)}</th>
              ${columns.map(({ values, text }, column) => html`<td class="number">${column === 0 ? html`<b>${text(values[index] ?? null)}</b>` : text(values[index] ?? null)}</td>`)}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
    <div class="row-actions">
      ${rows < indices.length && html`<button type="button" class="button" onClick=${() => setRows(rows + ROWS)}>Show ${Math.min(ROWS, indices.length - rows)} more of ${indices.length}</button>`}
      <${CopyButton} text=${() => chartCsv(drawing)} label="Copy all rows as CSV">Copy as CSV<//>
    </div>
  </div>`;
}

/** RFC 4180; a name that a spreadsheet would run as a formula is escaped. */
export function chartCsv({ series, ...drawing }: Drawing): string {
  const columns = drawing.columns().filter(({ file }) => file !== null);
  const cell = (text: string): string =>
    `"${text.replace(/^(?=[=+\-@\t\r\n＝＋－＠])/, "'").replaceAll('"', '""')}"`;
  const head = ['start', 'end', ...columns.map(({ name, file }) => cell(file ?? name))];
  const lines = series.starts.map((start, index) =>
    [
      isoText(Math.max(start, series.interval.from)),
      isoText(Math.min(bucketEnd(series, index), series.interval.until)),
      ...columns.map(({ values }) => cleaned(values[index] ?? null)),
    ].join(','),
  );
  return [head.join(','), ...lines, ''].join('\r\n');
}

/** Without the digits that only a sum of doubles has. */
const cleaned = (value: number | null): number | '' => (value === null ? '' : Number(value.toPrecision(15)));
