/** What the exchange promises whatever a transport does: bodies that go on after the answer, or after nobody is there. */
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
  let settled = 0;
  const exchange = new Exchange(wire, 'id', 0, [], limits, () => {
    settled += 1;
  });
  const sendBytes = (bytes: Buffer, last: boolean): void => onChunk(bytes, last);
  const send = (text: string, last: boolean): void => sendBytes(Buffer.from(text), last);
  return { exchange, limits, answers, send, sendBytes, settledTimes: () => settled };
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

test('a body whose client disconnected is not delivered and releases its memory', async () => {
  const { exchange, limits, answers, send } = setUp();
  const text = exchange.text();
  send('{"a":', false);
  exchange.abort();
  send('1}', true);
  expect(await text).toBeInstanceOf(Rejection);
  exchange.answer({ status: 201, body: '{}' });
  expect(answers).toEqual([]);
  expect(limits.bodies.bytes).toBe(0);
});

test('a body counts towards the common limit from its first chunk until its response', async () => {
  const { exchange, limits, send } = setUp();
  const text = exchange.text();
  send('12345', false);
  expect(limits.bodies.bytes).toBe(5);
  send('67890', true);
  expect(await text).toBe('1234567890');
  expect(limits.bodies.bytes).toBe(10);
  exchange.answer({ status: 201, body: '{}' });
  expect(limits.bodies.bytes).toBe(0);
});

test('only the first response is written, and the exchange settles once', () => {
  const { exchange, answers, settledTimes } = setUp();
  exchange.answer({ status: 201, body: '{}' });
  exchange.answer({ status: 400, body: '{}' });
  exchange.expire();
  exchange.abort();
  expect(answers).toEqual([{ status: 201, close: false }]);
  expect(settledTimes()).toBe(1);
});

test('after its deadline a request gets the response that its steps have set for this case', async () => {
  const { exchange, answers, send } = setUp();
  const text = exchange.text();
  send('{}', true);
  await text;
  exchange.late = new Rejection('outcomeUnknown', 'The commit took too long.');
  exchange.expire();
  expect(answers).toEqual([{ status: 503, close: false }]);
});
