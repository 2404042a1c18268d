/** Reads of archived days on one server. */
import { describe } from 'vitest';
import { removeExpiredWith } from '../../src/storage/engines/timescale/app-removal.ts';
import { availableEngines } from '../support/database.ts';
import { fieldDatabase } from '../support/field-database.ts';
import { upkeepOf } from '../support/upkeep.ts';
import { archivedReads, deleteRows } from './archived-reads.contract.ts';

describe.each(availableEngines())('with %s', (engine) => {
  const { settle } = upkeepOf(engine);
  const isCoarse = engine === 'timescale';
  archivedReads((time) => fieldDatabase(engine, time), {
    countsBy: isCoarse ? 'quarter-hour' : 'minute',
    takeAway: isCoarse
      ? (sql, from, until) =>
          removeExpiredWith(() => settle(sql))(sql, { appId: 1, typeIds: null, from, until }, () => false)
      : deleteRows,
  });
});
