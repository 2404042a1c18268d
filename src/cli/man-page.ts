/** The manual page, in the macros of man(7), made from the help of the commands. */
import type { Command, Help } from 'commander';
import { SETTINGS } from '../config.ts';
import { readVersion } from '../process/version.ts';

/**
 * Writes the manual page of a program.
 * @returns roff with the macros of man(7)
 */
export function manPage(program: Command): string {
  const help = program.createHelp();
  const name = program.name();
  const commands = help.visibleCommands(program).filter((command) => command.name() !== 'help');
  return [
    `.TH ${name.toUpperCase()} 1 "" "${name} ${readVersion()}" "User Commands"`,
    '.SH NAME',
    `${name} \\- ${text(program.description().replace(/\.$/, ''))}`,
    '.SH SYNOPSIS',
    `.B ${name}`,
    '.I command',
    '[options]',
    '.SH DESCRIPTION',
    'Without a command it prints its help. A failure prints one line on standard error and ends with exit code 1.',
    'With \\-\\-json a command prints one JSON object on standard output.',
    '.SH COMMANDS',
    ...commands.flatMap((command) => section(help, command, name)),
    '.SH ENVIRONMENT',
    ...Object.entries(SETTINGS).flatMap(([setting, { default: value, unit, meaning }]) => [
      '.TP',
      `.B ${text(setting)}`,
      text(`${meaning} Default: ${[value, unit].filter((part) => part !== '').join(' ') || 'empty'}.`),
    ]),
    '',
  ].join('\n');
}

/** A command with its options; one with commands of its own, these. */
function section(help: Help, command: Command, parents: string): string[] {
  const path = `${parents} ${command.name()}`;
  const below = help.visibleCommands(command).filter((child) => child.name() !== 'help');
  if (below.length > 0) return below.flatMap((child) => section(help, child, path));
  return [
    `.SS ${text(`${path} ${argumentsOf(command)}`.trimEnd())}`,
    text(`${sentence(help.commandDescription(command))}`),
    ...help
      .visibleOptions(command)
      .filter((option) => option.long !== '--help')
      .flatMap((option) => [
        '.TP',
        `.B ${text(help.optionTerm(option))}`,
        text(sentence(help.optionDescription(option))),
      ]),
  ];
}

function argumentsOf(command: Command): string {
  return command.registeredArguments
    .map((argument) => {
      const shown = argument.variadic ? `${argument.name()}...` : argument.name();
      return argument.required ? `<${shown}>` : `[${shown}]`;
    })
    .join(' ');
}

function sentence(words: string): string {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}${words.endsWith('.') ? '' : '.'}`;
}

/** Text of roff: a backslash and a hyphen are characters, and no line is a macro; what is not ASCII is named by its code. */
function text(words: string): string {
  return words
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^[.']/, '\\&$&')
    .replaceAll('\n', ' ')
    .replace(/[^ -~]/gu, (character) => {
      const code = (character.codePointAt(0) ?? 0).toString(16).toUpperCase();
      return `\\[u${code.padStart(4, '0')}]`;
    });
}
