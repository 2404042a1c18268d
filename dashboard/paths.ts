/** The addresses of the dashboard's pages: the browser shows them, and the build writes them down for the server. */

/** Tabs of an app, with their labels; that of the chart and the events has no name in the address. */
export const TABS = [
  ['overview', 'Overview'],
  ['', 'Explore'],
  ['boards', 'Boards'],
  ['types', 'Types'],
  ['fields', 'Fields'],
  ['delivery', 'Alerts & webhooks'],
  ['usage', 'Usage'],
  ['settings', 'Settings'],
] as const;

/** Tabs of earlier releases, whose addresses show the chart and the events. */
export const MOVED_TABS: readonly string[] = ['events', 'chart'];

/** Patterns; a parameter with a question mark may be absent. */
export const PATHS = [
  '/',
  '/sign-in',
  '/sign-up',
  '/setup/:token',
  '/invitations/:token',
  '/email-verifications/:token',
  '/password-reset/:token?',
  '/account',
  '/shared/:token',
  '/apps/:appId/:tab?',
] as const;

export type PagePath = (typeof PATHS)[number];

/** The patterns for the server: without optional parameters, and with each tab by its name. */
export function serverPaths(): string[] {
  const tabs = [...TABS.map(([tab]) => tab).filter((tab) => tab !== ''), ...MOVED_TABS];
  return PATHS.flatMap((path) => {
    if (!path.endsWith('?')) return [path];
    const whole = path.slice(0, path.lastIndexOf('/'));
    return [whole, ...(path.endsWith(':tab?') ? tabs.map((tab) => `${whole}/${tab}`) : [path.slice(0, -1)])];
  });
}
