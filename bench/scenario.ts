/** What a scenario is, and what it is run with. */
import type { Findings } from './findings.ts';
import type { Workbench } from './servers/workbench.ts';

/** How long a run may take: everything; shorter rounds and fewer; the least that proves the work. */
export type Length = 'full' | 'quick' | 'smoke';

export interface RunOptions {
  readonly length: Length;
  /** Events stored for the scenarios that read. */
  readonly events: number;
  /** Where the service's CPU profile goes; null where none is wanted. */
  readonly profileFolder: string | null;
}

export interface Scenario {
  readonly name: string;
  /** One sentence: what it does and what it shows. */
  readonly about: string;
  /** Neighbors in the table that name the same thing here work on one workbench: what one has filled in the next finds. */
  readonly shares?: string;
  readonly run: (bench: Workbench, findings: Findings, options: RunOptions) => Promise<void>;
}

/** One value for each length of a run. */
export function byLength<T>(options: RunOptions, values: Readonly<Record<Length, T>>): T {
  return values[options.length];
}
