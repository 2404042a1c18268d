/** What a line of the log never holds, whoever writes it. */
import pg from 'pg';
import { expect, test } from 'vitest';
import { createLog } from '../../src/process/log.ts';
import { until } from '../support/service.ts';

/** A log and its lines. */
function captured() {
  const lines: string[] = [];
  return { log: createLog('trace', null, { write: (line) => lines.push(line) }), lines };
}

test('security 13: an error of the database about data is logged without the data', () => {
  const { log, lines } = captured();
  // 22: the value cannot be stored. 23: it breaks a constraint.
  for (const code of ['22P02', '22P05', '23505', '23514']) {
    const error = new pg.DatabaseError('invalid input: "what a producer sent"', 0, 'error');
    const parts = { detail: 'Token "what a producer sent"', where: 'line 1: what a producer sent' };
    log.error({ err: Object.assign(error, { code, constraint: 'events_key' }, parts) }, 'write: failed');
  }
  expect(lines).toHaveLength(4);
  expect(lines.join('')).not.toContain('what a producer sent');
  expect(JSON.parse(lines[2] ?? '').err).toEqual({
    type: 'error',
    code: '23505',
    constraint: 'events_key',
    message: 'data refused by the database',
  });
});

test('security 13: other errors are logged with their message and stack, and without other fields', () => {
  const { log, lines } = captured();
  const error = Object.assign(new Error('connect ECONNREFUSED'), {
    code: 'ECONNREFUSED',
    password: 'a secret',
    query: 'a secret',
  });
  log.warn({ err: error }, 'database: away');
  expect(JSON.parse(lines[0] ?? '').err).toEqual({
    type: 'Error',
    code: 'ECONNREFUSED',
    message: 'connect ECONNREFUSED',
    stack: error.stack,
  });
});

test('security 13: fields that may hold a secret are redacted, also one level down', () => {
  const { log, lines } = captured();
  for (const name of [
    'loggingToken',
    'resourceToken',
    'token',
    'authorization',
    'cookie',
    'password',
    'payload',
    'url',
  ])
    log.info({ [name]: 'a secret', request: { [name]: 'a secret' } }, 'x');
  expect(lines).toHaveLength(8);
  expect(lines.join('')).not.toContain('a secret');
});

test('lines of one text have a rate: the others are counted, and their number follows', async () => {
  const { log, lines } = captured();
  for (let n = 0; n < 50; n++) log.warn({ n }, 'mail: connection to the server failed');
  for (let n = 0; n < 50; n++)
    log.warn({ requestId: n }, 'http: request failed, the database cannot be reached');
  for (let n = 0; n < 50; n++) log.debug('each of these is wanted');
  for (let n = 0; n < 50; n++) log.info({ event: 'sign-in.success' }, 'auth: signed in');
  const counts = (): Record<string, number> => {
    const found: Record<string, number> = {};
    for (const { msg } of lines.map((line) => JSON.parse(line))) found[msg] = (found[msg] ?? 0) + 1;
    return found;
  };
  expect(counts()).toEqual({
    'mail: connection to the server failed': 20,
    'http: request failed, the database cannot be reached': 1,
    'each of these is wanted': 50,
    'auth: signed in': 50,
  });
  const before = lines.length;
  await until(() => lines.length === before + 2, 'the second is over');
  expect(lines.slice(before).map((line) => JSON.parse(line))).toMatchObject([
    { level: 'warn', suppressed: 30, msg: 'mail: connection to the server failed' },
    { level: 'warn', suppressed: 49, msg: 'http: request failed, the database cannot be reached' },
  ]);
  log.warn('mail: connection to the server failed');
  expect(lines).toHaveLength(before + 3);
});
