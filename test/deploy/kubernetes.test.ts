/**
 * The manifests of deploy/kubernetes against the schemas of the Kubernetes API, as kubernetes-models has them: its validators
 * for values, and its types, by the compiler, for fields that do not exist.
 */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { readConfig, SETTINGS } from '../../src/config.ts';
import { ROOT } from '../docs/pages.ts';

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels: Readonly<Record<string, string>> };
}

interface Container {
  readonly image: string;
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value: string }[];
  readonly lifecycle?: { readonly preStop: { readonly exec: { readonly command: readonly string[] } } };
  readonly securityContext: object;
}

interface PodSpec {
  readonly containers: readonly [Container];
  readonly terminationGracePeriodSeconds: number;
  readonly securityContext: object;
}

const FOLDER = join(ROOT, 'deploy/kubernetes');

/** The documents of all files; YAML 1.2, with every key once. */
const manifests: readonly Manifest[] = readdirSync(FOLDER).flatMap((name) =>
  parseAllDocuments(readFileSync(join(FOLDER, name), 'utf8')).map((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() as Manifest;
  }),
);

function manifest<T>(kind: string): T {
  const found = manifests.filter((one) => one.kind === kind);
  expect(found).toHaveLength(1);
  // The validators below say that it is one of this kind.
  return found[0] as T;
}

/** The module of a kind in kubernetes-models: apps/v1/Deployment, v1/Service. */
const moduleOf = ({ apiVersion, kind }: Manifest): string => `kubernetes-models/${apiVersion}/${kind}`;

test('what a deployment needs is there', () => {
  const kinds = manifests.map(({ kind }) => kind).sort();
  expect(kinds).toEqual(['Deployment', 'Job', 'PodDisruptionBudget', 'Secret', 'Service']);
});

describe('against the schemas of the API', () => {
  let folder: string;
  // Below the repository, so that the compiler finds the packages.
  beforeAll(async () => {
    folder = await mkdtemp(join(ROOT, 'node_modules', '.manifests-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  async function problemsOf(name: string, found: Manifest): Promise<string> {
    const { [found.kind]: Model } = await import(moduleOf(found));
    try {
      new Model(found).validate();
    } catch (error) {
      return String(error);
    }
    const type = `import type { I${found.kind} as Kind } from '${moduleOf(found)}';`;
    await writeFile(
      join(folder, `${name}.ts`),
      `${type}\nexport const manifest: Kind = ${JSON.stringify(found)};\n`,
    );
    const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
    const options = [
      '--ignoreConfig',
      '--noEmit',
      '--strict',
      '--skipLibCheck',
      '--types',
      '',
      '--module',
      'nodenext',
    ];
    return await new Promise((resolve) => {
      const args = [compiler, ...options, join(folder, `${name}.ts`)];
      execFile(process.execPath, args, (_error, stdout, stderr) => resolve(`${stdout}${stderr}`));
    });
  }

  test.each(manifests.map((found) => [found.kind, found] as const))('%s is valid', async (kind, found) => {
    expect(await problemsOf(kind, found)).toBe('');
  });

  test('a value of another type and a field that does not exist are found', async () => {
    const service = manifest<Manifest & { spec: object }>('Service');
    const wrong = { ...service, spec: { ...service.spec, ports: 'http' } };
    expect(await problemsOf('WrongType', wrong)).toContain('spec/ports must be array');
    const unknown = { ...service, spec: { ...service.spec, portz: [] } };
    expect(await problemsOf('UnknownField', unknown)).toContain(`'"portz"' does not exist`);
  });
});

describe('what they say of the service', () => {
  const deployment = manifest<{ spec: { template: { spec: PodSpec } } }>('Deployment').spec.template;
  const job = manifest<{ spec: { template: { spec: PodSpec } } }>('Job').spec.template;
  const [server] = deployment.spec.containers;
  const [migrate] = job.spec.containers;

  test('variables are settings, with values that the service takes', () => {
    const secret = manifest<{ stringData: Record<string, string> }>('Secret').stringData;
    const env = Object.fromEntries((server.env ?? []).map(({ name, value }) => [name, value]));
    expect(Object.keys({ ...secret, ...env }).filter((name) => !(name in SETTINGS))).toEqual([]);
    expect(readConfig({ ...secret, ...env })).toMatchObject({ TRUST_PROXY: 1, SECRET: '' });
  });

  test('a pod has the time to drain', () => {
    const sleep = Number(server.lifecycle?.preStop.exec.command[1]);
    const env = Object.fromEntries((server.env ?? []).map(({ name, value }) => [name, value]));
    expect(sleep).toBeGreaterThan(0);
    expect(
      sleep + readConfig({ SHUTDOWN_TIMEOUT_SECONDS: env.SHUTDOWN_TIMEOUT_SECONDS }).SHUTDOWN_TIMEOUT_SECONDS,
    ).toBeLessThan(deployment.spec.terminationGracePeriodSeconds);
  });

  test('Service and PodDisruptionBudget select its pods, and those of the Job not', () => {
    const selected = manifest<{ spec: { selector: object } }>('Service').spec.selector;
    const budget = manifest<{ spec: { selector: { matchLabels: object } } }>('PodDisruptionBudget').spec
      .selector;
    const labels = manifest<{ spec: { template: Manifest } }>('Deployment').spec.template.metadata.labels;
    expect(labels).toEqual(selected);
    expect(labels).toEqual(budget.matchLabels);
    expect(manifest<{ spec: { template: Manifest } }>('Job').spec.template.metadata.labels).not.toEqual(
      selected,
    );
  });

  test('pods have no privileges, and the Job runs the same image', () => {
    for (const { spec } of [deployment, job]) {
      expect(spec.securityContext).toMatchObject({ runAsNonRoot: true, runAsUser: 1000 });
      expect(spec.containers[0].securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      });
    }
    expect(migrate.image).toBe(server.image);
    expect(migrate.args).toEqual(['migrate']);
  });
});
