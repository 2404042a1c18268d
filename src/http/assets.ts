/** Serves the built dashboard from memory; files are read and hashed once, at the start. The build compresses them by Brotli; other copies are made when a client first asks for them. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { extname, join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, gzip, constants as zlib } from 'node:zlib';
import { ERRORS_PAGE, Rejection } from '../errors.ts';
import { errorCode } from '../storage/database/connect.ts';
import type { Exchange, Outcome } from './exchange.ts';
import type { Parameter, Route } from './route.ts';

/** A file of the build: the addresses of the dashboard's pages. All of them return the same page, which routes in the browser. */
const PAGES = 'pages.json';
/** Pages that are drawn by a further script, which the page loads only there, and that script. */
const APP = '/apps/';
const SCRIPT_OF_APPS = /^assets\/explore-.*\.js$/;
/** The page of a share, which named sites may show in a frame. */
const SHARED = '/shared/:token';

const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.ico': 'image/x-icon',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.map': 'application/json',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.webmanifest': 'application/manifest+json',
  '.woff2': 'font/woff2',
};

/** Only resources of this origin, and nothing inline. `data:` is for images in style sheets. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "manifest-src 'self'",
  "base-uri 'none'",
  "form-action 'self'",
  "frame-ancestors 'none'",
].join('; ');

const PAGE_HEADERS = {
  'Content-Security-Policy': POLICY,
  // URLs of invitations and resets contain a token, which must not reach other sites.
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
  'X-Frame-Options': 'DENY',
} as const;

/** What a page consists of, also one that is shown in a frame of another site: nothing in it is secret. */
const FILE_HEADERS = {
  'Access-Control-Allow-Origin': '*',
  'Cross-Origin-Resource-Policy': 'cross-origin',
} as const;
/** A page with Cross-Origin-Embedder-Policy shows only frames that have it, too. */
const FRAME_HEADERS = {
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'cross-origin',
} as const;

/** Names that contain a hash of the content: such a file never changes. The build puts them below assets/. */
const HASHED = /^assets\/.*[-.][A-Za-z0-9_-]{8}\.[a-z0-9]+$/;
const IMMUTABLE = 'public, max-age=31536000, immutable';
const REVALIDATE = 'no-cache';

/** Suffixes of compressed copies, and their encoding; the smallest first. */
const COPIES = [
  ['.br', 'br'],
  ['.gz', 'gzip'],
] as const;

/** What of assets/ is worth compressing, as the build has it; and from how many bytes on. */
const COMPRESSIBLE = /^assets\/.*\.(?:css|js|json|svg|txt|webmanifest)$/;
const WORTH_COMPRESSING = 512;
/** A package has no copies, and makes them as it runs: the best quality of Brotli takes several times as long. */
const COMPRESS = {
  br: (bytes: Buffer) => promisify(brotliCompress)(bytes, { params: { [zlib.BROTLI_PARAM_QUALITY]: 9 } }),
  gzip: (bytes: Buffer) => promisify(gzip)(bytes),
} as const;

interface Variant {
  /** Content-Encoding; empty for the uncompressed file. */
  readonly encoding: '' | 'br' | 'gzip';
  readonly body: Buffer;
  readonly etag: string;
}

interface Asset {
  readonly contentType: string;
  readonly cacheControl: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly plain: Variant;
  /** Makes a compressed copy, once. None where compression gains nothing. */
  readonly copies: ReadonlyMap<string, () => Promise<Variant>>;
}

