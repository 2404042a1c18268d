/** A finding of one check. */

/** `problem`: data or users are at risk, or the service does not work. `warning`: should be changed. `note`: for information. */
export type Level = 'ok' | 'note' | 'warning' | 'problem';

export interface Finding {
  /** The subject of the check, one word. */
  readonly check: string;
  readonly level: Level;
  /** The finding, a clause without a full stop. */
  readonly found: string;
  /** What to change; null if nothing. */
  readonly advice: string | null;
}

export type Found = Finding | readonly Finding[];

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
