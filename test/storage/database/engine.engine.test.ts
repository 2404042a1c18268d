import { expect, test } from 'vitest';
import { chooseEngine } from '../../../src/storage/database/engine.ts';
import { availableEngines, testDatabase } from '../../support/database.ts';
import { startTestService } from '../../support/service.ts';

const engines = availableEngines();

test.each(engines)('%s: /readyz names the engine and its version', async (engine) => {
  const service = await startTestService({ engine });
  try {
    const { body } = await service.request({ method: 'GET', path: '/readyz' });
    const name =
      engine === 'timescale' ? /^TimescaleDB \d+\.\d+\.\d+ on PostgreSQL \d+\.\d+$/ : /^PostgreSQL \d+\.\d+$/;
    expect(JSON.parse(body)).toMatchObject({ status: 'ready', engine: expect.stringMatching(name) });
  } finally {
    await service.stop();
  }
});

test.each(engines.filter((engine) => engine !== 'timescale'))(
  '%s: PostgreSQL without the extension is used as it is, without a word',
  async (engine) => {
    const database = await testDatabase(engine, { empty: true });
    expect(await chooseEngine(database.sql)).toMatchObject({ engine: 'postgres', note: null });
    await database.drop();
  },
);
