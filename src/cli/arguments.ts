/**
 * What is read of the arguments before the commands see them: settings, from --env-file and as options, and names that nothing
 * has, with the one that was meant.
 */
import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { nearest } from '../base/did-you-mean.ts';
import { SETTINGS } from '../config.ts';
import { OperatorError, WrongInput } from '../errors.ts';

type Environment = Record<string, string | undefined>;

const ENV_FILE = '--env-file';
const HELP = '--help';

/** Settings that are or may hold a secret: other users of a machine see the arguments of its processes. */
const SECRETS: readonly string[] = [
  'SECRET',
  'METRICS_TOKEN',
  'DATABASE_URL',
  'REDIS_URL',
  'SMTP_URL',
  'AWS_SECRET_ACCESS_KEY',
  'AWS_SESSION_TOKEN',
  'OIDC_CLIENT_SECRET',
];

/**
 * Puts the settings of `--env-file FILE` and of options such as `--port 19500` into the environment: an option wins over the
 * environment, and that over the file.
 * @param given the arguments, without those of Node
 * @returns the arguments for the commands
 * @throws WrongInput for an unknown command or option, a setting that must not be an argument; OperatorError for a file that cannot be read
 */
export function readArguments(
  program: Command,
  given: readonly string[],
  environment: Environment,
): string[] {
  const kept: string[] = [];
  const chosen: Record<string, string> = {};
  const left = [...given];
  let command = program;
  for (let argument = left.shift(); argument !== undefined; argument = left.shift()) {
    if (argument === '--' || (argument === 'help' && command === program))
      return [...kept, argument, ...left];
    if (!argument.startsWith('-') || argument === '-') {
      kept.push(argument);
      command = belowOf(command, argument);
      continue;
    }
    const [name = '', inline] = argument.startsWith('--') ? split(argument) : [argument];
    const requireValue = (): string => {
      const value = inline ?? left.shift();
      if (value === undefined) throw new WrongInput(`${name} needs a value`);
      return value;
    };
    const option = command.options.find(({ long, short }) => long === name || short === name);
    if (name === ENV_FILE) {
      for (const [key, value] of Object.entries(readEnvironmentFile(requireValue())))
        environment[key] ??= value;
    } else if (option !== undefined) {
      kept.push(argument);
      if (option.required && inline === undefined) kept.push(...left.splice(0, 1));
    } else if (name === HELP) {
      kept.push(argument);
    } else {
      const setting = settingOf(name);
      if (setting === null) throw unknownOption(command, name);
      if (SECRETS.includes(setting))
        throw new WrongInput(
          `${name}: set the environment variable ${setting}, or write it into a file for ${ENV_FILE}: others can see the arguments of a process`,
        );
      chosen[setting] = requireValue();
    }
  }
  Object.assign(environment, chosen);
  return kept;
}

function split(argument: string): [string, string?] {
  const at = argument.indexOf('=');
  return at < 0 ? [argument] : [argument.slice(0, at), argument.slice(at + 1)];
}

/** The command that an operand names, or the same one where it takes operands. */
function belowOf(command: Command, name: string): Command {
  if (command.commands.length === 0) return command;
  const found = command.commands.find((below) => below.name() === name || below.aliases().includes(name));
  if (found !== undefined) return found;
  const path = pathOf(command);
  const meant = nearest(
    name,
    command.commands.map((below) => below.name()),
  );
  throw new WrongInput(`unknown command '${[...path, name].join(' ')}': ${adviceOf(meant, path)}`);
}

function unknownOption(command: Command, name: string): WrongInput {
  const known = command.options.flatMap(({ long }) => long ?? []);
  const meant = nearest(name, [...known, ENV_FILE, HELP, ...Object.keys(SETTINGS).map(optionOf)]);
  return new WrongInput(`unknown option '${name}': ${adviceOf(meant, pathOf(command))}`);
}

function adviceOf(meant: string | null, path: readonly string[]): string {
  return meant === null ? `see ${['tidemark', ...path, HELP].join(' ')}` : `did you mean ${meant}?`;
}

function pathOf(command: Command): string[] {
  return command.parent === null ? [] : [...pathOf(command.parent), command.name()];
}

/** `--data-dir` for DATA_DIR. */
function optionOf(setting: string): string {
  return `--${setting.toLowerCase().replaceAll('_', '-')}`;
}

function settingOf(option: string): string | null {
  return Object.keys(SETTINGS).find((setting) => optionOf(setting) === option) ?? null;
}

/**
 * The variables of a file as systemd's EnvironmentFile has them: `NAME=value` a line, comments begin with # or ;, and a value may
 * be in quotes. Of several lines with a name the last one counts.
 */
function readEnvironmentFile(path: string): Readonly<Record<string, string>> {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new OperatorError(
      `${ENV_FILE} ${path} cannot be read: ${error instanceof Error ? error.message : error}`,
    );
  }
  const variables = text.split('\n').flatMap((line, index): [string, string][] => {
    const trimmed = line.trim();
    if (trimmed === '' || /^[#;]/.test(trimmed)) return [];
    const [, name, value = ''] = /^(?:export\s)?([A-Za-z_]\w*)=(.*)$/.exec(trimmed) ?? [];
    if (name === undefined)
      throw new OperatorError(`${ENV_FILE} ${path}, line ${index + 1}: must be NAME=value`);
    return [[name, unquoted(value)]];
  });
  return Object.fromEntries(variables);
}

function unquoted(value: string): string {
  const quote = value.charAt(0);
  if (value.length < 2 || !/^["']/.test(quote) || !value.endsWith(quote)) return value;
  const inner = value.slice(1, -1);
  return quote === '"' ? inner.replace(/\\(.)/g, '$1') : inner;
}
