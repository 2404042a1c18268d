/** The running release. */
import { readFileSync } from 'node:fs';

export interface Release {
  /** By semantic versioning. */
  readonly version: string;
  /** The commit that it was built from; null in a clone, where the sources may have changed since. */
  readonly commit: string | null;
}

/** Written when a package or an image is made, above src/ and dist/ alike, as package.json is. */
const COMMIT_FILE = new URL('../../.commit', import.meta.url);

/** Reads what this release is. */
export function readRelease(): Release {
  const description: unknown = JSON.parse(
    readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
  );
  const known = typeof description === 'object' && description !== null && 'version' in description;
  return { version: known ? String(description.version) : 'unknown', commit: readCommit() };
}

/** The version alone. */
export function readVersion(): string {
  return readRelease().version;
}

function readCommit(): string | null {
  try {
    return readFileSync(COMMIT_FILE, 'utf8').trim() || null;
  } catch {
    return null;
  }
}
