import { expect, test } from 'vitest';
import { Rejection } from '../../src/errors.ts';
import { Exchange, MAX_UNSENT_BYTES } from '../../src/http/exchange.ts';
import { ReadSlots } from '../../src/read/read-slots.ts';
import { exchangeLimits } from '../support/exchange-limits.ts';

/** Reads that the test ends, on one slot with a queue of two. */
function setUp() {
  const slots = new ReadSlots(1, 2);
  const limits = exchangeLimits(1);
  const started: string[] = [];
  const ends = new Map<string, (outcome: string | Error) => void>();
  const read = (name: string) => {
    const wire = {
      ...{ method: 'GET', path: '/', query: '', remoteAddress: '', header: () => '' },
      ...{
        pauseBody: () => undefined,
        resumeBody: () => undefined,
        readBody: () => undefined,
        respond: () => undefined,
      },
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

test('reads run in order, as many at once as there are slots', async () => {
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

test('a read is refused when the queue is full, and may be retried', async () => {
  const { read } = setUp();
  for (const name of ['a', 'b', 'c']) read(name);
  expect(await read('d').outcome).toMatchObject({ reason: 'unavailable', headers: { 'Retry-After': '1' } });
});

test('a read whose client has disconnected is skipped, and the next one runs', async () => {
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

test('a read that fails rejects and frees its slot', async () => {
  const { started, read, end, turn } = setUp();
  const [a, b] = [read('a'), read('b')];
  end('a', new Error('broken'));
  await expect(a.outcome).rejects.toThrow('broken');
  await turn();
  expect(started).toEqual(['a', 'b']);
  end('b');
  await b.outcome;
});

test('while too many responses wait for slow readers, no further page is read', async () => {
  const { limits, started, read } = setUp();
  limits.unsentBytes = MAX_UNSENT_BYTES + 1;
  expect(await read('a').outcome).toMatchObject({ reason: 'unavailable' });
  expect(started).toEqual([]);
});
