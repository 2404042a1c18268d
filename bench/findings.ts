/** The results of a scenario: figures, ratios that can be judged, checks that must hold. */
import type { Bound } from './judge.ts';

/** Something that was measured, once or once a round. */
export interface Figure {
  readonly name: string;
  readonly unit: string;
  readonly values: readonly number[];
}

/** A figure that means the same on any machine: it was divided by another of the same run. */
export interface Ratio {
  readonly name: string;
  readonly values: readonly number[];
  /** What the project wants it to be, where it has said so. */
  readonly goal?: Bound;
}

/** A goal with a unit: it only means something on the machine that it was set for. */
export interface Goal {
  readonly name: string;
  readonly unit: string;
  readonly value: number;
  readonly bound: Bound;
}

/** A claim about the work itself, which no noise excuses. */
export interface Check {
  readonly claim: string;
  readonly holds: boolean;
  readonly seen: string;
}

export interface ScenarioResult {
  readonly figures: readonly Figure[];
  readonly ratios: readonly Ratio[];
  readonly goals: readonly Goal[];
  readonly checks: readonly Check[];
  /** What a reader must know to understand the figures; what was left out and why. */
  readonly notes: readonly string[];
}

/** Gathers a result. */
export class Findings {
  readonly #figures: Figure[] = [];
  readonly #ratios: Ratio[] = [];
  readonly #goals: Goal[] = [];
  readonly #checks: Check[] = [];
  readonly #notes: string[] = [];

  figure(name: string, unit: string, values: readonly number[]): void {
    this.#figures.push({ name, unit, values });
  }

  ratio(name: string, values: readonly number[], goal?: Bound): void {
    this.#ratios.push({ name, values, ...(goal !== undefined && { goal }) });
  }

  goal(name: string, unit: string, value: number, bound: Bound): void {
    this.#goals.push({ name, unit, value, bound });
  }

  check(claim: string, holds: boolean, seen: string): void {
    this.#checks.push({ claim, holds, seen });
  }

  /** For a claim that is checked again and again: one line, which fails if any of its checks did. */
  checkAll(claim: string, holds: boolean): void {
    const index = this.#checks.findIndex((check) => check.claim === claim);
    const before = this.#checks[index];
    const seen = before === undefined || before.holds ? (holds ? 'each time' : 'not each time') : before.seen;
    const check = { claim, holds: holds && before?.holds !== false, seen };
    if (before === undefined) this.#checks.push(check);
    else this.#checks[index] = check;
  }

  note(text: string): void {
    if (!this.#notes.includes(text)) this.#notes.push(text);
  }

  result(): ScenarioResult {
    return {
      figures: this.#figures,
      ratios: this.#ratios,
      goals: this.#goals,
      checks: this.#checks,
      notes: this.#notes,
    };
  }
}
