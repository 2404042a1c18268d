/**
 * Prints the CHANGELOG's section of a release. Ends with 1 where the tag is not that of package.json, or has no section.
 *
 *     node .github/release-notes.mjs v1.2.3
 */
import { readFileSync } from 'node:fs';

const [tag = ''] = process.argv.slice(2);
const root = new URL('../', import.meta.url);
const { version } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8'));

function fail(line) {
  process.stderr.write(`release: ${line}\n`);
  process.exit(1);
}

if (tag !== `v${version}`) fail(`the tag ${tag} is not v${version}, the version of package.json`);
const sections = readFileSync(new URL('CHANGELOG.md', root), 'utf8').split(/^## /m);
const section = sections.find((text) => text.split(/\s/, 1)[0] === version);
if (section === undefined) fail(`CHANGELOG.md has no section "## ${version}"`);
const notes = section.slice(section.indexOf('\n')).trim();
if (notes === '') fail(`the section "## ${version}" of CHANGELOG.md is empty`);
process.stdout.write(`${notes}\n`);
