/** LemonLDAP::NG of Debian as an issuer: its portal under Starman, with a folder and a socket of its own, and its three demonstration users. */
import { type ChildProcess, spawn } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LEMONLDAP_PORTAL, STARMAN } from './daemons.ts';
import { type IssuerFront, startIssuerFront } from './issuer-front.ts';
import { CLIENT_ID, CLIENT_SECRET } from './oidc-issuer.ts';
import { until } from './service.ts';

/** A client to which users have to consent. */
export const CONSENT_CLIENT_ID = 'tidemark-consent';

/** A user: also the password. It is in the groups `users` and `timelords`, and its address is dwho@badwolf.org. */
export const LEMON_USER = 'dwho';

export interface LemonIssuer extends Pick<IssuerFront, 'url' | 'newBrowser'> {
  signIn(location: string, user?: string): Promise<string>;
  stop(): Promise<void>;
}

/** @param publicUrl of the service, without a trailing slash */
export async function startLemonldap(publicUrl: string): Promise<LemonIssuer> {
  const front = await startIssuerFront();
  const { stop: stopFront } = front;
  const folder = await mkdtemp(join(tmpdir(), 'tidemark-lemonldap-'));
  const socketPath = join(folder, 'portal.sock');
  await writeSettings(folder, publicUrl, front.url);
  const output: string[] = [];
  const portal = spawn(
    STARMAN,
    ['--listen', socketPath, '--workers', '2', '-E', 'production', LEMONLDAP_PORTAL],
    {
      cwd: folder,
      env: { PATH: process.env.PATH, LLNG_DEFAULTCONFFILE: join(folder, 'lemonldap-ng.ini') },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
  for (const stream of [portal.stdout, portal.stderr])
    stream.on('data', (chunk: Buffer) => output.push(chunk.toString()));
  front.behind = { socketPath };
  const stop = async (): Promise<void> => {
    await Promise.all([stopFront(), ended(portal)]);
    await rm(folder, { recursive: true, force: true });
  };
  const answers = async (): Promise<boolean> => {
    if (portal.exitCode !== null || output.some((line) => line.includes('Initialization failed')))
      throw new Error('the portal is not what it was told to be');
    return (await fetch(`${front.url}/.well-known/openid-configuration`)).ok;
  };
  try {
    await until(answers, 'the portal answers', 60_000);
  } catch (error) {
    await stop();
    throw new Error(`LemonLDAP::NG does not start: ${output.join('').slice(0, 4_000)}`, { cause: error });
  }
  return Object.assign(front, {
    signIn: (location: string, user = LEMON_USER) => front.visit(location, user),
    stop,
  });
}

async function ended(process: ChildProcess): Promise<void> {
  if (process.exitCode !== null) return;
  const exit = new Promise((done) => process.once('exit', done));
  process.kill('SIGTERM');
  await exit;
}

/** Its file of settings, which names a folder with its configuration. */
async function writeSettings(folder: string, publicUrl: string, url: string): Promise<void> {
  const store = async (name: string): Promise<Record<string, string>> => {
    const [directory, lock] = [join(folder, name), join(folder, name, 'lock')];
    await mkdir(lock, { recursive: true });
    return {
      Directory: directory,
      LockDirectory: lock,
      generateModule: 'Lemonldap::NG::Common::Apache::Session::Generate::SHA256',
    };
  };
  const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 });
  const client = (id: string, more: Readonly<Record<string, unknown>> = {}): object => ({
    oidcRPMetaDataOptionsClientID: id,
    oidcRPMetaDataOptionsClientSecret: CLIENT_SECRET,
    oidcRPMetaDataOptionsRedirectUris: `${publicUrl}/sign-in/oidc/callback`,
    oidcRPMetaDataOptionsBypassConsent: 1,
    oidcRPMetaDataOptionsIDTokenSignAlg: 'RS256',
    oidcRPMetaDataOptionsUserIDAttr: 'uid',
    ...more,
  });
  const clients = {
    [CLIENT_ID]: client(CLIENT_ID),
    [CONSENT_CLIENT_ID]: client(CONSENT_CLIENT_ID, { oidcRPMetaDataOptionsBypassConsent: 0 }),
  };
  const ofEach = (value: object): object => Object.fromEntries(Object.keys(clients).map((id) => [id, value]));
  const configuration = {
    cfgNum: 1,
    cfgDate: 1,
    groups: {},
    macros: {},
    exportedVars: {},
    exportedHeaders: {},
    locationRules: {},
    domain: '127.0.0.1',
    portal: `${url}/`,
    cookieName: 'lemonldap',
    securedCookie: 0,
    key: 'of a test',
    authentication: 'Demo',
    userDB: 'Same',
    passwordDB: 'Demo',
    registerDB: 'Null',
    demoExportedVars: { cn: 'cn', mail: 'mail', uid: 'uid' },
    whatToTrace: 'uid',
    requireToken: 0,
    // Any module: that of the pictures needs a library that Debian only suggests.
    captcha: '::Lib::OneTimeToken',
    portalDisplayResetPassword: 0,
    portalDisplayRegister: 0,
    globalStorage: 'Apache::Session::File',
    globalStorageOptions: await store('sessions'),
    persistentStorage: 'Apache::Session::File',
    persistentStorageOptions: await store('psessions'),
    localSessionStorage: '',
    issuerDBOpenIDConnectActivation: 1,
    issuerDBOpenIDConnectPath: '^/oauth2/',
    issuerDBOpenIDConnectRule: 1,
    oidcServiceMetaDataIssuer: url,
    oidcServicePrivateKeySig: privateKey.export({ type: 'pkcs8', format: 'pem' }),
    oidcServicePublicKeySig: publicKey.export({ type: 'spki', format: 'pem' }),
    oidcServiceKeyIdSig: 'of-lemonldap',
    oidcServiceAllowAuthorizationCodeFlow: 1,
    oidcRPMetaDataOptions: clients,
    oidcRPMetaDataExportedVars: ofEach({ email: 'mail', groups: 'groups;string;always' }),
    oidcRPMetaDataOptionsExtraClaims: ofEach({ groups: 'groups' }),
  };
  await mkdir(join(folder, 'conf'));
  await writeFile(join(folder, 'conf', 'lmConf-1.json'), JSON.stringify(configuration));
  await writeFile(
    join(folder, 'lemonldap-ng.ini'),
    `[all]\nlogLevel=warn\n[configuration]\ntype=File\ndirName=${folder}/conf\n[portal]\nlanguages=en\n` +
      'staticPrefix=/static\ntemplateDir=/usr/share/lemonldap-ng/portal/templates\n',
  );
}
