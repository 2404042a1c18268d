// @ts-check
/**
 * The thread that reads the text of a configuration: parsing YAML takes a second for some hundred KiB, and nobody may wait for it.
 * Plain JavaScript, because the tests of Node 20 load it as it is.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { Ajv } from 'ajv';
import { isMap, isNode, isScalar, isSeq, LineCounter, parseDocument } from 'yaml';

/** @import { ErrorObject } from 'ajv' */
/** @import { Read } from './parse.ts' */

/** Aliases could make a small text a huge value. */
const MAX_ALIASES = 100;

/** @type {{ text: string, schema: object }} */
const { text, schema } = workerData;
parentPort?.postMessage(read());

/** @returns {Read} */
function read() {
  const counter = new LineCounter();
  // Keys are compared below: the parser compares each with all others of its map.
  const tree = parseDocument(text, { lineCounter: counter, uniqueKeys: false, stringKeys: true });
  const json = text.trimStart().startsWith('{') ? parseJson() : undefined;
  const [error] = tree.errors;
  if (json === undefined && error !== undefined) {
    const [words = ''] = error.message.split(/ at line \d+|:?\n/);
    const first = error.code === 'MULTIPLE_DOCS' ? 'it must be one document, and another begins here' : words;
    return { mistake: { line: counter.linePos(error.pos[0]).line, problem: `is not valid: ${first}` } };
  }
  /** @type {Map<string, number>} */
  const lines = new Map();
  const twice = note(tree.contents, '', counter, lines);
  if (twice !== null) return { mistake: { line: twice, problem: 'is not valid: Map keys must be unique' } };
  try {
    const value = json === undefined ? tree.toJS({ maxAliasCount: MAX_ALIASES }) : json;
    const ajv = new Ajv({ allErrors: true, verbose: true });
    const problem = ajv.validate(schema, value) ? null : deepest(ajv.errors ?? []);
    return { value, lines, problem };
  } catch (thrown) {
    const problem = thrown instanceof Error ? thrown.message : String(thrown);
    return { mistake: { line: 1, problem: `is not valid: ${problem}` } };
  }
}

/** @returns undefined for what is no JSON */
function parseJson() {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Notes the line of a node and of those in it, by JSON Pointer.
 * @param {unknown} node @param {string} pointer @param {LineCounter} counter @param {Map<string, number>} lines
 * @returns {number | null} the line of a key that its map has twice
 */
function note(node, pointer, counter, lines) {
  if (isNode(node) && node.range) lines.set(pointer, counter.linePos(node.range[0]).line);
  if (isSeq(node)) {
    for (const [index, item] of node.items.entries()) {
      const twice = note(item, `${pointer}/${index}`, counter, lines);
      if (twice !== null) return twice;
    }
  }
  if (!isMap(node)) return null;
  const keys = new Set();
  for (const { key, value } of node.items) {
    const name = String(isScalar(key) ? key.value : key);
    const line = isNode(key) && key.range ? counter.linePos(key.range[0]).line : 1;
    if (keys.has(name)) return line;
    keys.add(name);
    const twice = note(
      value,
      `${pointer}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`,
      counter,
      lines,
    );
    if (twice !== null) return twice;
  }
  return null;
}

/**
 * The error that is deepest in the document: of alternatives and wrong types it says most.
 * @param {readonly ErrorObject[]} errors
 */
function deepest(errors) {
  // Of a name that is missing and one that is not known, the latter was typed.
  const rank = (/** @type {ErrorObject} */ { keyword }) => Number(keyword !== 'additionalProperties');
  const [first] = [...errors].sort(
    (a, b) => b.instancePath.length - a.instancePath.length || rank(a) - rank(b),
  );
  if (first === undefined) return null;
  const { data: _, ...error } = first;
  return error;
}
