/** What the exchange promises whatever a transport does: a body that goes on after the answer is not delivered. */
import { expect, test } from 'vitest';
import { Rejection } from '../../src/errors.ts';
import { Exchange, type Wire } from '../../src/http/exchange.ts';
import { exchangeLimits } from '../support/exchange-limits.ts';

/** A wire whose body comes when the test says so, and whose answers are kept. */
function setUp() {
  const answers: { status: number; close: boolean }[] = [];
  let onChunk: (chunk: Buffer, last: boolean) => void = () => undefined;
  const wire: Wire = {
    method: 'POST',
    path: '/',
    query: '',
    remoteAddress: '',
    header: () => '',
    pauseBody: () => undefined,
    resumeBody: () => undefined,
    readBody: (callback) => {
      onChunk = callback;
    },
    respond: (status, _headers, _body, _bytes, close) => answers.push({ status, close }),
    stream: () => expect.unreachable('no answer here goes on'),
  };
  const limits = exchangeLimits(100);
  const exchange = new Exchange(wire, 'id', 0, [], limits, () => undefined);
  const send = (text: string, last: boolean): void => onChunk(Buffer.from(text), last);
  return { exchange, limits, answers, send };
}

test('a body is not delivered after its deadline, however it continues', async () => {
  const { exchange, limits, answers, send } = setUp();
  const text = exchange.text();
  send('{"a":', false);
  exchange.expire();
  send('1}', true);
  expect(await text).toBeInstanceOf(Rejection);
  expect(answers).toEqual([{ status: 400, close: true }]);
  expect(limits.bodies.bytes).toBe(0);
});
