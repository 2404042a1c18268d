/** The dashboard for Grafana and the alert rules for Prometheus: each query names metrics and labels that exist. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { REFUSALS } from '../../src/errors.ts';
import { markedTable, ROOT, readPage } from '../docs/pages.ts';
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

const RULES = join(ROOT, 'deploy/grafana/alerts.yml');

test('the alert rules name metrics and labels that docs/monitoring.md lists', () => {
  const listed = new Map(
    markedTable(readPage('docs/monitoring.md'), 'metrics').map(([cell = '', labels = '']) => [
      /\w+/.exec(cell)?.[0] ?? '',
      labels.match(/\w+/g) ?? [],
    ]),
  );
  const queries = [...readFileSync(RULES, 'utf8').matchAll(/^ +expr: (.+)$/gm)].map(([, expr = '']) => expr);
  expect(queries.length).toBeGreaterThan(10);
  for (const expr of queries)
    for (const [, name = '', selected = ''] of expr.matchAll(/\b(tidemark_\w+)(?:\{([^}]*)\})?/g)) {
      const labels = listed.get(name.replace(/_bucket$/, ''));
      expect(labels, name).toBeDefined();
      for (const [, label] of selected.matchAll(/(\w+)(?:=|!)~?"/g)) expect(labels, name).toContain(label);
    }
  const codes = Object.values(REFUSALS).map(({ code }) => code);
  const named = queries.flatMap((expr) => /code=~"([^"]+)"/.exec(expr)?.[1]?.split('|') ?? []);
  expect(named.length).toBeGreaterThan(0);
  expect(codes).toEqual(expect.arrayContaining(named));
});

const hasPromtool = spawnSync('promtool', ['--version']).error === undefined;

test.skipIf(!hasPromtool)('promtool accepts the alert rules', () => {
  const checked = spawnSync('promtool', ['check', 'rules', '--lint-fatal', RULES], { encoding: 'utf8' });
  expect(checked.stderr).toBe('');
  expect(checked.status).toBe(0);
});
