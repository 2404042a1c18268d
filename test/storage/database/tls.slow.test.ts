/** Encrypted connections to a PostgreSQL 15 that takes no others, by both clients and for requests to cancel. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, chown, copyFile, writeFile } from 'node:fs/promises';
import { connect as connectTcp, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { isRoot, type SystemUser, unprivilegedUser } from '../../../src/embedded/user.ts';
import { connect, type Sql } from '../../../src/storage/database/connect.ts';
import { CopyConnection } from '../../../src/storage/database/copy-connection.ts';
import { migrate } from '../../../src/storage/migrate.ts';
import { type Certificate, CertificateAuthority, hasOpenssl } from '../../support/certificates.ts';
import { addressOf, type Cluster, freePort, startCluster } from '../../support/cluster.ts';
import { startTestService, until } from '../../support/service.ts';

const BIN = process.env.POSTGRES15_BIN ?? '/usr/lib/postgresql/15/bin';
const isPossible = hasOpenssl && existsSync(join(BIN, 'initdb'));
const ENCRYPTED = `
  SELECT ssl AS "isEncrypted", client_dn AS "client" FROM pg_stat_ssl WHERE pid = pg_backend_pid()`;
/** CancelRequest and SSLRequest, in a connection's first message. */
const [CANCEL, ENCRYPT] = [80_877_102, 80_877_103];

