/**
 * Holds password checks at the point where races are decided: the password was compared, and its answer is on the way. Put
 * in place of the package by a test file:
 *
 *   vi.mock('@node-rs/argon2', async (original) => gatedArgon2(await original()));
 */
type Argon2 = typeof import('@node-rs/argon2');

interface Held {
  readonly password: string;
  release(): void;
}

/** What was held up, in order of arrival. Each test file has its own. */
class Argon2Gate {
  /** Of which passwords the checks and the hashes are held. */
  holds: (password: string) => boolean = () => false;
  /** Passwords that are answered without work: they are wrong. */
  isCheap: (password: string) => boolean = () => false;
  readonly held: Held[] = [];
  /** The passwords of the checks that were begun. */
  readonly checked: string[] = [];

  /** Lets everything through, now and later. */
  open(): void {
    this.holds = () => false;
    while (this.held.length > 0) this.held.shift()?.release();
  }

  /** Lets the one through that came first. */
  releaseOne(): void {
    this.held.shift()?.release();
  }

  async pass(password: string): Promise<void> {
    if (!this.holds(password)) return;
    await new Promise<void>((resolve) => this.held.push({ password, release: resolve }));
  }
}

export const gate = new Argon2Gate();

export function gatedArgon2(argon2: Argon2): Argon2 {
  return {
    ...argon2,
    verify: async (stored, password, ...rest) => {
      const text = String(password);
      gate.checked.push(text);
      const matches = gate.isCheap(text) ? false : await argon2.verify(stored, password, ...rest);
      await gate.pass(text);
      return matches;
    },
    hash: async (password, ...rest) => {
      const hashed = await argon2.hash(password, ...rest);
      await gate.pass(String(password));
      return hashed;
    },
  };
}
