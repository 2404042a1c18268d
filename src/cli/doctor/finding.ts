/** What the doctor says of one thing that it looked at. */

/** `problem`: data or people are at risk, or it does not work. `warning`: it should be changed. `note`: a decision to know of. */
export type Level = 'ok' | 'note' | 'warning' | 'problem';

export interface Finding {
  /** The thing that was looked at, one word. */
  readonly check: string;
  readonly level: Level;
  /** What was found, a sentence without its full stop. */
  readonly found: string;
  /** What to change, null where there is nothing to change. */
  readonly advice: string | null;
}

export function ok(check: string, found: string): Finding {
  return { check, level: 'ok', found, advice: null };
}

export function note(check: string, found: string, advice: string | null = null): Finding {
  return { check, level: 'note', found, advice };
}

export function warning(check: string, found: string, advice: string): Finding {
  return { check, level: 'warning', found, advice };
}

export function problem(check: string, found: string, advice: string): Finding {
  return { check, level: 'problem', found, advice };
}
