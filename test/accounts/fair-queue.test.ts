import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { FairQueue, type Waiting } from '../../src/accounts/fair-queue.ts';
import { networksOf } from '../../src/accounts/networks.ts';

interface Named extends Waiting {
  readonly name: string;
}

const from = (address: string, name = address, failures = 0): Named => ({
  networks: networksOf(address),
  failures,
  name,
});

function takeAll(queue: FairQueue<Named>): string[] {
  const names: string[] = [];
  for (let one = queue.take(); one !== null; one = queue.take()) names.push(one.name);
  return names;
}

describe('networks of an address', () => {
  test.each([
    ['192.0.2.7', ['192.0.2.7']],
    ['::ffff:192.0.2.7', ['192.0.2.7']],
    ['2001:db8:1:2ff:3::4', ['20010db8000102ff/64', '20010db8000102/56', '20010db80001/48']],
    ['2001:DB8:1:2ff::', ['20010db8000102ff/64', '20010db8000102/56', '20010db80001/48']],
    ['fe80::1%eth0', ['fe80000000000000/64', 'fe800000000000/56', 'fe8000000000/48']],
    ['', ['unknown']],
    ['unknown', ['unknown']],
  ])('%j', (address, networks) => {
    expect(networksOf(address).map((name) => name.replace(/^0+/, ''))).toEqual(
      networks.map((name) => name.replace(/^0+/, '')),
    );
  });
});

describe('turns', () => {
  test('go round between addresses, in order of arrival for each', () => {
    const queue = new FairQueue<Named>(10);
    for (let i = 1; i <= 4; i++) queue.add(from('192.0.2.1', `a${i}`));
    queue.add(from('192.0.2.2', 'b1'));
    queue.add(from('192.0.2.2', 'b2'));
    queue.add(from('198.51.100.1', 'c1'));
    expect(takeAll(queue)).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'a3', 'a4']);
    expect(queue.size).toBe(0);
  });

  test('of a /48 with a hundred networks are those of one address', () => {
    const queue = new FairQueue<Named>(200);
    for (let i = 0; i < 100; i++) queue.add(from(`2001:db8:1:${i.toString(16)}::1`, 'guesser'));
    queue.add(from('2001:db8:2::1', 'owner'));
    queue.add(from('192.0.2.1', 'other'));
    expect(takeAll(queue).slice(0, 3)).toEqual(['guesser', 'owner', 'other']);
  });

  test('inside of a /48 go round between its /56, inside of those between their /64', () => {
    const queue = new FairQueue<Named>(200);
    for (let i = 0; i < 50; i++)
      queue.add(from(`2001:db8:1:1${i.toString().padStart(2, '0')}::1`, 'guesser'));
    queue.add(from('2001:db8:1:200::1', 'neighbor'));
    expect(takeAll(queue).slice(0, 2)).toEqual(['guesser', 'neighbor']);
  });
});

describe('without a place left', () => {
  test('the latest of the network with the most leaves', () => {
    const queue = new FairQueue<Named>(4);
    for (let i = 1; i <= 3; i++) queue.add(from('192.0.2.1', `a${i}`));
    queue.add(from('192.0.2.2', 'b1'));
    expect(queue.add(from('192.0.2.3', 'c1'))?.name).toBe('a3');
    expect(queue.add(from('192.0.2.1', 'a4'))?.name).toBe('a4');
    expect(queue.add(from('192.0.2.3', 'c2'))?.name).toBe('c2');
    expect(takeAll(queue).sort()).toEqual(['a1', 'a2', 'b1', 'c1']);
  });

  test('if all have the same number, the client with the most failures is removed, else the last one', () => {
    const queue = new FairQueue<Named>(3);
    queue.add(from('192.0.2.1', 'a', 1));
    queue.add(from('192.0.2.2', 'b', 3));
    queue.add(from('192.0.2.3', 'c', 2));
    expect(queue.add(from('192.0.2.4', 'owner', 0))?.name).toBe('b');
    expect(queue.add(from('192.0.2.5', 'late', 2))?.name).toBe('late');
  });

  test('in any order of arrivals the limit holds, nothing is lost, and a client that is alone in its network has a place', () => {
    const address = fc.oneof(
      fc.integer({ min: 1, max: 4 }).map((n) => `192.0.2.${n}`),
      fc.tuple(fc.nat(2), fc.nat(2), fc.nat(2)).map(([a, b, c]) => `2001:db8:${a}:${b}0${c}::1`),
    );
    const step = fc.oneof({ weight: 3, arbitrary: address }, fc.constant(null));
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), fc.integer({ min: 5, max: 12 }), (steps, places) => {
        const queue = new FairQueue<Named>(places);
        const waiting = new Set<Named>();
        for (const one of steps) {
          if (one === null) {
            const taken = queue.take();
            expect(taken === null).toBe(waiting.size === 0);
            if (taken !== null) expect(waiting.delete(taken)).toBe(true);
          } else {
            const added = from(one);
            const sharers = [...waiting].filter(({ networks }) => networks.at(-1) === added.networks.at(-1));
            const crowds = new Set([...waiting].map(({ networks }) => networks.at(-1)));
            waiting.add(added);
            const left = queue.add(added);
            if (left !== null) expect(waiting.delete(left)).toBe(true);
            if (sharers.length === 0 && crowds.size < places) expect(left).not.toBe(added);
          }
          expect(queue.size).toBe(waiting.size);
          expect(queue.size).toBeLessThanOrEqual(places);
        }
        expect(takeAll(queue)).toHaveLength(waiting.size);
      }),
    );
  });
});
