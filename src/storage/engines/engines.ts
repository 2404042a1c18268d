/** The engines by name. */
import type { Engine } from '../database/engine.ts';
import { citus } from './citus/citus.ts';
import { postgres } from './postgres/postgres.ts';
import type { StorageEngine } from './storage-engine.ts';
import { timescale } from './timescale/timescale.ts';

export const ENGINES: Readonly<Record<Engine, StorageEngine>> = { postgres, timescale, citus };
