/** What the pages of an app, and the parts of its settings, are given. */
import type { App } from '../src/api-types/answers.ts';
import type { Resource } from './resource.ts';

export interface TabProps {
  readonly appId: string;
  /** The app's details, which a page may start without. */
  readonly app: Resource<App>;
}

/** A part of the settings, with the list that it shows. */
export interface SectionProps<T> {
  readonly app: App;
  readonly resource: Resource<T>;
  /** Called after a change, which the activity then has. */
  readonly onChanged: () => void;
}

export const appPath = (appId: string): string => `/api/apps/${appId}`;