describe.runIf(isPossible)('a server that demands encryption', () => {
  let authority: CertificateAuthority;
  let other: CertificateAuthority;
  let cluster: Cluster;
  let admin: Sql;
  let client: Certificate;

  beforeAll(async () => {
    const user: SystemUser | undefined = isRoot() ? await unprivilegedUser() : undefined;
    [authority, other] = [await CertificateAuthority.make(), await CertificateAuthority.make()];
    cluster = await startCluster(BIN, ['--locale=C.UTF-8'], user);
    admin = connect(addressOf(cluster.address, 'postgres'), { connections: 2, name: 'test' });
    const data = join(cluster.address.socket ?? '', 'data');
    const server = await authority.issue('server', ['DNS:localhost']);
    client = await authority.issue('certified');
    for (const [from, name] of [
      [server.certificate, 'server.crt'],
      [server.key, 'server.key'],
      [authority.root, 'root.crt'],
    ] as const) {
      await copyFile(from, join(data, name));
      await chmod(join(data, name), 0o600);
      if (user !== undefined) await chown(join(data, name), user.uid, user.gid);
    }
    await writeFile(
      join(data, 'pg_hba.conf'),
      'local all all trust\nhostssl all certified all cert\nhostssl all all all scram-sha-256\n',
    );
    await admin`CREATE ROLE certified LOGIN`;
    await admin`ALTER SYSTEM SET ssl = on`;
    await admin`ALTER SYSTEM SET ssl_ca_file = 'root.crt'`;
    await admin`SELECT pg_reload_conf()`;
    await until(async () => (await outcome(urlTo('localhost', 'no-verify'))) === 'encrypted', 'it encrypts');
  });
  afterAll(async () => {
    await admin?.end();
    await cluster?.stop();
    await authority?.remove();
    await other?.remove();
  });

  function urlTo(hosts: string, mode: string, parameters: Readonly<Record<string, string>> = {}): string {
    const { user, password, port } = cluster.address;
    const query = new URLSearchParams({ sslmode: mode, ...parameters });
    const withPorts = hosts.split(',').map((host) => (host.includes(':') ? host : `${host}:${port}`));
    return `postgres://${user}:${password}@${withPorts.join()}/postgres?${query}`;
  }

  /** `encrypted` or `plain`, as both clients find their connections; or the code of the failure, the same for both. */
  async function outcome(url: string): Promise<string> {
    const found = await Promise.all([byPool(url), byCopyConnection(url)]);
    expect(found[0]).toBe(found[1]);
    return found[0];
  }

  const seen = (rows: readonly { isEncrypted?: boolean }[]): string =>
    rows[0]?.isEncrypted === true ? 'encrypted' : 'plain';
  const codeOf = (error: unknown): string => {
    const { code, cause } = error as { code?: string; cause?: unknown };
    return code ?? (cause === undefined ? String(error) : codeOf(cause));
  };

  async function byPool(url: string): Promise<string> {
    const sql = connect({ url }, { connections: 1, name: 'test' });
    try {
      return seen(await sql.unsafe(ENCRYPTED));
    } catch (error) {
      return codeOf(error);
    } finally {
      await sql.end({ timeout: 1 });
    }
  }

  async function byCopyConnection(url: string): Promise<string> {
    const connection = new CopyConnection({ url }, 'test');
    try {
      return seen((await connection.query<{ isEncrypted: boolean }>(ENCRYPTED, [])).rows);
    } catch (error) {
      return codeOf(error);
    } finally {
      await connection.close();
    }
  }

  const UNKNOWN_AUTHORITY = /^(UNABLE_TO_VERIFY_LEAF_SIGNATURE|SELF_SIGNED_CERT_IN_CHAIN)$/;
  const OTHER_NAME = /^ERR_TLS_CERT_ALTNAME_INVALID$/;
  const ENCRYPTS = /^encrypted$/;

  // The server's certificate is for `localhost` alone.
  test.each([
    ['disable', 'localhost', 'none', /^28000$/],
    ['no-verify', '127.0.0.1', 'none', ENCRYPTS],
    ['require', 'localhost', 'none', UNKNOWN_AUTHORITY],
    ['require', 'localhost', 'own', ENCRYPTS],
    ['require', '127.0.0.1', 'own', OTHER_NAME],
    ['verify-ca', 'localhost', 'own', ENCRYPTS],
    ['verify-ca', '127.0.0.1', 'own', ENCRYPTS],
    ['verify-ca', 'localhost', 'other', UNKNOWN_AUTHORITY],
    ['verify-ca', 'localhost', 'none', UNKNOWN_AUTHORITY],
    ['verify-full', 'localhost', 'own', ENCRYPTS],
    ['verify-full', '127.0.0.1', 'own', OTHER_NAME],
    ['verify-full', 'localhost', 'other', UNKNOWN_AUTHORITY],
  ])('sslmode=%s to %s with %s root certificate', async (mode, host, root, expected) => {
    const roots: Record<string, string> = { own: authority.root, other: other.root };
    const path = roots[root];
    expect(await outcome(urlTo(host, mode, path === undefined ? {} : { sslrootcert: path }))).toMatch(
      expected,
    );
  });

  test('a client is known by its certificate', async () => {
    const url = new URL(urlTo('localhost', 'verify-full', { sslrootcert: authority.root }));
    [url.username, url.password] = ['certified', ''];
    expect(await outcome(url.href)).toBe('28000');
    url.searchParams.set('sslcert', client.certificate);
    url.searchParams.set('sslkey', client.key);
    expect(await outcome(url.href)).toBe('encrypted');
  });

  test('of several hosts the one that is there is used, and its certificate is checked by its own name', async () => {
    const dead = await freePort();
    const parameters = { sslrootcert: authority.root, target_session_attrs: 'read-write' };
    const { port } = cluster.address;
    expect(await outcome(urlTo(`localhost:${dead},localhost:${port}`, 'verify-full', parameters))).toBe(
      'encrypted',
    );
    expect(await outcome(urlTo(`127.0.0.1:${port},localhost:${port}`, 'verify-full', parameters))).toBe(
      'encrypted',
    );
    expect(await outcome(urlTo(`localhost:${dead},127.0.0.1:${port}`, 'verify-full', parameters))).not.toBe(
      'encrypted',
    );
  });

  test('a request to cancel is encrypted too, and reaches the same server', async () => {
    const requests: number[] = [];
    const relay: Server = createServer((from) => {
      const to = connectTcp(cluster.address.port, '127.0.0.1');
      from.once('data', (first) => requests.push(first.readInt32BE(4)));
      from.pipe(to).pipe(from);
      for (const socket of [from, to]) socket.on('error', () => undefined);
    }).listen(0, '127.0.0.1');
    await once(relay, 'listening');
    const listening = relay.address();
    const port = typeof listening === 'object' ? listening?.port : 0;
    const url = urlTo(`localhost:${port}`, 'verify-full', { sslrootcert: authority.root });
    const connection = new CopyConnection(
      { url },
      'given up',
      { connectMs: 5_000, answerMs: 300, lockMs: 60_000 },
      { statement_timeout: '0' },
    );
    await expect(connection.query('SELECT pg_sleep(60)', [])).rejects.toMatchObject({ code: '57014' });
    await connection.close();
    expect(requests).toEqual([ENCRYPT, ENCRYPT]);
    expect(requests).not.toContain(CANCEL);
    relay.close();
  });

  test('the service stores and reads over encrypted connections alone', async () => {
    await migrate(admin, 'postgres');
    const url = urlTo('localhost', 'verify-full', { sslrootcert: authority.root });
    const service = await startTestService({
      database: {
        engine: 'postgres',
        sql: admin,
        address: addressOf(cluster.address, 'postgres'),
        url,
        drop: async () => undefined,
      },
      reach: async () => ({ url }),
    });
    try {
      expect((await service.post()).status).toBe(201);
      expect((await service.request({ path: '/readyz' })).status).toBe(200);
      const sessions = await admin<{ ssl: boolean }[]>`
        SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 'tidemark%'`;
      expect(sessions.length).toBeGreaterThan(3);
      expect(new Set(sessions.map(({ ssl }) => ssl))).toEqual(new Set([true]));
    } finally {
      await service.stop();
    }
  });
});
