/** Reads the text of a configuration, YAML or JSON, and says where a mistake is. */
import { Worker } from 'node:worker_threads';
import type { ErrorObject } from 'ajv';
import { nearest } from '../base/did-you-mean.ts';
import { withTimeout } from '../base/timeout.ts';
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
    super(`${line === null ? '' : `line ${line}: `}${pointer === '' ? 'the document' : pointer} ${problem}`);
    this.pointer = pointer;
    this.line = line;
    this.problem = problem;
  }
}

/** A document with the lines of its places. */
export interface ParsedConfig {
  readonly document: ConfigDocument;
  readonly mistake: (path: Path, problem: string) => ConfigMistake;
}

/** What the thread has read. */
export type Read =
  | { readonly mistake: { readonly line: number | null; readonly problem: string } }
  | {
      readonly value: unknown;
      /** JSON Pointer → line, from 1 on. */
      readonly lines: ReadonlyMap<string, number>;
      /** What is wrong with the value; null: it is a configuration. */
      readonly problem: Omit<ErrorObject, 'data'> | null;
    };

/**
 * Levels of brackets and columns of indentation: parsers recurse, and at the end of the stack the engine ends the process, whatever the
 * thread.
 */
const MAX_DEPTH = 200;
/** A thread that reads for so long is ended: the longest document takes some seconds. */
const TIMEOUT_MS = 60_000;
const RESOURCES = { maxOldGenerationSizeMb: 256, maxYoungGenerationSizeMb: 64 };

/**
 * Reads a configuration, YAML or JSON, in a thread.
 * @throws ConfigMistake
 */
export async function parseConfig(text: string): Promise<ParsedConfig> {
  const deep = tooDeepAt(text);
  if (deep !== null)
    throw new ConfigMistake([], deep, `is not valid: it may be nested at most ${MAX_DEPTH} levels deep`);
  const read = await readInThread(text);
  if ('mistake' in read) throw new ConfigMistake([], read.mistake.line, read.mistake.problem);
  const { value, lines, problem } = read;
  const mistake = (path: Path, what: string): ConfigMistake =>
    new ConfigMistake(path, lineOf(lines, path), what);
  // The thread has validated it.
  if (problem === null) return { document: value as ConfigDocument, mistake };
  const found = problemOf(problem);
  throw mistake(found.path, found.problem);
}

/**
 * @returns the line of what is nested too deep, from 1 on; null: nothing is. Brackets count in quotes, too, which no configuration has so
 *   many of.
 */
function tooDeepAt(text: string): number | null {
  let [depth, line, column, isIndentation] = [0, 1, 0, true];
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at] ?? '';
    if (char === '\n') [line, column, isIndentation] = [line + 1, 0, true];
    else if (isIndentation) {
      isIndentation = BLANKS.includes(char) || ('-?:'.includes(char) && BLANKS.includes(text[at + 1] ?? 'x'));
      if (isIndentation) column += 1;
    }
    if (char === '[' || char === '{') depth += 1;
    else if ((char === ']' || char === '}') && depth > 0) depth -= 1;
    if (depth > MAX_DEPTH || column > MAX_DEPTH) return line;
  }
  return null;
}

const BLANKS = ' \t';

async function readInThread(text: string): Promise<Read> {
  const file = new URL('./config-thread.js', import.meta.url);
  const worker = new Worker(file, {
    ...{ workerData: { text, schema: CONFIG_SCHEMA }, resourceLimits: RESOURCES, env: {}, execArgv: [] },
  });
  const failed = (problem: string): Read => ({ mistake: { line: null, problem } });
  const read = new Promise<Read>((resolve) => {
    worker.on('message', resolve);
    worker.on('error', (error) => resolve(failed(`cannot be read: ${error.message}`)));
    worker.on('exit', () => resolve(failed('cannot be read: the thread has ended')));
  });
  try {
    return await withTimeout(read, TIMEOUT_MS, failed('takes too long to be read: make it shorter'));
  } finally {
    await worker.terminate();
  }
}

/** The line of a place, or of the nearest place around it that is in the text. */
function lineOf(lines: ReadonlyMap<string, number>, path: Path): number | null {
  for (let length = path.length; length >= 0; length -= 1) {
    const line = lines.get(pointerOf(path.slice(0, length)));
    if (line !== undefined) return line;
  }
  return null;
}

function problemOf(error: Omit<ErrorObject, 'data'>): { path: Path; problem: string } {
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
    case 'type': {
      const type = [error.schema].flat().join(' or ');
      return { path, problem: `must be ${/^[aio]/.test(type) ? 'an' : 'a'} ${type}` };
    }
    case 'minimum': {
      return { path, problem: `must be at least ${String(error.schema)}` };
    }
    case 'maximum': {
      return { path, problem: `must be at most ${String(error.schema)}` };
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
