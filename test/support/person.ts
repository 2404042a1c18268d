/** Somebody with a browser: keeps cookies, sends what a page of ours would send, and reads the answers' JSON. */
import { hashSync } from '@node-rs/argon2';
import { requireEmail } from '../../src/accounts/people/email.ts';
import { createVerifiedUser } from '../../src/accounts/people/sign-up.ts';
import { Passwords } from '../../src/accounts/sign-in/passwords.ts';
import type { HttpResponse } from './http-client.ts';
import type { TestService } from './service.ts';

export const PASSWORD = 'correct horse battery';

/** Of {@link PASSWORD}, at the least cost that argon2id has: a sign-in compares it in no time, as it takes the cost from the text. */
const CHEAP_HASH = hashSync(PASSWORD, { memoryCost: 8, timeCost: 1, parallelism: 1 });
const passwords = Object.assign(new Passwords(), { hash: async () => CHEAP_HASH });

/** An answer under /api. */
export interface Reply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** `data` of a good answer, the whole body of another. Tests look into it by name. */
  readonly data: Record<string, unknown>;
  /** The `code` of a refusal, empty for a good answer. */
  readonly code: string;
  readonly text: string;
}

export interface Asking {
  readonly headers?: Readonly<Record<string, string | null>>;
}

export class Person {
  readonly #service: Pick<TestService, 'request' | 'url'>;
  readonly #cookies = new Map<string, string>();
  /** The address of the account that signed in last. */
  email = '';

  constructor(service: Pick<TestService, 'request' | 'url'>) {
    this.#service = service;
  }

  get cookie(): string {
    return [...this.#cookies].map(([name, value]) => `${name}=${value}`).join('; ');
  }

  set cookie(header: string) {
    this.#cookies.clear();
    for (const pair of header.split('; ').filter((one) => one !== '')) {
      const [name = '', value = ''] = pair.split('=');
      this.#cookies.set(name, value);
    }
  }

  get(path: string, asking: Asking = {}): Promise<Reply> {
    return this.ask('GET', path, undefined, asking);
  }

  post(path: string, body: unknown = {}, asking: Asking = {}): Promise<Reply> {
    return this.ask('POST', path, JSON.stringify(body), asking);
  }

  put(path: string, body: unknown = {}, asking: Asking = {}): Promise<Reply> {
    return this.ask('PUT', path, JSON.stringify(body), asking);
  }

  patch(path: string, body: unknown = {}, asking: Asking = {}): Promise<Reply> {
    return this.ask('PATCH', path, JSON.stringify(body), asking);
  }

  delete(path: string, body: unknown = {}, asking: Asking = {}): Promise<Reply> {
    return this.ask('DELETE', path, JSON.stringify(body), asking);
  }

  /** Signs in and fails the test where that is refused. */
  async signIn(email: string, password = PASSWORD): Promise<this> {
    this.email = email;
    const reply = await this.post('/api/session', { email, password });
    if (reply.status !== 200) throw new Error(`${email} cannot sign in: ${reply.text}`);
    return this;
  }

  /** Any request, whose body is sent as it is. */
  async ask(method: string, path: string, body: string | undefined, asking: Asking = {}): Promise<Reply> {
    const response = await this.#service.request({
      method,
      path,
      headers: { ...(this.#cookies.size > 0 && { Cookie: this.cookie }), ...asking.headers },
      ...(body !== undefined && { body }),
    });
    this.#keepCookies(response);
    return read(response);
  }

  #keepCookies({ headers }: HttpResponse): void {
    const [, name, value] = /^([^=]+)=([^;]*)/.exec(headers['set-cookie'] ?? '') ?? [];
    if (name === undefined || value === undefined) return;
    if (value === '') this.#cookies.delete(name);
    else this.#cookies.set(name, value);
  }
}

function read({ status, headers, body }: HttpResponse): Reply {
  const parsed: unknown = headers['content-type'] === 'application/json' ? JSON.parse(body) : {};
  const whole = isRecord(parsed) ? parsed : {};
  const { data } = whole;
  return {
    status,
    headers,
    data: isRecord(data) ? data : whole,
    code: typeof whole.code === 'string' ? whole.code : '',
    text: body,
  };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

let addresses = 0;

/** An address that no account of a shared service has. */
export function newEmail(name = 'ann'): string {
  addresses += 1;
  return `${name}.${addresses}@example.com`;
}

/** Makes an account whose email counts as verified, as the command line does, and signs in. */
export async function newPerson(
  service: Pick<TestService, 'request' | 'url' | 'sql'>,
  email = newEmail(),
): Promise<Person> {
  await createVerifiedUser(service.sql, passwords, { email: requireEmail(email), password: PASSWORD });
  return await new Person(service).signIn(email);
}

/** Makes an app and gives its id and logging token. */
export async function newOwnApp(
  person: Person,
  name = 'Shop',
): Promise<{ appId: string; loggingToken: string; path: string }> {
  const { data } = await person.post('/api/apps', { name });
  const appId = String(data.appId);
  return { appId, loggingToken: String(data.loggingToken), path: `/api/apps/${appId}` };
}

/** Adds a person's verified address to an app, which the person then opens: that makes a member. */
export async function joinApp(
  owner: Person,
  path: string,
  person: Person,
  member: { readonly email: string; readonly role?: 'maintainer' | 'viewer' },
): Promise<void> {
  const { status, text } = await owner.post(`${path}/members`, member);
  const opened = await person.get(path);
  if (status !== 201 || opened.status !== 200) throw new Error(`${text}, then ${opened.text}`);
}
