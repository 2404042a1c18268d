import { expect, test } from 'vitest';
import type { Sql } from '../../../../src/storage/database/connect.ts';
import { hashOf, type NodeAddress, PlacementTable } from '../../../../src/storage/engines/citus/placement.ts';
import { ByShard } from '../../../../src/storage/engines/citus/shards.ts';

test('an integer has the hash that PostgreSQL gives it', () => {
  expect([5, 1, 2_147_483_647].map(hashOf)).toEqual([-1_330_264_708, -1_905_060_026, -96_758_253]);
});

test('an app is where the range of its hash is, and a node stays the same object', () => {
  const known = new Map<string, NodeAddress>();
  const nodeAt = (address: NodeAddress): NodeAddress => {
    const node = known.get(address.name) ?? address;
    known.set(address.name, node);
    return node;
  };
  const place = (host: string, shard: number, least: number, most: number) => ({
    ...{ host, port: 5432, shard, least, most, isCoordinator: false },
  });
  const rows = [
    place('a', 1, -2_147_483_648, -1_905_060_027),
    place('b', 2, -1_905_060_026, -1_905_060_026),
    place('a', 3, -1_905_060_025, -96_758_254),
    place('c', 4, -96_758_253, 2_147_483_647),
  ];
  const table = new PlacementTable(rows, nodeAt);
  expect([5, 1, 2_147_483_647].map((appId) => table.placeOf(appId)?.shard)).toEqual([3, 2, 4]);
  expect([...table.samples].map(([{ node }, appId]) => [node.name, table.placeOf(appId)?.node.name])).toEqual(
    ['a:5432', 'b:5432', 'c:5432'].map((name) => [name, name]),
  );
  expect(table.nodes.map(({ name }) => name)).toEqual(['a:5432', 'b:5432', 'c:5432']);
  const moved = new PlacementTable([place('c', 1, -2_147_483_648, 2_147_483_647)], nodeAt);
  expect(moved.placeOf(1)?.node).toBe(table.placeOf(2_147_483_647)?.node);
  expect(new PlacementTable([], nodeAt).placeOf(1)).toBeNull();
});

test('what is kept for a shard is let go when the shard has another node', () => {
  const [here, there] = [{} as Sql, {} as Sql];
  const gone: string[] = [];
  const kept = new ByShard<string>((value) => gone.push(value));
  expect(kept.of(here, '1', () => 'first')).toBe('first');
  expect(kept.of(here, '1', () => 'again')).toBe('first');
  kept.of(here, '2', () => 'other');
  for (const move of [1, 2, 3]) kept.of(move % 2 === 1 ? there : here, '1', () => `moved ${move}`);
  expect(gone).toEqual(['first', 'moved 1', 'moved 2']);
  expect(kept.values()).toEqual(['moved 3', 'other']);
});
