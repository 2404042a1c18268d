/** The chart's numbers as a table: for screen readers, for exact reading, and for spreadsheets. */
import type { VNode } from 'preact';
import { useState } from 'preact/hooks';
import type { Series } from '../../src/api-types/answers.ts';
import { CopyButton } from '../components/copy.ts';
import { bucketSpan, count } from '../format.ts';
import { html } from '../html.ts';
import { isoText } from '../range.ts';
import type { Curve, Values } from './curve.ts';
import { accumulated, bucketEnd, type Stack } from './series-data.ts';

/** Rows rendered at once: thousands of cells would block the page. */
const ROWS = 100;

export interface TableProps {
  readonly name: string;
  readonly series: Series;
  readonly stack: Stack;
  /** Whose numbers are shown in place of the counts; null: the counts are. */
  readonly curve: Curve | null;
  readonly zone: string;
}

export function ChartTable({ name, series, stack, curve, zone }: TableProps): VNode {
  const [rows, setRows] = useState(ROWS);
  const columns = columnsOf(series, stack, curve);
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
      <${CopyButton} text=${() => chartCsv(series, stack, curve)} label="Copy all rows as CSV">Copy as CSV<//>
    </div>
  </div>`;
}

interface Column {
  readonly name: string;
  readonly color?: number;
  readonly values: Values;
  readonly text: (value: number | null) => string;
}

/** The columns after the time: all events and each line, or the line of a measure and its events. */
function columnsOf(series: Series, stack: Stack, curve: Curve | null): Column[] {
  const text = (value: number | null): string => count(value ?? 0);
  if (curve !== null) {
    const own = (value: number | null): string => (value === null ? '' : curve.text(value));
    return [
      { name: curve.name, values: curve.values, text: own },
      ...curve.lines
        .filter(({ shown }) => shown)
        .map(({ name, color, values }) => ({ name, color, values, text: own })),
      { name: 'Events', values: series.all, text },
    ];
  }
  const lines = stack.layers.map(
    (line): Column => ({
      name: line.name,
      color: line.color,
      values: accumulated(line.counts, stack.mode, line.before),
      text,
    }),
  );
  const totals = series.starts.map((_, index) =>
    lines.reduce((sum, { values }) => sum + (values[index] ?? 0), 0),
  );
  return [{ name: 'Total', values: totals, text }, ...lines];
}

/** RFC 4180; a name that a spreadsheet would run as a formula is escaped. */
export function chartCsv(series: Series, stack: Stack, curve: Curve | null): string {
  // A sum of the other columns is left to the reader.
  const columns = columnsOf(series, stack, curve).slice(curve === null ? 1 : 0);
  const cell = (text: string): string =>
    `"${text.replace(/^(?=[=+\-@\t\r\n＝＋－＠])/, "'").replaceAll('"', '""')}"`;
  const unit = curve === null || curve.unit === '' ? '' : ` (${curve.unit})`;
  const head = [
    'start',
    'end',
    ...columns.map(({ name }, column) => cell(column === 0 ? name + unit : name)),
  ];
  const lines = series.starts.map((start, index) =>
    [
      isoText(Math.max(start, series.interval.from)),
      isoText(Math.min(bucketEnd(series, index), series.interval.until)),
      ...columns.map(({ values }) => values[index] ?? ''),
    ].join(','),
  );
  return [head.join(','), ...lines, ''].join('\r\n');
}
