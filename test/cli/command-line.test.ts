/** What the command line says of itself: help, version, manual page, completion. */

import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { expect, test } from 'vitest';
import { commandLine } from '../../src/cli/command-line.ts';
import { build, LAUNCHER, tidemark } from '../support/command-line.ts';

/** Every command that does something, as it is typed. */
function allCommands(): string[] {
  const paths: string[] = [];
  const walk = (command: Command, path: string): void => {
    const below = command.commands.filter((child) => child.name() !== 'complete');
    if (below.length === 0) paths.push(path);
    for (const child of below) walk(child, `${path} ${child.name()}`);
  };
  walk(commandLine(), 'tidemark');
  return paths;
}

test('without a command it prints its help with three examples, and succeeds', async () => {
  const { code, stdout, stderr } = await tidemark([]);
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^Usage: tidemark/);
  expect(stdout.match(/^ {2}tidemark \w+.* {2,}\w/gm)).toHaveLength(3);
});

test('an unknown command is refused by its name', async () => {
  for (const [args, problem] of [
    [['sevre'], "unknown command 'sevre': did you mean serve?"],
    [['app', 'nope', '--help'], "unknown command 'app nope': see tidemark app --help"],
    [['app', 'lst', '--json'], "unknown command 'app lst': did you mean list?"],
    [['app', 'create', '--nme', 'x'], "unknown option '--nme': did you mean --name?"],
    [['app', 'list', '--prot', '1'], "unknown option '--prot': did you mean --port?"],
    [['serve', '-p', '1'], "unknown option '-p': see tidemark serve --help"],
  ] as const) {
    expect(await tidemark(args)).toEqual({ code: 2, stdout: '', stderr: `tidemark: ${problem}\n` });
  }
});

test('settings are taken from options and from a file: an option wins over the environment, and that over the file', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidemark-arguments-'));
  try {
    const file = join(folder, 'tidemark.env');
    writeFileSync(file, `# of systemd\nDATA_DIR="${folder}/of file"\n\n; PORT=1\nPUBLIC_URL=nonsense#1\n`);
    const told = async (args: readonly string[], settings = {}): Promise<string> =>
      (await tidemark(args, settings)).stderr;
    expect(await told(['app', 'list', '--env-file', file])).toContain('PUBLIC_URL: must be an address');
    expect(await told(['app', 'list', '--env-file', file, '--public-url='])).toContain(`${folder}/of file:`);
    const settings = { DATA_DIR: `${folder}/of environment` };
    expect(await told([`--env-file=${file}`, 'app', 'list', '--public-url', ''], settings)).toContain(
      'of environment:',
    );
    expect(await told(['app', 'list', '--data-dir', `${folder}/of option`], settings)).toContain(
      'of option:',
    );
    expect(await told(['serve', '--port', 'x'])).toContain('PORT: must be a whole number');
    expect(await told(['serve', '--database-url=postgres://me:secret@host/db'])).toMatch(
      /^tidemark: --database-url: set the environment variable DATABASE_URL, .*others can see/,
    );
    // Of two lines with a name the last one counts, as for systemd.
    writeFileSync(file, `DATA_DIR=${folder}/first\nDATA_DIR=${folder}/last\n`);
    expect(await told(['app', 'list', '--env-file', file])).toContain(`${folder}/last:`);
    writeFileSync(file, 'PORT=1\nnonsense\n');
    expect(await told(['app', 'list', '--env-file', file])).toContain('line 2: must be NAME=value');
    expect(await told(['app', 'list', '--env-file', join(folder, 'gone')])).toContain('cannot be read');
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test('the manual page has every command and setting, and groff finds nothing wrong with it', async () => {
  const page = (await tidemark(['man'])).stdout;
  const shown = execFileSync('groff', ['-man', '-Tutf8', '-P-cbou'], {
    input: page,
    encoding: 'utf8',
  });
  for (const command of allCommands()) expect(shown).toContain(command);
  expect(shown).toMatch(/^ {7}DATABASE_URL$/m);
  const warned = spawnSync('groff', ['-man', '-Tutf8', '-z', '-ww'], { input: page, encoding: 'utf8' });
  expect(warned.stderr).toBe('');
});

test('bash completes commands and options', () => {
  build();
  const expected = { '': 'serve', 'app create --': '--owner' };
  const completions = Object.keys(expected).map((typed) => {
    const words = ['tidemark', ...typed.split(' ')];
    return `
    COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}
    COMP_LINE='tidemark ${typed}'; COMP_POINT=\${#COMP_LINE}; COMPREPLY=()
    eval "$(complete -p tidemark | sed -E 's/.*-F ([^ ]+).*/\\1/')"
    printf '%s\\n' "\${COMPREPLY[@]}" END`;
  });
  const script = `
    tidemark() { ${process.execPath} ${LAUNCHER} "$@"; }
    # The package bash-completion has this one; of its options only "which words there are" is needed here.
    _get_comp_words_by_ref() { words=("\${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=\${words[cword]}; }
    source <(tidemark completion bash)
    ${completions.join('\n')}`;
  const completed = execFileSync('bash', ['-c', script], { encoding: 'utf8' }).split('END\n');
  for (const [index, [typed, word]] of Object.entries(expected).entries()) {
    const offered = completed[index]?.split('\n').map((line) => line.trim().split(/\s/)[0]);
    expect(offered, `tidemark ${typed}`).toContain(word);
  }
});

test.each(['zsh', 'fish'])('there is a completion for %s', async (shell) => {
  expect((await tidemark(['completion', shell])).stdout).toContain('tidemark');
});

/** What a module of src loads before it runs: the packages, through all modules that are not loaded on demand. */
function packagesOf(entry: string): Set<string> {
  const packages = new Set<string>();
  const seen = new Set<string>();
  const visit = (file: string): void => {
    if (seen.has(file)) return;
    seen.add(file);
    const imports = readFileSync(file, 'utf8').matchAll(/^(?:im|ex)port (?!type )[^;]*?from '([^']+)';$/gm);
    for (const [text, from = ''] of imports) {
      const names = /^\w+ \{([^}]*)\}/
        .exec(text)?.[1]
        ?.split(',')
        .filter((name) => name.trim() !== '');
      if (names?.every((name) => name.trim().startsWith('type '))) continue;
      if (from.startsWith('.')) visit(join(dirname(file), from));
      else if (!from.startsWith('node:')) packages.add(from);
    }
  };
  visit(entry);
  return packages;
}

test('a command does not wait for packages that only the service or other commands need', () => {
  const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
  const service = fileURLToPath(new URL('../../src/serve.ts', import.meta.url));
  expect([...packagesOf(service)]).toEqual(expect.arrayContaining(['ajv', 'pino', '@node-rs/argon2']));
  expect([...packagesOf(main)].sort()).toEqual([
    '@bomb.sh/tab/commander',
    'commander',
    'lru-cache',
    'pg',
    'pg-copy-streams',
    'postgres',
    'postgres-array',
  ]);
});
