import { describe, expect, test } from 'vitest';
import { decodePosition, encodePosition } from '../../../src/storage/storage.ts';
import { availableEngines, testDatabase } from '../../support/database.ts';
import { ConsumerWorld } from './consumer-world.ts';
import { consumersInOrder } from './consumers.contract.ts';

describe.each(availableEngines())('consumers on %s', (engine) =>
  consumersInOrder(async () => ConsumerWorld.create(await testDatabase(engine))),
);

test('a position is an opaque text that only its own form is read from', () => {
  const after = {
    by: 12,
    createdAt: '2026-11-24 08:00:00.123+00',
    id: '019c132c-5bbb-777b-84d1-f2b892d3c667',
  };
  const position = { tick: '4711', after } as const;
  expect(decodePosition(encodePosition(position))).toEqual(position);
  expect(decodePosition(encodePosition({ tick: '4711', after: null }))).toEqual({
    tick: '4711',
    after: null,
  });
  for (const bad of [
    '',
    'x',
    btoa('{}'),
    btoa('[]'),
    btoa('["1","2"]'),
    btoa('["x"]'),
    btoa('["1",-1,"x","y"]'),
  ])
    expect(decodePosition(bad)).toBeNull();
});
