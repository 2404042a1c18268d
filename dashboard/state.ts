/** What all pages share: who is signed in, the theme, the time that relative ranges end at, and short notices. */
import type { Session } from '../src/api-types/answers.ts';
import { asProblem, call, type Problem, whenSignedOut } from './api.ts';
import { forgetAll } from './resource.ts';
import { signal } from './signal.ts';

/** Null until the server has answered. */
export const session = signal<Session | null>(null);
export const sessionProblem = signal<Problem | null>(null);
/** Set while requests wait for a session that has ended to be renewed; called with whether it was. */
export const renewal = signal<((isRenewed: boolean) => void) | null>(null);
/** Incremented by each renewal, so that live feeds open again. */
export const renewals = signal(0);

/** The instant that relative ranges end at; moved by refreshing and by navigating. */
export const now = signal(Date.now());

/** A notice at the bottom of the page, which disappears after some seconds and is announced to screen readers. */
export const notice = signal('');
let noticeTimer = 0;

/** Takes back what the notice is about, for as long as it is shown; null where that cannot be. */
export const undo = signal<(() => void) | null>(null);

export function notify(text: string, onUndo: (() => void) | null = null): void {
  notice.value = text;
  undo.value = onUndo;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(
    () => {
      notice.value = '';
      undo.value = null;
    },
    onUndo === null ? 4_000 : 10_000,
  );
}

export async function loadSession(): Promise<void> {
  sessionProblem.value = null;
  try {
    session.value = await call<Session>('GET', '/api/session');
  } catch (error) {
    sessionProblem.value = asProblem(error, 'The page could not be set up');
  }
}

/** Clears all data of an account before another one signs in. */
export function forgetUser(): void {
  renewal.value?.(false);
  forgetAll();
  if (session.value !== null) session.value = { ...session.value, user: null };
}

let renewed: Promise<boolean> | null = null;

// The page stays as it is, with what was typed: its requests wait until the user has signed in again.
whenSignedOut(async () => {
  if (session.value?.user == null) {
    forgetUser();
    return false;
  }
  renewed ??= new Promise<boolean>((resolve) => {
    renewal.value = resolve;
  }).then((isRenewed) => {
    renewal.value = renewed = null;
    if (isRenewed) renewals.value += 1;
    return isRenewed;
  });
  return await renewed;
});

export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

export const theme = signal<Theme>(storedTheme(), applyTheme);

/** Storage may be forbidden or full: the choice then lasts as long as the page. */
function storedTheme(): Theme {
  try {
    return THEMES.find((known) => known === localStorage.getItem('theme')) ?? 'system';
  } catch {
    return 'system';
  }
}

function applyTheme(chosen: Theme): void {
  if (chosen === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem('theme', chosen);
  } catch {
    // See storedTheme.
  }
}
