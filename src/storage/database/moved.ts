/** The mark of a database whose data has been moved to another one (storage/copy/): nothing may be written there any more. */

/** The row of `installation` that names the new database. */
export const MOVED_TO = 'moved_to';

/** @param movedTo host and name of the new database */
export function movedMessage(movedTo: string): string {
  return `the data of this database has been moved to ${movedTo}: set DATABASE_URL to it`;
}
