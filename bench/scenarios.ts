/** The table of scenarios, in the order in which `npm run bench` runs them. */
import type { Scenario } from './scenario.ts';
import { COMPARISONS } from './scenarios/comparisons.ts';
import { SATURATE } from './scenarios/saturate.ts';

export const SCENARIOS: readonly Scenario[] = [...COMPARISONS, SATURATE];
