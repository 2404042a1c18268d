/** The table of scenarios, in the order in which `npm run bench` runs them. */
import type { Scenario } from './scenario.ts';
import { BAD_INPUT } from './scenarios/bad-input.ts';
import { BATCHES } from './scenarios/batches.ts';
import { CLUSTER } from './scenarios/cluster.ts';
import { COMPARISONS } from './scenarios/comparisons.ts';
import { DELIVERY } from './scenarios/delivery.ts';
import { ENGINE_SEARCH } from './scenarios/engine-search.ts';
import { ENGINES } from './scenarios/engines.ts';
import { EXPLORE } from './scenarios/explore.ts';
import { EXPORT } from './scenarios/export.ts';
import { FIELDS } from './scenarios/fields.ts';
import { FLEET } from './scenarios/fleet.ts';
import { FORMATS } from './scenarios/formats.ts';
import { HOSTILE, NEIGHBOURS } from './scenarios/hostile.ts';
import { IMPORT } from './scenarios/import.ts';
import { LATENCY } from './scenarios/latency.ts';
import { LIMITS } from './scenarios/limits.ts';
import { MANY_APPS } from './scenarios/many-apps.ts';
import { MIXED } from './scenarios/mixed.ts';
import { COLD_HERD, NEW_TYPES } from './scenarios/new-types.ts';
import { NODES } from './scenarios/nodes.ts';
import { READS } from './scenarios/reads.ts';
import { RETENTION } from './scenarios/retention.ts';
import { SATURATE } from './scenarios/saturate.ts';
import { SCALE } from './scenarios/scale.ts';
import { SEARCH } from './scenarios/search.ts';
import { SERIES } from './scenarios/series.ts';
import { SHARED_LIMITS } from './scenarios/shared-limits.ts';
import { WORKERS_SCENARIO } from './scenarios/workers.ts';

export const SCENARIOS: readonly Scenario[] = [
  ...COMPARISONS,
  ...LIMITS,
  FLEET,
  SATURATE,
  MANY_APPS,
  NODES,
  LATENCY,
  WORKERS_SCENARIO,
  BATCHES,
  ...FORMATS,
  SHARED_LIMITS,
  NEW_TYPES,
  COLD_HERD,
  BAD_INPUT,
  HOSTILE,
  NEIGHBOURS,
  SERIES,
  EXPLORE,
  ...READS,
  SCALE,
  RETENTION,
  FIELDS,
  SEARCH,
  EXPORT,
  ...MIXED,
  IMPORT,
  DELIVERY,
  ENGINES,
  CLUSTER,
  ENGINE_SEARCH,
];
