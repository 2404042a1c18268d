import { expect, test } from 'vitest';
import { Rejection } from '../../src/errors.ts';
import { Exchange, MAX_UNSENT_BYTES } from '../../src/http/exchange.ts';
import { ReadSlots } from '../../src/read/read-slots.ts';
import { exchangeLimits } from '../support/exchange-limits.ts';

/** Reads that end when the test says so, on one slot with room for two that wait. */
function setUp() {
  const slots = new ReadSlots(1, 2);
  const limits = exchangeLimits(1);
  const started: string[] = [];
  const ends = new Map<string, (outcome: string | Error) => void>();
  const read = (name: string) => {
    const wire = {
      ...{ method: 'GET', path: '/', query: '', remoteAddress: '', header: () => '' },
      ...{ readBody: () => undefined, respond: () => undefined },
      stream: (): never => expect.unreachable('nobody answers here'),
    };
    const exchange = new Exchange(wire, name, 0, [], limits, () => undefined);
    const outcome = slots.run(exchange, () => {
      started.push(name);
      return new Promise<string>((resolve, reject) => {
        ends.set(name, (end) => (end instanceof Error ? reject(end) : resolve(end)));
      });
    });
    return { exchange, outcome };
  };
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  return {
    limits,
    started,
    read,
    turn,
    end: (name: string, end: string | Error = name) => ends.get(name)?.(end),
  };
}

test('reads run in their order, no more at once than there are slots', async () => {
  const { started, read, end, turn } = setUp();
  const [a, b, c] = [read('a'), read('b'), read('c')];
  await turn();
  expect(started).toEqual(['a']);
  end('a');
  expect(await a.outcome).toBe('a');
  await turn();
  expect(started).toEqual(['a', 'b']);
  end('b');
  await b.outcome;
  await turn();
  end('c');
  expect(await c.outcome).toBe('c');
});

test('beyond those that may wait a read is refused at once, and may be tried again', async () => {
  const { read } = setUp();
  for (const name of ['a', 'b', 'c']) read(name);
  expect(await read('d').outcome).toMatchObject({ reason: 'unavailable', headers: { 'Retry-After': '1' } });
});

test('a read whose client has left meanwhile is not run, and the next one is', async () => {
  const { started, read, end, turn } = setUp();
  const [a, b, c] = [read('a'), read('b'), read('c')];
  b.exchange.abort();
  end('a');
  await a.outcome;
  expect(await b.outcome).toBeInstanceOf(Rejection);
  await turn();
  expect(started).toEqual(['a', 'c']);
  end('c');
  await c.outcome;
});

test('a read that fails rejects, and gives its slot back', async () => {
  const { started, read, end, turn } = setUp();
  const [a, b] = [read('a'), read('b')];
  end('a', new Error('broken'));
  await expect(a.outcome).rejects.toThrow('broken');
  await turn();
  expect(started).toEqual(['a', 'b']);
  end('b');
  await b.outcome;
});

test('while too many answers wait for slow readers no further page is read', async () => {
  const { limits, started, read } = setUp();
  limits.unsentBytes = MAX_UNSENT_BYTES + 1;
  expect(await read('a').outcome).toMatchObject({ reason: 'unavailable' });
  expect(started).toEqual([]);
});
