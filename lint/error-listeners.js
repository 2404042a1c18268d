/**
 * An `error` event without a listener ends the process. So whatever can emit one (a socket, server, stream, child
 * process or client of a database) gets its listener in the code that makes it, before anything is awaited, or goes
 * straight into `pipeline`, which listens itself. `once` is not enough: the second error would have no listener.
 */

/** What makes emitters, by the module that it is imported from. `default.x` is a property of the default import. */
const MAKERS = {
  // `exec` and `execFile` listen themselves, for their callback.
  'node:child_process': ['fork', 'spawn'],
  'node:cluster': ['default.fork'],
  'node:dgram': ['createSocket'],
  'node:fs': ['createReadStream', 'createWriteStream', 'watch'],
  'node:http': ['createServer', 'get', 'request'],
  'node:https': ['createServer', 'get', 'request'],
  'node:net': ['connect', 'createConnection', 'createServer', 'Server', 'Socket'],
  'node:stream': ['Duplex', 'PassThrough', 'Readable', 'Transform', 'Writable'],
  'node:tls': ['connect', 'createServer', 'TLSSocket'],
  'node:worker_threads': ['Worker'],
  'node:zlib': [
    'createBrotliCompress',
    'createBrotliDecompress',
    'createDeflate',
    'createGunzip',
    'createGzip',
    'createInflate',
    'createUnzip',
  ],
  ioredis: ['Cluster', 'Redis'],
  nodemailer: ['createTransport'],
  pg: ['default.Client', 'default.Pool'],
  'pg-copy-streams': ['both', 'from', 'to'],
  pino: ['default.destination'],
};

const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression']);

export const errorListeners = {
  meta: { type: 'problem' },
  create(context) {
    const { sourceCode } = context;
    /** Local names of makers, such as `spawn`, `tlsConnect` or `pg.Client`. */
    const makers = new Set();
    const made = [];
    /** Where something is given its listener, and what. */
    const heard = [];
    const calls = [];
    const pipelines = [];
    const awaits = [];
    /** Functions and methods of the file by their name, constructors by `new` and their class. */
    const functions = new Map();

    const visitCall = (node) => {
      const callee = sourceCode.getText(node.callee);
      if (makers.has(callee)) made.push(node);
      if (callee === 'pipeline') pipelines.push(node);
      const [event] = node.arguments;
      const { object, property } = node.callee;
      if (property?.name === 'on' && event?.value === 'error')
        heard.push({ node, name: sourceCode.getText(object) });
      calls.push(node);
    };

    /** Whether a call hands the argument to a function, method or constructor of this file that gives it its listener. */
    const isHeardIn = (call, index) => {
      const callee = textOf(call.callee).replace(/^this\./, '');
      const called = functions.get(call.type === 'NewExpression' ? `new ${callee}` : callee);
      const parameter = called?.params[index]?.name;
      return heard.some(
        ({ node, name }) => name === parameter && called !== undefined && contains(called, node),
      );
    };

    const problemOf = (call) => {
      // What a client's `query` is given, it gives back.
      const value = call.parent.callee?.property?.name === 'query' ? call.parent : call;
      if (pipelines.some((pipeline) => pipeline.arguments.includes(value))) return null;
      const index = value.parent.arguments?.indexOf(value) ?? -1;
      if (index >= 0 && isHeardIn(value.parent, index)) return null;
      const name = nameOf(value, sourceCode);
      if (name === null) return 'Give it a name, and that name a listener for "error".';
      const scope = enclosing(value, name.startsWith('this.') ? isClass : isFunction);
      const within = ({ node }) => scope === null || contains(scope, node);
      const listeners = heard.filter((one) => one.name === name && within(one));
      if (listeners.length === 0) return `Give ${name} a listener for "error", by "on".`;
      const isLate = awaits.some(
        (one) =>
          enclosing(one, isFunction) === scope && listeners.every(({ node }) => between(value, one, node)),
      );
      return isLate ? `Give ${name} its listener for "error" before anything is awaited.` : null;
    };
    const textOf = (node) => sourceCode.getText(node);

    return {
      ImportDeclaration(node) {
        const names = MAKERS[node.source.value];
        if (names === undefined) return;
        for (const specifier of node.specifiers) {
          const { name: local } = specifier.local;
          if (specifier.type === 'ImportSpecifier') {
            if (names.includes(specifier.imported.name)) makers.add(local);
          } else {
            for (const name of names) makers.add(`${local}.${name.replace(/^default\./, '')}`);
          }
        }
      },
      FunctionDeclaration: (node) => functions.set(node.id?.name, node),
      MethodDefinition(node) {
        const name = node.kind === 'constructor' ? `new ${node.parent.parent.id?.name}` : textOf(node.key);
        functions.set(name, node.value);
      },
      CallExpression: visitCall,
      NewExpression: visitCall,
      AwaitExpression: (node) => awaits.push(node),
      'Program:exit'() {
        const passed = calls.flatMap((node) =>
          node.arguments.flatMap((one, index) => (isHeardIn(node, index) ? { node, name: textOf(one) } : [])),
        );
        const piped = pipelines.flatMap((node) => node.arguments.map((one) => ({ node, name: textOf(one) })));
        heard.push(...passed, ...piped);
        for (const node of made) {
          const message = problemOf(node);
          if (message !== null) context.report({ node, message });
        }
      },
    };
  },
};

/** What the value is kept under, as text; null where it is kept under no name. */
function nameOf(value, sourceCode) {
  let { parent } = value;
  while (
    ['AwaitExpression', 'TSAsExpression', 'LogicalExpression', 'ConditionalExpression'].includes(parent.type)
  )
    parent = parent.parent;
  if (parent.type === 'VariableDeclarator' && parent.id.type === 'Identifier') return parent.id.name;
  if (parent.type === 'AssignmentExpression') return sourceCode.getText(parent.left);
  if (parent.type === 'PropertyDefinition') return `this.${sourceCode.getText(parent.key)}`;
  return null;
}

function enclosing(node, test) {
  for (let one = node.parent; one !== null && one !== undefined; one = one.parent) if (test(one)) return one;
  return null;
}

const isFunction = ({ type }) => FUNCTIONS.has(type);
const isClass = ({ type }) => type === 'ClassDeclaration' || type === 'ClassExpression';
const contains = (outer, inner) => outer.range[0] <= inner.range[0] && inner.range[1] <= outer.range[1];
const between = (first, middle, last) =>
  first.range[1] <= middle.range[0] && middle.range[1] <= last.range[0];
