/**
 * A rival: uWebSockets.js, and one multi-row INSERT every 5 milliseconds for whatever has arrived; 201 after its commit.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { connect } from '../../src/storage/database/connect.ts';
import { createdAnswer, databaseAddress, REFUSED, Registry, type RivalEvent } from './rival-checks.ts';
import { serveEvents } from './rival-http.ts';

const EVERY_MS = 5;
const CONNECTIONS = 4;
const INSERT = {
  name: 'insert events',
  text: `INSERT INTO bench_rival_events (id, app_id, type_id, created_at, payload)
         SELECT * FROM unnest($1::uuid[], $2::integer[], $3::integer[], $4::timestamptz[], $5::json[])`,
};

const address = databaseAddress();
const pool = new pg.Pool({ ...address, max: CONNECTIONS });
const registry = new Registry(connect(address, { connections: 1, name: 'bench rival' }));
let gathered: { event: RivalEvent; done: (stored: boolean) => void }[] = [];

async function commit(): Promise<void> {
  const batch = gathered;
  gathered = [];
  if (batch.length === 0) return;
  const column = (of: (event: RivalEvent) => unknown): unknown[] => batch.map(({ event }) => of(event));
  const values = [
    column((event) => event.id),
    column((event) => event.appId),
    column((event) => event.typeId),
    column((event) => event.createdAt),
    column((event) => event.payload),
  ];
  const stored = await pool.query({ ...INSERT, values }).then(
    () => true,
    () => false,
  );
  for (const { done } of batch) done(stored);
}

setInterval(() => void commit(), EVERY_MS);
serveEvents(registry, randomUUID, async (event) => {
  const stored = await new Promise<boolean>((done) => {
    gathered.push({ event, done });
  });
  return stored ? createdAnswer(event) : REFUSED;
});
