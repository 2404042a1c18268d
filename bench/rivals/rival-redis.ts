/**
 * A rival: uWebSockets.js in front of a Redis stream whose append-only file is synchronised before every answer
 * (appendfsync always). It is durable; it keeps no counts and has no index by app and time.
 */
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import { connect } from '../../src/storage/database/connect.ts';
import { createdAnswer, databaseAddress, Registry } from './rival-checks.ts';
import { serveEvents } from './rival-http.ts';

const redis = new Redis({ path: process.env.BENCH_REDIS ?? '', enableAutoPipelining: true });
const registry = new Registry(connect(databaseAddress(), { connections: 1, name: 'bench rival' }));

serveEvents(registry, randomUUID, async (event) => {
  const { id, appId, typeId, createdAt, payload } = event;
  await redis.xadd(
    'events',
    '*',
    'id',
    id,
    'app',
    appId,
    'type',
    typeId,
    'at',
    createdAt.getTime(),
    'payload',
    payload,
  );
  return createdAnswer(event);
});
