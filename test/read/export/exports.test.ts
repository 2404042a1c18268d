/** How many exports run: those that begin in one turn of the event loop are counted before their responses are open. */
import { expect, test } from 'vitest';
import { Rejection } from '../../../src/errors.ts';
import { AnswerStream, type StreamWire } from '../../../src/http/stream.ts';
import { Exports } from '../../../src/read/export/exports.ts';
import { captured } from '../../support/service.ts';

const REFUSAL = new Rejection('eventTypeNotFound', 'There is no such type.');

test('one that cannot be prepared gives its place back, and one that is being prepared has it', async () => {
  const exports = new Exports(captured([]));
  expect(await exports.admit([1, 'token 1'], async () => REFUSAL)).toBe(REFUSAL);
  await expect(
    exports.admit([1, 'token 1'], () => Promise.reject(new Error('no database'))),
  ).rejects.toThrow();
  expect(exports.running).toBe(0);
  const waiting = Array.from({ length: 2 }, () => exports.admit([1, 'token 1'], () => new Promise(() => {})));
  expect(waiting).toHaveLength(2);
  expect(await exports.admit([1, 'token 1'], async () => 1)).toMatchObject({ reason: 'tooManyExports' });
});

/** An export that is being sent to a reader that takes nothing. */
async function begin(exports: Exports, account: number, token: string) {
  const admitted = await exports.admit([account, token], async () => 1);
  if (admitted instanceof Rejection) return admitted;
  let cut = 0;
  const wire: StreamWire = {
    unsentBytes: 0,
    write: () => undefined,
    end: () => undefined,
    destroy: () => {
      cut += 1;
    },
    whenTaken: () => undefined,
  };
  const stream = new AnswerStream(wire, { hasRoom: () => true, onClosed: () => undefined, isFinite: true });
  const body = (async function* () {
    yield Buffer.from('an event');
  })();
  void exports.send(admitted.admission, stream, body, async () => true);
  return { isCut: () => cut === 1 };
}

test('the tokens of an account have four together, and its fifth is refused while others get theirs', async () => {
  const exports = new Exports(captured([]));
  for (let n = 0; n < 4; n += 1) expect(await begin(exports, 1, `token ${n}`)).not.toBeInstanceOf(Rejection);
  expect(await begin(exports, 1, 'token 4')).toMatchObject({ reason: 'tooManyExports' });
  expect(await begin(exports, 2, 'token 5')).not.toBeInstanceOf(Rejection);
});

test('where all sixteen run, the account with most of them makes room for one that has fewer', async () => {
  const exports = new Exports(captured([]));
  const running: Awaited<ReturnType<typeof begin>>[] = [];
  for (let n = 0; n < 16; n += 1) running.push(await begin(exports, Math.floor(n / 4), `token ${n}`));
  expect(await begin(exports, 9, 'token of another')).not.toBeInstanceOf(Rejection);
  const cut = running.map((one) => !(one instanceof Rejection) && one.isCut());
  expect(cut.indexOf(true)).toBe(3);
  expect(cut.filter(Boolean)).toHaveLength(1);
  expect(exports.running).toBe(16);
  await new Promise(setImmediate);
  expect(exports.ended.made_room).toBe(1);
});