const NOT_BUILT_PAGE = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Tidemark</title></head>
<body><h1>The dashboard is not built</h1>
<p>The service runs, and events can be written and read. Build the dashboard with <code>npm run build</code> and start again.</p>
</body></html>
`;
const NOT_BUILT: ReadonlyMap<string, Buffer> = new Map([['index.html', Buffer.from(NOT_BUILT_PAGE)]]);

/** What a browser is served of the dashboard. */
export interface Assets {
  /** Its pages and files. */
  readonly routes: readonly Route[];
  /** The page at an address where nothing is, which says so, with status 404. */
  readonly notFound: (exchange: Exchange) => Outcome;
}

/**
 * Reads the dashboard.
 * @param embeddersOf finds who may show the page of a share in a frame
 * @param folder output of the build: index.html, pages.json, and files at any depth. Without it, the page says how to build it.
 */
export async function readAssets(folder: string, embeddersOf: EmbeddersOf = async () => []): Promise<Assets> {
  const files = await readFiles(folder);
  const assets = new Map<string, Asset>();
  for (const path of files.keys())
    if (path !== 'index.html' && path !== PAGES && !isCopy(path, files))
      assets.set(`/${path}`, prepare(path, files));
  const pageAt = (path: string): Asset =>
    files.has(path) ? prepare(path, files) : prepare('index.html', NOT_BUILT);
  const page = pageAt('index.html');
  const script = [...files.keys()].find((path) => SCRIPT_OF_APPS.test(path));
  // The browser asks for it with the page, and not only once the first script has run: on a slow line that is half a second.
  const link = script === undefined ? {} : { Link: `</${script}>; rel=modulepreload` };
  const ofApps: Asset = { ...page, headers: { ...page.headers, ...link } };
  return {
    routes: [
      ...pagesOf(files).map((path) =>
        path === SHARED
          ? sharedRoute(ofApps, embeddersOf)
          : route(path, path.startsWith(APP) ? ofApps : page),
      ),
      route('/docs', pageAt('docs/index.html')),
      route(ERRORS_PAGE, pageAt('docs/errors.html')),
      ...[...assets].map(([path, asset]) => route(path, asset)),
    ],
    notFound: (exchange) => answerWith(exchange, page, page.plain, 404),
  };
}

function pagesOf(files: ReadonlyMap<string, Buffer>): readonly string[] {
  const written = files.get(PAGES);
  // A list of strings: the build writes it.
  return written === undefined ? ['/'] : (JSON.parse(written.toString()) as string[]);
}

/** Accepts any value: the page checks its path in the browser. */
const ANY: Parameter = { form: /^/, refusal: new Rejection('notFound', 'There is nothing at this path.') };

function route(path: string, asset: Asset): Route {
  return {
    method: 'GET',
    path,
    parameters: { appId: ANY, token: ANY },
    headers: ['accept-encoding', 'if-none-match'],
    handle: (exchange) => answer(exchange, asset),
  };
}

/** The origins whose pages may show the page of a link in a frame. @param token the secret of the link */
type EmbeddersOf = (token: string) => Promise<readonly string[]>;

/** The page of a share. A link is for those who were given it. */
function sharedRoute(page: Asset, embeddersOf: EmbeddersOf): Route {
  const asset: Asset = { ...page, headers: { ...page.headers, 'X-Robots-Tag': 'noindex' } };
  return {
    ...route(SHARED, asset),
    handle: async (exchange) => {
      const isEmbedded = new URLSearchParams(exchange.query).get('embed') === 'true';
      const origins = isEmbedded ? await embeddersOf(exchange.parameters[0] ?? '') : [];
      if (origins.length === 0) return await answer(exchange, asset);
      const { 'X-Frame-Options': _, ...headers } = asset.headers;
      const policy = POLICY.replace("frame-ancestors 'none'", `frame-ancestors ${origins.join(' ')}`);
      // Never out of a browser's cache: the sites may have changed.
      return await answer(exchange, {
        ...asset,
        cacheControl: 'no-store',
        headers: { ...headers, ...FRAME_HEADERS, 'Content-Security-Policy': policy },
      });
    },
  };
}

async function answer(exchange: Exchange, asset: Asset): Promise<Outcome> {
  const { plain, copies } = asset;
  const accepted = acceptedEncodings(exchange.header('accept-encoding'));
  for (const [, encoding] of COPIES) {
    const copy = accepted.has(encoding) ? await copies.get(encoding)?.() : undefined;
    if (copy !== undefined && copy.body.length < plain.body.length)
      return answerWith(exchange, asset, copy, 200);
  }
  return answerWith(exchange, asset, plain, 200);
}

function answerWith(exchange: Exchange, asset: Asset, variant: Variant, status: 200 | 404): Outcome {
  const { contentType, cacheControl } = asset;
  const headers: Record<string, string> = { ...asset.headers, ETag: variant.etag, Vary: 'Accept-Encoding' };
  if (status === 200 && matchesTag(exchange.header('if-none-match'), variant.etag))
    return { status: 304, body: '', contentType, cacheControl, headers };
  if (variant.encoding !== '') headers['Content-Encoding'] = variant.encoding;
  return { status, body: variant.body, contentType, cacheControl, headers };
}

/**
 * The encodings that a client accepts: those that it names, except with a weight of zero (RFC 9110, 12.5.3). Runs in time
 * linear in the header's length.
 */
export function acceptedEncodings(header: string): ReadonlySet<string> {
  const accepted = new Set<string>();
  for (const item of header.split(',')) {
    const [name = '', weight = ''] = item.split(';', 2);
    if (!ZERO_WEIGHT.test(weight.trim())) accepted.add(name.trim().toLowerCase());
  }
  return accepted;
}

const ZERO_WEIGHT = /^q=0(?:\.0*)?$/i;

/** Whether If-None-Match names the tag, by weak comparison (RFC 9110, 13.1.2). */
export function matchesTag(header: string, etag: string): boolean {
  return header === '*' || header.split(',').some((one) => one.trim().replace(/^W\//, '') === etag);
}

function isCopy(path: string, files: ReadonlyMap<string, Buffer>): boolean {
  return COPIES.some(([suffix]) => path.endsWith(suffix) && files.has(path.slice(0, -suffix.length)));
}

/** A file with its compressed copies. */
function prepare(path: string, files: ReadonlyMap<string, Buffer>): Asset {
  const extension = extname(path);
  const bytes = files.get(path) ?? Buffer.of();
  const hash = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  const copies = new Map<string, () => Promise<Variant>>();
  const isWorth = COMPRESSIBLE.test(path) && bytes.length >= WORTH_COMPRESSING;
  for (const [suffix, encoding] of isWorth || files.has(`${path}.br`) ? COPIES : []) {
    let made: Promise<Variant> | undefined;
    const make = async (): Promise<Variant> => {
      const body = files.get(path + suffix) ?? (await COMPRESS[encoding](bytes));
      return { encoding, body, etag: `"${hash}-${encoding}"` };
    };
    copies.set(encoding, () => {
      made ??= make();
      return made;
    });
  }
  return {
    contentType: TYPES[extension] ?? 'application/octet-stream',
    cacheControl: HASHED.test(path) ? IMMUTABLE : REVALIDATE,
    headers: extension === '.html' ? PAGE_HEADERS : FILE_HEADERS,
    plain: { encoding: '', body: bytes, etag: `"${hash}"` },
    copies,
  };
}

/** Path below the folder, with slashes → content. Empty if the folder does not exist. */
async function readFiles(folder: string): Promise<Map<string, Buffer>> {
  try {
    const entries = await readdir(folder, { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile());
    const contents = files.map(async (entry): Promise<[string, Buffer]> => {
      const path = join(entry.parentPath, entry.name);
      return [path.slice(folder.length).replaceAll('\\', '/').replace(/^\//, ''), await readFile(path)];
    });
    return new Map(await Promise.all(contents));
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return new Map();
    throw error;
  }
}
