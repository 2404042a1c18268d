// @ts-check
/**
 * The thread that compiles schemas and checks payloads: everything that a hostile schema or payload can make slow runs here,
 * and the caller that waits for it ends this thread. Plain JavaScript, because the tests of Node 20 load it as it is.
 */
import { parentPort, workerData } from 'node:worker_threads';
import { Ajv } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { RE2JS } from 're2js';

/** @import { Checked, ThreadItem, ThreadRequest, Violation } from './schema-thread.ts' */
/** @typedef {(payload: unknown) => Violation | null} Check */

/** Characters of the schemas that are kept compiled. Compiled, a schema takes some fifty times as much. */
const CACHE_CHARACTERS = 1_048_576;
/** A request ends before the next item once it has taken this long, so that others get their turn. */
const TURN_MS = 10;
/** What a compilation may take that is not counted as time of a check. */
const FREE_COMPILE_MS = 100;
const MAX_PATH = 200;
const MAX_MESSAGE = 300;
const DRAFT_07 = 'json-schema.org/draft-07/schema';
const DRAFT_2020 = 'json-schema.org/draft/2020-12/schema';

/** Counts what has begun, so that the caller that waits sees whether there is progress: items, and of these the compilations. */
const progress = new Int32Array(workerData);

/** Names the pattern that the engine refuses. */
class PatternError extends Error {}

/**
 * Patterns take time in proportion to the text, whatever they are: there is no backtracking. So lookaround and backreferences
 * do not exist.
 * @param {string} pattern
 */
function linearPattern(pattern) {
  const expression = compilePattern(pattern);
  return {
    /** @param {string} text */
    test: (text) => expression.test(text),
    // Ajv keeps one expression for each text of it.
    toString: () => `/${pattern}/`,
  };
}
linearPattern.code = 'linearPattern';

/** @param {string} pattern */
function compilePattern(pattern) {
  try {
    return RE2JS.compile(RE2JS.translateRegExp(pattern));
  } catch (error) {
    throw new PatternError(
      `the pattern ${JSON.stringify(pattern)} is not one of RE2, which has no lookaround and no backreferences ` +
        `(${error instanceof Error ? error.message : error})`,
    );
  }
}

const COMMON = {
  // Unknown keywords are annotations, as the specification says.
  strict: false,
  // Likewise "format".
  validateFormats: false,
  logger: /** @type {const} */ (false),
};
const OPTIONS = {
  ...COMMON,
  meta: false,
  validateSchema: false,
  addUsedSchema: false,
  // The code of a schema is in proportion to its text.
  inlineRefs: false,
  // Names such as "constructor" are no members that every object has.
  ownProperties: true,
  // 1e400 is a number.
  strictNumbers: false,
  code: { regExp: linearPattern },
};
/** By `$schema` without its scheme and an empty fragment. */
const DRAFTS = new Map([
  [DRAFT_2020, { meta: new Ajv2020(COMMON), create: () => new Ajv2020(OPTIONS) }],
  [DRAFT_07, { meta: new Ajv(COMMON), create: () => new Ajv(OPTIONS) }],
]);

/** @param {unknown} named the schema's `$schema` */
function draftOf(named) {
  const name =
    named === undefined
      ? DRAFT_2020
      : String(named)
          .replace(/^https?:\/\//, '')
          .replace(/#$/, '');
  const draft = DRAFTS.get(name);
  if (draft === undefined)
    throw new Error(`$schema must be https://${DRAFT_2020}, which is the default, or http://${DRAFT_07}#`);
  return draft;
}

/**
 * @param {string} text of a schema whose form is known to be good
 * @returns {Check}
 */
function compile(text) {
  const schema = JSON.parse(text);
  const { meta, create } = draftOf(schema.$schema);
  // By the draft's own address: an instance knows no other spelling of it.
  if (meta.validateSchema({ ...schema, $schema: undefined }) !== true)
    throw new Error(meta.errorsText(meta.errors, { dataVar: 'schema' }));
  // An instance for each: the ids in one schema mean nothing to another.
  const validate = create().compile(schema);
  if ('$async' in validate) throw new Error('$async is not supported');
  return (payload) => (validate(payload) ? null : violationOf(validate.errors?.[0]));
}

/**
 * @param {import('ajv').ErrorObject | undefined} error
 * @returns {Violation}
 */
function violationOf(error) {
  if (error === undefined) return { path: '', message: 'is not valid' };
  const { instancePath, params, message = 'is not valid' } = error;
  const name = params.additionalProperty ?? params.unevaluatedProperty ?? params.propertyName;
  const named = typeof name === 'string' ? `${message}: ${JSON.stringify(name)}` : message;
  return { path: shortened(instancePath, MAX_PATH), message: shortened(named, MAX_MESSAGE) };
}

/** @param {string} text @param {number} most */
function shortened(text, most) {
  return text.length <= most ? text : `${text.slice(0, most)}…`;
}

/**
 * @template T
 * @param {() => T} compilation
 */
function counted(compilation) {
  Atomics.add(progress, 1, 1);
  try {
    return compilation();
  } finally {
    Atomics.add(progress, 2, 1);
  }
}

/** Compiled schemas by their text's digest, the least recently used first. @type {Map<string, { check: Check, size: number }>} */
const compiled = new Map();
let cachedCharacters = 0;

/** @param {string} digest @param {string} text */
function checkOf(digest, text) {
  const known = compiled.get(digest);
  if (known !== undefined) {
    compiled.delete(digest);
    compiled.set(digest, known);
    return known.check;
  }
  const check = counted(() => compile(text));
  compiled.set(digest, { check, size: text.length });
  cachedCharacters += text.length;
  for (const [oldest, { size }] of compiled) {
    if (cachedCharacters <= CACHE_CHARACTERS || oldest === digest) break;
    compiled.delete(oldest);
    cachedCharacters -= size;
  }
  return check;
}

/**
 * @param {ThreadItem} item
 * @param {ThreadRequest['schemas']} schemas
 * @returns {Checked}
 */
function checked({ digest, payload }, schemas) {
  try {
    const begun = performance.now();
    const check = checkOf(digest, schemas[digest] ?? '');
    const found = performance.now();
    const violation = payload === null ? null : check(JSON.parse(payload));
    const compileMs = Math.max(0, found - begun - FREE_COMPILE_MS);
    return { violation, problem: null, ms: compileMs + performance.now() - found };
  } catch (error) {
    // Too deep for the stack, or a schema that does not compile.
    return { violation: null, problem: error instanceof Error ? error.message : String(error), ms: 0 };
  }
}

/** @param {ThreadRequest} request */
function answer({ schemas, items }) {
  const begun = performance.now();
  /** @type {Checked[]} */
  const outcomes = [];
  for (const item of items) {
    if (outcomes.length > 0 && performance.now() - begun > TURN_MS) break;
    Atomics.add(progress, 0, 1);
    outcomes.push(checked(item, schemas));
  }
  parentPort?.postMessage(outcomes);
}

// What each draft takes at its first use must not be taken for the cost of the first schema.
for (const name of DRAFTS.keys())
  compile(JSON.stringify({ $schema: `https://${name}`, properties: { first: { pattern: '^a' } } }))({
    first: '',
  });
parentPort?.on('message', answer);
parentPort?.postMessage('ready');
