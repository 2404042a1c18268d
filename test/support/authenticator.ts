/** An authenticator app on somebody's phone. */
import { Secret, TOTP } from 'otpauth';
import { newPerson, PASSWORD, Person, type Reply } from './person.ts';
import type { TestClock, TestService } from './service.ts';

/** The code that the app shows. @param at milliseconds since the Unix epoch */
export function codeAt(secret: string, at: number): string {
  return new TOTP({ secret: Secret.fromBase32(secret) }).generate({ timestamp: at });
}

/** An account with a second factor, and its owner, who is signed in. */
export interface Protected {
  readonly email: string;
  readonly owner: Person;
  readonly secret: string;
  readonly recoveryCodes: readonly string[];
  /** A code that was not used yet: the clock goes on to the next one. */
  nextCode(): string;
}

export const CODE_EVERY_MS = 30_000;

/** Makes an account and turns its second factor on. */
export async function newProtected(
  service: TestService,
  clock: TestClock,
  email: string,
): Promise<Protected> {
  const owner = await newPerson(service, email);
  const secret = String((await owner.post('/api/second-factor', { password: PASSWORD })).data.secret);
  const nextCode = (): string => {
    clock.advance(CODE_EVERY_MS);
    return codeAt(secret, clock.wall());
  };
  const confirmed = await owner.post('/api/second-factor/confirmation', { code: nextCode() });
  if (confirmed.status !== 200) throw new Error(`The second factor stays off: ${confirmed.text}`);
  const recoveryCodes = confirmed.data.recoveryCodes as string[]; // As the route declares it.
  return { email, owner, secret, recoveryCodes, nextCode };
}

/** The first step of a sign-in. @returns the challenge; fails where there is none */
export async function challengeFor(
  person: Person,
  email: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<string> {
  const reply = await person.post('/api/session', { email, password: PASSWORD }, { headers });
  if (reply.status !== 202) throw new Error(`There is no challenge: ${reply.text}`);
  return String(reply.data.challenge);
}

/** Both steps of a sign-in by a new browser. */
export async function signInWithCode(
  service: TestService,
  email: string,
  code: string,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ person: Person; reply: Reply }> {
  const person = new Person(service);
  const challenge = await challengeFor(person, email, headers);
  return { person, reply: await person.post('/api/session/code', { challenge, code }, { headers }) };
}
