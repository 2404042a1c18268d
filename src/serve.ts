/** `tidemark serve`: the boot list, and the shutdown list in the opposite order. */
import { isAbsolute, relative } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { checkFingerprint, openSecret } from './accounts/secret.ts';
import type { Config } from './config.ts';
import { connect, surviveLostConnections } from './database/connect.ts';
import { chooseEngine } from './database/engine.ts';
import { migrate } from './database/migrate.ts';
import { openDatabase } from './database/open.ts';
import { checkTransport } from './http/server.ts';
import { createLog } from './log.ts';
import { type Service, startService } from './service.ts';

/** Runs the service until SIGTERM or SIGINT. Sets the process's exit code. */
export async function serve(config: Config): Promise<void> {
  // V8 lets the heap grow to several times of what lives before it collects: 425 MB under large bodies. With this it is
  // 220 MB, and small events lose nothing that could be measured.
  setFlagsFromString('--heap-growing-percent=30');
  const log = createLog(config.LOG_LEVEL);
  surviveLostConnections(log);
  await checkTransport(config.HTTP_TRANSPORT);
  const stopRequested = untilSignal();

  const database = await openDatabase(config, log, { supervise: true });
  let service: Service;
  try {
    const sql = connect(database.address, { connections: 1, name: 'tidemark start' });
    const engine = await chooseEngine(sql);
    if (engine.note !== null) log.info(engine.note);
    const { applied } = await migrate(sql, engine.engine);
    if (applied.length > 0) log.info({ applied }, 'The schema was brought up to date');
    const secret = await openSecret({ configured: config.SECRET, dataDir: config.DATA_DIR });
    await checkFingerprint(sql, secret, log);
    const [installation] = await sql<{ hasApps: boolean }[]>`SELECT EXISTS (SELECT FROM apps) AS "hasApps"`;
    await sql.end();
    log.info({ engine: engine.description }, 'Starting');
    service = await startService({ config, address: database.address, engine, secret, log });
    announce(config, service, engine.description, installation?.hasApps ?? false);
  } catch (error) {
    await database.close();
    throw error;
  }

  const signal = await stopRequested;
  log.info({ signal }, 'Stopping');
  const deadline = setTimeout(() => {
    log.fatal('The stop did not finish in time; what was not answered was not promised');
    process.exit(1);
  }, config.SHUTDOWN_TIMEOUT_SECONDS * 1_000);
  await service.stop();
  await database.close();
  clearTimeout(deadline);
  log.info('Stopped');
}

/** Resolves with the first signal; a second one ends the process at once. */
function untilSignal(): Promise<string> {
  return new Promise((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) {
      process.once(signal, () => {
        process.once(signal, () => process.exit(1));
        resolve(signal);
      });
    }
  });
}

/** For the person who has just started it: where it is, and what to type next. */
function announce(config: Config, service: Service, engine: string, hasApps: boolean): void {
  const host = config.HOST.includes(':') ? `[${config.HOST}]` : config.HOST;
  const place = config.DATABASE_URL === '' ? `, embedded in ${shortPath(config.DATA_DIR)}` : '';
  const transport = service.transport === 'uws' ? 'uWebSockets.js' : 'node:http';
  const next = hasApps ? 'app list' : 'app create --name "My app"';
  const local = ['0.0.0.0', '[::]'].includes(host) ? 'localhost' : host;
  const base = config.PUBLIC_URL === '' ? `http://${local}:${service.port}` : config.PUBLIC_URL;
  const people =
    service.setupPath === null
      ? `  Dashboard: ${base}\n\n`
      : `  Make the first account, within 7 days:\n    ${base}${service.setupPath}\n\n`;
  process.stdout.write(
    `\n  Tidemark listens on http://${host}:${service.port}\n  ${engine}${place}; ${transport}\n\n${people}` +
      `  Next, in another terminal:\n    npm run -s tidemark -- ${next}\n\n`,
  );
}

function shortPath(path: string): string {
  const fromHere = relative(process.cwd(), path);
  return isAbsolute(fromHere) || fromHere.startsWith('..') ? path : fromHere;
}
