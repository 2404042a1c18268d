/**
 * What a user would write in an afternoon: Fastify with a schema, a pool of `pg` connections, tokens and types kept in
 * memory, a count a minute and app, and one prepared INSERT a request, answered when it has committed.
 */
import { randomUUID } from 'node:crypto';
import Fastify from 'fastify';
import pg from 'pg';
import { connect } from '../../src/storage/database/connect.ts';
import { announcePort, createdAnswer, databaseAddress, REFUSED, Registry } from './rival-checks.ts';

const INSERT = {
  name: 'insert event',
  text: 'INSERT INTO bench_naive_events (id, app_id, type_id, created_at, payload) VALUES ($1, $2, $3, $4, $5)',
};
/** More do not make it faster on two cores; fewer commit less in a group. */
const CONNECTIONS = 20;
/** Lifted, as the service's limit is where it is compared; the counting stays. */
const LIMIT_PER_MINUTE = Number.POSITIVE_INFINITY;

interface Body {
  readonly loggingToken: string;
  readonly typeId: string;
  readonly payload: object;
}

const SCHEMA = {
  type: 'object',
  required: ['loggingToken', 'typeId', 'payload'],
  properties: { loggingToken: { type: 'string' }, typeId: { type: 'string' }, payload: { type: 'object' } },
} as const;

const address = databaseAddress();
const pool = new pg.Pool({ ...address, max: CONNECTIONS });
const registry = new Registry(connect(address, { connections: 1, name: 'bench naive' }));
const windows = new Map<number, { minute: number; requests: number }>();

function isOverLimit(appId: number): boolean {
  const minute = Math.floor(Date.now() / 60_000);
  const window = windows.get(appId);
  if (window?.minute !== minute) {
    windows.set(appId, { minute, requests: 1 });
    return false;
  }
  window.requests += 1;
  return window.requests > LIMIT_PER_MINUTE;
}

const app = Fastify({ bodyLimit: 1_048_576 });
app.post<{ Body: Body }>('/public/create_event', { schema: { body: SCHEMA } }, async (request, reply) => {
  const { loggingToken, typeId: publicTypeId, payload } = request.body;
  const appId = await registry.appOf(loggingToken);
  if (appId === null) return reply.code(401).send(REFUSED);
  if (isOverLimit(appId)) return reply.code(429).send(REFUSED);
  const typeId = await registry.typeOf(appId, publicTypeId);
  if (typeId === null) return reply.code(404).send(REFUSED);
  const event = { id: randomUUID(), publicTypeId, createdAt: new Date() };
  await pool.query({
    ...INSERT,
    values: [event.id, appId, typeId, event.createdAt, JSON.stringify(payload)],
  });
  return reply.code(201).send(createdAnswer(event));
});

await app.listen({ host: '127.0.0.1', port: 0 });
const listening = app.server.address();
if (listening === null || typeof listening === 'string') throw new Error('no TCP port');
announcePort(listening.port);
