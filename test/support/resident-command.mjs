/**
 * Runs commands one after the other in one process, which has loaded the command line once: each as if it were started anew,
 * with its own arguments, settings, standard streams and exit code. test/support/command-line.ts starts it.
 */
import { Console } from 'node:console';
import { Readable, Writable } from 'node:stream';
import { setTimeout as wait } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const [, , LAUNCHER = ''] = process.argv;
const MAIN = new URL('dist/main.js', pathToFileURL(LAUNCHER)).href;
/** What keeps this process alive between commands: the channel of its orders. */
const IDLE = ['PipeWrap'];
/** A command that leaves something open would not end as a process of its own. */
const OPEN_FOR_MS = 5_000;

/** Ends a command where a process would end. */
class Exit extends Error {}

function collected() {
  const chunks = [];
  const stream = new Writable({
    write: (chunk, _encoding, done) => {
      chunks.push(chunk);
      done();
    },
  });
  return { stream, text: () => Buffer.concat(chunks).toString('utf8') };
}

/** What the current command has in place of a process's own. */
let standard = { stdin: Readable.from([]), stdout: collected().stream, stderr: collected().stream };
for (const name of ['stdin', 'stdout', 'stderr'])
  Object.defineProperty(process, name, { configurable: true, get: () => standard[name] });

let commands = 0;

async function run({ args, env, input }) {
  const [stdout, stderr] = [collected(), collected()];
  standard = { stdin: Readable.from([Buffer.from(input)]), stdout: stdout.stream, stderr: stderr.stream };
  globalThis.console = new Console(standard);
  process.argv = [process.execPath, LAUNCHER, ...args];
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, env);
  process.exitCode = undefined;

  let exited = null;
  const outcome = (code) => ({ code: Number(code ?? 0), stdout: stdout.text(), stderr: stderr.text() });
  process.exit = (code) => {
    exited ??= outcome(code ?? process.exitCode);
    throw new Exit();
  };
  commands += 1;
  try {
    // Another address: the module runs again, and what it imports is there.
    await import(`${MAIN}?${commands}`);
  } catch (error) {
    if (!(error instanceof Exit)) throw error;
  }
  exited ??= outcome(process.exitCode);
  process.exitCode = undefined;
  const open = await leftOpen();
  if (open !== '') exited.stderr += `This command leaves open: ${open}.\n`;
  return exited;
}

/** What would keep a process from ending; empty where nothing does. */
async function leftOpen() {
  const deadline = Date.now() + OPEN_FOR_MS;
  for (;;) {
    const open = process.getActiveResourcesInfo().filter((name) => !IDLE.includes(name));
    if (open.length === 0 || Date.now() > deadline) return open.join(', ');
    await wait(1);
  }
}

process.on('message', (order) => {
  run(order).then(
    (done) => process.send(done),
    (error) => process.send({ code: null, stdout: '', stderr: String(error?.stack ?? error) }),
  );
});
process.on('disconnect', () => process.reallyExit());
