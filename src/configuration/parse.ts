/** Reads the text of a configuration, YAML or JSON, and says where a mistake is. */
import { Ajv, type ErrorObject } from 'ajv';
import { type Document, LineCounter, parseDocument } from 'yaml';
import { nearest } from '../base/did-you-mean.ts';
import { CONFIG_SCHEMA, type ConfigDocument } from './document.ts';

/** A place in the document: names and indexes from its top on. */
export type Path = readonly (string | number)[];

/** A mistake in a configuration. Its message has the place. */
export class ConfigMistake extends Error {
  override readonly name = 'ConfigMistake';
  /** The place as a JSON Pointer; empty: the document. */
  readonly pointer: string;
  /** From 1 on; null where it is not known. */
  readonly line: number | null;
  /** What is wrong, worded to follow the place. */
  readonly problem: string;

  constructor(path: Path, line: number | null, problem: string) {
    const pointer = pointerOf(path);
    super(`line ${line ?? '?'}: ${pointer === '' ? 'the document' : pointer} ${problem}`);
    this.pointer = pointer;
    this.line = line;
    this.problem = problem;
  }
}

/** A document with the lines of its places. */
export interface ParsedConfig {
  readonly document: ConfigDocument;
  /** The mistake at a place. */
  readonly mistake: (path: Path, problem: string) => ConfigMistake;
}

const ajv = new Ajv({ allErrors: true, verbose: true });
const validate = ajv.compile<ConfigDocument>(CONFIG_SCHEMA);
/** Aliases could make a small text a huge value. */
const MAX_ALIASES = 100;

/**
 * Reads a configuration. JSON is read as such, and as YAML only where a line must be found.
 * @throws ConfigMistake
 */
export function parseConfig(text: string): ParsedConfig {
  const fast = text.trimStart().startsWith('{') ? parseJson(text) : undefined;
  const lines = new LineCounter();
  let parsed: Document | null = null;
  const tree = (): Document => {
    parsed ??= parseDocument(text, { lineCounter: lines, uniqueKeys: true, stringKeys: true });
    return parsed;
  };
  const mistake = (path: Path, problem: string): ConfigMistake =>
    new ConfigMistake(path, lineOf(tree(), lines, path), problem);
  const value = fast === undefined ? contentOf(tree(), lines) : fast;
  if (validate(value)) return { document: value, mistake };
  const { path, problem } = firstProblem(validate.errors ?? []);
  throw mistake(path, problem);
}

/** @returns undefined for what is no JSON; a key that is given twice is found by the YAML parser */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function contentOf(tree: Document, lines: LineCounter): unknown {
  const [error] = tree.errors;
  if (error !== undefined) {
    const [first = ''] = error.message.split(/ at line \d+|:?\n/);
    throw new ConfigMistake([], lines.linePos(error.pos[0]).line, `is not valid: ${first}`);
  }
  try {
    return tree.toJS({ maxAliasCount: MAX_ALIASES });
  } catch (error) {
    throw new ConfigMistake([], 1, `is not valid: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** The line of a place, or of the nearest place around it that is in the text. */
function lineOf(tree: Document, lines: LineCounter, path: Path): number | null {
  for (let length = path.length; length >= 0; length -= 1) {
    const node: unknown = length === 0 ? tree.contents : tree.getIn(path.slice(0, length), true);
    const range = typeof node === 'object' && node !== null && 'range' in node ? node.range : null;
    if (Array.isArray(range) && typeof range[0] === 'number') return lines.linePos(range[0]).line;
  }
  return null;
}

/** The problem that is deepest in the document: of alternatives and wrong types it says most. */
function firstProblem(errors: readonly ErrorObject[]): { path: Path; problem: string } {
  const [error] = [...errors].sort((a, b) => b.instancePath.length - a.instancePath.length);
  if (error === undefined) return { path: [], problem: 'is not valid' };
  const path = pathOf(error.instancePath);
  switch (error.keyword) {
    case 'additionalProperties': {
      const { additionalProperty: name } = error.params as { additionalProperty: string };
      const known = Object.keys((error.parentSchema as { properties: object }).properties);
      const meant = nearest(name, known);
      const advice = meant === null ? `it may be ${known.join(', ')}` : `did you mean ${meant}?`;
      return { path: [...path, name], problem: `is not known: ${advice}` };
    }
    case 'enum': {
      const { allowedValues } = error.params as { allowedValues: readonly unknown[] };
      return { path, problem: `must be ${allowedValues.join(' or ')}` };
    }
    case 'required': {
      const { missingProperty } = error.params as { missingProperty: string };
      return { path, problem: `needs ${missingProperty}` };
    }
    case 'const': {
      return { path, problem: `must be ${JSON.stringify(error.schema)}` };
    }
    default:
      return { path, problem: error.message ?? 'is not valid' };
  }
}

function pathOf(pointer: string): Path {
  return pointer
    .split('/')
    .slice(1)
    .map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}

function pointerOf(path: Path): string {
  return path.map((part) => `/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
}
