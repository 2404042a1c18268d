/** The model of many processes and nodes: its table is what it computes, and it says what is known to be so. */
import { expect, test } from 'vitest';
import { type Model, simulate } from '../../bench/cluster-model.ts';
import { modelDocuments } from '../../bench/report/documents.ts';
import { readPage } from '../docs/pages.ts';

const SMALL: Model = {
  processes: 8,
  nodes: 4,
  perSecond: 20_000,
  connections: 2,
  processesOfApp: 8,
  queues: 'per node',
  silentNode: false,
};

test('the table of the documentation is up to date', async () => {
  for (const [path, text] of await modelDocuments())
    expect(readPage(path), '`npm run docs` renews it').toBe(text);
});

test('everything that fits is committed, with the same outcome each time', () => {
  const outcome = simulate(SMALL);
  expect(outcome.taken).toBeGreaterThan(0.98);
  expect(outcome.nodeUse).toBeLessThan(0.5);
  expect(simulate(SMALL)).toEqual(outcome);
});

test('a silent node takes nothing of the others where each has its queue, and nearly all where they share one', () => {
  expect(simulate({ ...SMALL, silentNode: true }).taken).toBeGreaterThan(0.98);
  expect(simulate({ ...SMALL, silentNode: true, queues: 'shared' }).taken).toBeLessThan(0.5);
});

test('fewer connections and processes for an app make larger groups, which cost less', () => {
  const full = { ...SMALL, processes: 32, processesOfApp: 32, perSecond: 100_000 };
  const few = simulate({ ...full, connections: 1, processesOfApp: 2 });
  const many = simulate(full);
  expect(few.eventsOfGroup).toBeGreaterThan(many.eventsOfGroup);
  expect(few.p99).toBeLessThan(many.p99);
});
