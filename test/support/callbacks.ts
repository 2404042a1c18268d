/** Browsers that come back from an issuer, and what must not come of an answer that is refused. */
import { expect } from 'vitest';
import { Person, type Reply } from './person.ts';
import type { TestService } from './service.ts';

/** A browser that was at the issuer. */
export interface Visit {
  readonly person: Person;
  /** What it comes back with. */
  readonly query: URLSearchParams;
  /** The address at the issuer that the service sent it to. */
  readonly location: string;
}

export class Callbacks {
  readonly #service: TestService;
  readonly #answer: (location: string) => URLSearchParams | Promise<URLSearchParams>;
  #networks = 0;

  /**
   * @param service with TRUST_PROXY=1
   * @param answer  what the issuer sends a browser back with, which the service sent to an address there
   */
  constructor(
    service: TestService,
    answer: (location: string) => URLSearchParams | Promise<URLSearchParams>,
  ) {
    this.#service = service;
    this.#answer = answer;
  }

  /** A network of its own, which no earlier attempt has slowed down. */
  from(): { headers: Record<string, string> } {
    this.#networks += 1;
    return { headers: { 'X-Forwarded-For': `10.1.${this.#networks >> 8}.${this.#networks & 255}` } };
  }

  /** Goes to the issuer. */
  async go(next?: string): Promise<Visit> {
    const person = new Person(this.#service);
    const query = next === undefined ? '' : `?${new URLSearchParams({ next })}`;
    const { headers } = await person.get(`/sign-in/oidc${query}`, this.from());
    const location = headers.location ?? '';
    return { person, query: await this.#answer(location), location };
  }

  comeBack(person: Person, query: URLSearchParams | string): Promise<Reply> {
    return person.get(`/sign-in/oidc/callback?${query}`, this.from());
  }

  async accounts(): Promise<unknown> {
    const [row] = await this.#service.sql`
      SELECT (SELECT count(*)::int FROM users) AS users, (SELECT count(*)::int FROM sessions) AS sessions,
             (SELECT count(*)::int FROM user_identities) AS identities`;
    return row;
  }

  /** Comes back, and expects that nothing came of it but a code for the user and a line in the log. */
  async expectRefused(
    person: Person,
    query: URLSearchParams | string,
    code: string | RegExp,
    cause: RegExp | null = null,
  ): Promise<void> {
    const before = await this.accounts();
    const lines = this.#service.log.length;
    const reply = await this.comeBack(person, query);
    const [page, problem] = (reply.headers.location ?? '').split('?problem=');
    const expected: unknown = typeof code === 'string' ? code : expect.stringMatching(code);
    expect([reply.status, page, problem, reply.text]).toEqual([303, '/sign-in', expected, '']);
    expect((await person.get('/api/session')).data.user).toBeNull();
    expect(await this.accounts()).toEqual(before);
    const written = this.#service.log.slice(lines);
    const refusals = written.filter(({ event }) => event === 'oidc.refusal');
    expect(refusals).toMatchObject([{ reason: expected }]);
    if (cause !== null) expect(refusals).toMatchObject([{ cause: expect.stringMatching(cause) }]);
    // Neither a token nor a code, nor more of an address than a code and its description may have.
    expect(JSON.stringify(written)).not.toMatch(/eyJ|code-\d|problem of the issuer|x{301}/);
  }

  /** Goes and comes back, and expects a session of this address. */
  async signsIn(email: string): Promise<Person> {
    const { person, query } = await this.go();
    expect((await this.comeBack(person, query)).headers.location).toBe('/');
    expect((await person.get('/api/session')).data.user).toMatchObject({ email });
    return person;
  }
}
