/**
 * Posts events while something is being broken, keeps a ledger of every answer, and compares it with what is stored.
 *
 *   node stack-ledger.mjs post URL SECONDS FOLDER NAME   sixteen producers; the ledger is FOLDER/NAME.ledger
 *   node stack-ledger.mjs check URL FOLDER               every acknowledged event of all ledgers is there once, no refused one is
 *
 * FOLDER/apps has an answer of `app create --json` in each line, FOLDER/token that of `token create --json`.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const PRODUCERS = 16;
/** Longer than the service takes to answer. */
const TIMEOUT_MS = 40_000;

const [, , mode = '', url = '', ...rest] = process.argv;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const readApps = (folder) =>
  readFileSync(join(folder, 'apps'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));

async function post(seconds, folder, name) {
  const apps = readApps(folder);
  const end = Date.now() + seconds * 1_000;
  const ledger = { acknowledged: [], unknown: [], refused: [] };
  const others = {};
  let sent = 0;
  async function one(key) {
    const { loggingToken } = apps[sent % apps.length];
    const body = JSON.stringify({ loggingToken, typeName: 'load', payload: { key } });
    try {
      const signal = AbortSignal.timeout(TIMEOUT_MS);
      const answer = await fetch(`${url}/public/create_event`, { method: 'POST', body, signal });
      const { eventId, code } = await answer.json();
      if (answer.status === 201) {
        ledger.acknowledged.push([eventId, key]);
        return;
      }
      (code === 'OUTCOME_UNKNOWN' ? ledger.unknown : ledger.refused).push(key);
      others[code] = (others[code] ?? 0) + 1;
    } catch (error) {
      ledger.unknown.push(key);
      const code = error.cause?.code ?? error.message;
      others[code] = (others[code] ?? 0) + 1;
    }
    await pause(100);
  }
  async function producer() {
    while (Date.now() < end) await one(`${name}-${sent++}`);
  }
  await Promise.all(Array.from({ length: PRODUCERS }, producer));
  writeFileSync(join(folder, `${name}.ledger`), JSON.stringify(ledger));
  console.log(`sent ${sent}, acknowledged ${ledger.acknowledged.length}, others`, others);
  if (ledger.acknowledged.length === 0) throw new Error('Nothing was acknowledged: the run says nothing.');
}

/** Event id → key of its payload, and the number of rows. */
async function readAll(folder) {
  const { resourceToken } = JSON.parse(readFileSync(join(folder, 'token'), 'utf8'));
  const headers = { authorization: `Bearer ${resourceToken}` };
  const stored = new Map();
  let rows = 0;
  for (const { appId } of readApps(folder)) {
    for (let offset = 0, more = true; more; ) {
      const query = `appId=${appId}&limit=1000&offset=${offset}`;
      const answer = await fetch(`${url}/public/get_events?${query}`, { headers });
      const { data, code } = await answer.json();
      if (data === undefined) throw new Error(code);
      for (const event of data.events) stored.set(event.id, event.payload.key);
      rows += data.events.length;
      offset += data.events.length;
      more = data.pagination.hasMore;
    }
  }
  return { stored, rows };
}

async function check(folder) {
  const { stored, rows } = await readAll(folder);
  const keys = new Set(stored.values());
  let bad = rows - keys.size;
  console.log(`stored ${rows}, twice ${bad}`);
  for (const name of readdirSync(folder).filter((file) => file.endsWith('.ledger'))) {
    const { acknowledged, unknown, refused } = JSON.parse(readFileSync(join(folder, name), 'utf8'));
    const lost = acknowledged.filter(([id, key]) => stored.get(id) !== key).length;
    const kept = refused.filter((key) => keys.has(key)).length;
    bad += lost + kept;
    console.log(
      `${name}: acknowledged ${acknowledged.length}, lost ${lost}, refused and stored ${kept}, unknown ${unknown.length}`,
    );
  }
  process.exitCode = bad === 0 ? 0 : 1;
}

if (mode === 'post') await post(Number(rest[0]), rest[1], rest[2]);
else await check(rest[0]);
