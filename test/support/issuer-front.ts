/** What stands before a real OpenID provider: forwards requests to it, or answers in its place. */
import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Where the provider listens: a port of this machine or a socket in the file system. */
export type Behind = { readonly port: number } | { readonly socketPath: string };

export interface IssuerFront {
  readonly url: string;
  /** The provider that is asked; null until there is one. */
  behind: Behind | null;
  /** Answers in place of the provider, while it is set; false leaves a request to the provider. */
  intercept: ((request: IncomingMessage, response: ServerResponse) => boolean) | null;
  /** What a browser without a page does: follows redirects, and fills in the form of a sign-in, until it leaves. @returns where to */
  visit(location: string, user: string): Promise<string>;
  /** One request of that browser. */
  ask(address: string, method?: string, body?: URLSearchParams): Promise<Response>;
  /** Takes another browser, which no user has signed in with. */
  newBrowser(): void;
  stop(): Promise<void>;
}

export async function startIssuerFront(): Promise<IssuerFront> {
  const server: Server = createServer((incoming, response) => {
    if (front.intercept?.(incoming, response) === true) return;
    if (front.behind === null) response.writeHead(503).end();
    else forward(front.behind, incoming, response);
  });
  server.on('error', (error) => {
    throw error;
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const cookies = new Map<string, string>();

  const forward = (behind: Behind, incoming: IncomingMessage, response: ServerResponse): void => {
    const { method, url: path = '/', headers } = incoming;
    // The provider sees the address that it has for others.
    const asked = request(
      {
        ...behind,
        method,
        path,
        headers: { ...headers, connection: 'close' },
      },
      (answered) => {
        const { connection: _, ...rest } = answered.headers;
        response.writeHead(answered.statusCode ?? 0, rest);
        answered.pipe(response);
      },
    );
    asked.on('error', (error) => response.writeHead(502).end(error.message));
    incoming.pipe(asked);
  };

  const ask: IssuerFront['ask'] = async (address, method = 'GET', body) => {
    const response = await fetch(address, {
      method,
      redirect: 'manual',
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') },
      ...(body !== undefined && { body }),
    });
    for (const line of response.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      if (value === '') cookies.delete(name);
      else cookies.set(name, value);
    }
    return response;
  };

  const front: IssuerFront = {
    url,
    behind: null,
    intercept: null,
    ask,
    visit: async (location, user) => {
      let [next, response] = [location, await ask(location)];
      for (let steps = 0; steps < 10; steps += 1) {
        const to = response.headers.get('location');
        if (to !== null) {
          next = new URL(to, url).href;
          if (!next.startsWith(url)) return next;
          response = await ask(next);
          continue;
        }
        const page = await response.text();
        if (!page.includes('type="password"'))
          throw new Error(`the issuer answered ${response.status}: ${page.slice(0, 500)}`);
        response = await ask(next, 'POST', filledIn(page, user));
      }
      throw new Error('the issuer leads in a circle');
    },
    newBrowser: () => cookies.clear(),
    stop: async () => {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  return front;
}

/** The form of a sign-in, whose password is the name of the user. */
function filledIn(page: string, user: string): URLSearchParams {
  const form = new URLSearchParams();
  for (const [field] of page.matchAll(/<input[^>]*type="hidden"[^>]*>/g)) {
    const [name, value] = [/name="([^"]*)"/.exec(field)?.[1], /value="([^"]*)"/.exec(field)?.[1]];
    if (name !== undefined) form.set(name, value ?? '');
  }
  form.set('user', user);
  form.set('password', user);
  return form;
}
