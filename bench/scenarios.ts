/** The table of scenarios, in the order in which `npm run bench` runs them. */
import type { Scenario } from './scenario.ts';
import { BAD_INPUT } from './scenarios/bad-input.ts';
import { COMPARISONS } from './scenarios/comparisons.ts';
import { FLEET } from './scenarios/fleet.ts';
import { LIMITS } from './scenarios/limits.ts';
import { NEW_TYPES } from './scenarios/new-types.ts';
import { SATURATE } from './scenarios/saturate.ts';

export const SCENARIOS: readonly Scenario[] = [
  ...COMPARISONS,
  ...LIMITS,
  FLEET,
  SATURATE,
  NEW_TYPES,
  BAD_INPUT,
];
