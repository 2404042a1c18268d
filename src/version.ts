/** The running release. */
import { readFileSync } from 'node:fs';

/** From package.json, which is above src/ and dist/ alike. */
export function readVersion(): string {
  const description: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const known = typeof description === 'object' && description !== null && 'version' in description;
  return known ? String(description.version) : 'unknown';
}
