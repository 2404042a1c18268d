/** The dashboard for Grafana: each of its queries names metrics and labels that a real scrape has. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../docs/pages.ts';
import { withTestService } from '../support/service.ts';

interface Panel {
  readonly title: string;
  readonly targets: readonly { readonly expr: string }[];
}

const dashboard = JSON.parse(readFileSync(join(ROOT, 'deploy/grafana/tidemark.json'), 'utf8'));
const panels: readonly Panel[] = dashboard.panels;

/** What is in a query of PromQL beside names of metrics: functions, keywords, and what Grafana puts in. */
const OTHERS = new Set(['sum', 'min', 'max', 'by', 'le', 'rate', 'histogram_quantile']);

/** The metrics of a query, with the labels that are selected or grouped by. */
function metricsOf(expr: string): { metric: string; labels: string[] }[] {
  const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, names = '']) => names.split(/,\s*/));
  const plain = expr.replaceAll(/\bby \([^)]*\)/g, '').replaceAll(/\[\$__rate_interval\]/g, '');
  return [...plain.matchAll(/([a-zA-Z_]\w*)(?:\{([^}]*)\})?/g)].flatMap(([, metric = '', selected = '']) => {
    if (OTHERS.has(metric)) return [];
    const labels = [...selected.matchAll(/(\w+)(?:=|!)~?"/g)].map(([, name = '']) => name);
    return [{ metric, labels: [...labels, ...grouped].filter((name) => name !== 'job') }];
  });
}

test('each query of the dashboard names metrics and labels that the service has', async () => {
  await withTestService({}, async (service) => {
    await service.post();
    const { body } = await service.request({ path: '/metrics' });
    const samples = body.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
    const hasAll = ({ metric, labels }: { metric: string; labels: string[] }): boolean =>
      samples.some(
        (line) =>
          (line.startsWith(`${metric}{`) || line.startsWith(`${metric} `)) &&
          labels.every((label) => line.includes(`${label}="`)),
      );
    const queries = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
    for (const expr of queries) expect(metricsOf(expr).length, expr).toBeGreaterThan(0);
    expect(queries.filter((expr) => !metricsOf(expr).every(hasAll))).toEqual([]);
    const variables: readonly { readonly query: string }[] = dashboard.templating.list;
    expect(variables.some(({ query }) => query === 'label_values(tidemark_info, job)')).toBe(true);
    expect(hasAll({ metric: 'tidemark_info', labels: [] })).toBe(true);
    // The check itself: a metric or a label that does not exist is found.
    expect(
      metricsOf('sum by (nothing) (rate(tidemark_requests_total{job=~"$job"}[$__rate_interval]))').every(
        hasAll,
      ),
    ).toBe(false);
    expect(metricsOf('tidemark_nothing_total').every(hasAll)).toBe(false);
  });
});

test('panels have titles of their own and do not overlap', () => {
  expect(new Set(panels.map(({ title }) => title)).size).toBe(panels.length);
  const places = dashboard.panels.map(
    ({ gridPos }: { gridPos: { x: number; y: number } }) => `${gridPos.x} ${gridPos.y}`,
  );
  expect(new Set(places).size).toBe(panels.length);
});
