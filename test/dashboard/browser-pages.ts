/** Pages of a shop that use the browser client, in a real browser, at an origin of their own. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buildBrowserClient } from '../../client/browser/build.mjs';

export class Site {
  readonly #server: Server;
  /** The body of the page, and the bundle of the client. */
  page = '';
  headers: Readonly<Record<string, string>> = {};

  private constructor(script: string) {
    this.#server = createServer(({ url = '' }, response) => {
      const isScript = url.startsWith('/tidemark.js');
      const type = isScript ? 'text/javascript' : 'text/html; charset=utf-8';
      response.writeHead(200, { 'Content-Type': type, ...this.headers });
      response.end(isScript ? script : this.page);
    });
  }

  static async start(): Promise<Site> {
    const site = new Site((await buildBrowserClient(null)).script);
    site.#server.listen(0, '127.0.0.1');
    await once(site.#server, 'listening');
    return site;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }
}

/** A page with the client as one script tag. */
export function pageOf(url: string, key: string, attributes = ''): string {
  return `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Shop</title>
<script src="/tidemark.js" data-url="${url}" data-key="${key}" ${attributes}></script></head>
<body><main><h1>Shop</h1><p>Two things to press.</p>
<p><a href="#cart?secret=1">Cart</a> <button type="button" data-tidemark="buy">Buy</button></p></main></body></html>`;
}
