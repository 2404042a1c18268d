/** What a line of the log never holds, whoever writes it. */
import pg from 'pg';
import { expect, test } from 'vitest';
import { createLog } from '../src/log.ts';

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
