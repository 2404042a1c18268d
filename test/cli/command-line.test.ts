/** What the command line says of itself: help, version, manual page, completion. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { commandLine } from '../../src/cli/command-line.ts';
import { LAUNCHER } from '../support/command-line.ts';

function tidemark(...args: string[]): { status: number | null; stdout: string; stderr: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [LAUNCHER, ...args], { encoding: 'utf8' });
  return { status, stdout, stderr: stderr.replace('tidemark: building\n', '') };
}

/** Every command that does something, as it is typed. */
function allCommands(): string[] {
  const paths: string[] = [];
  const walk = (command: ReturnType<typeof commandLine>, path: string): void => {
    const below = command.commands.filter((child) => child.name() !== 'complete');
    if (below.length === 0) paths.push(path);
    for (const child of below) walk(child, `${path} ${child.name()}`);
  };
  walk(commandLine(), 'tidemark');
  return paths;
}

test('without a command it prints its help with three examples, and succeeds', () => {
  const { status, stdout, stderr } = tidemark();
  expect([status, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^Usage: tidemark/);
  expect(stdout.match(/^ {2}tidemark \w+.* {2,}\w/gm)).toHaveLength(3);
});

test('an unknown command is refused by its name', () => {
  expect(tidemark('sevre')).toEqual({ status: 1, stdout: '', stderr: "tidemark: unknown command 'sevre'\n" });
});

test('the version is that of package.json', () => {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  expect(tidemark('--version')).toEqual({ status: 0, stdout: `${version}\n`, stderr: '' });
});

test('the manual page has every command and setting, and groff finds nothing wrong with it', () => {
  const page = tidemark('man').stdout;
  const shown = execFileSync('groff', ['-man', '-Tutf8', '-P-cbou'], {
    input: page,
    encoding: 'utf8',
  });
  for (const command of allCommands()) expect(shown).toContain(command);
  expect(shown).toMatch(/^ {7}DATABASE_URL$/m);
  const warned = spawnSync('groff', ['-man', '-Tutf8', '-z', '-ww'], { input: page, encoding: 'utf8' });
  expect(warned.stderr).toBe('');
});

test.each([
  ['', 'serve'],
  ['app ', 'create'],
  ['app create --', '--owner'],
])('bash completes "tidemark %s" with %s', (typed, expected) => {
  const words = ['tidemark', ...typed.split(' ')];
  const script = `
    tidemark() { ${process.execPath} ${LAUNCHER} "$@"; }
    # The package bash-completion has this one; of its options only "which words there are" is needed here.
    _get_comp_words_by_ref() { words=("\${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=\${words[cword]}; }
    source <(tidemark completion bash)
    COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}
    COMP_LINE='tidemark ${typed}'; COMP_POINT=\${#COMP_LINE}
    eval "$(complete -p tidemark | sed -E 's/.*-F ([^ ]+).*/\\1/')"
    printf '%s\\n' "\${COMPREPLY[@]}"`;
  const completed = execFileSync('bash', ['-c', script], { encoding: 'utf8' });
  expect(completed.split('\n').map((line) => line.trim().split(/\s/)[0])).toContain(expected);
});

test.each(['zsh', 'fish'])('there is a completion for %s', (shell) => {
  expect(tidemark('completion', shell).stdout).toContain('tidemark');
});
