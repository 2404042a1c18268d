/** The text of a schema: its limits, its digest, and the proof that it compiles. */
import { hash } from 'node:crypto';
import { SchemaThread } from './schema-thread.ts';

/** Limits of a schema's text, in characters, and of its nesting. */
export const MAX_SCHEMA_LENGTH = 32_768;
const MAX_DEPTH = 100;
/** Schemas that wait for their proof; each takes some milliseconds, and at most two seconds. */
const MAX_WAITING = 20;

/** A schema that may be attached. */
export interface SchemaText {
  readonly text: string;
  /** SHA-256 in hex. */
  readonly digest: string;
}

/**
 * Reads a schema, which is stored as the shortest text of its value.
 * @returns what is wrong with it, worded to follow "the schema"
 */
export function readSchemaText(schema: unknown): SchemaText | string {
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return 'must be a JSON object';
  if (isDeeper(schema, MAX_DEPTH)) return `must be nested at most ${MAX_DEPTH} levels deep`;
  const text = JSON.stringify(schema);
  if (text.length > MAX_SCHEMA_LENGTH) return `must have at most ${MAX_SCHEMA_LENGTH} characters`;
  // No text column takes NUL, and half a character has no UTF-8: as escapes they are in the text.
  return { text, digest: hash('sha256', text, 'hex') };
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1));
}

/** Compiles schemas, one after the other, in a thread that no check waits for and that ends when there is nothing to do. */
export class SchemaProver {
  readonly #thread = new SchemaThread();
  /** Whose schemas wait or are being compiled. */
  readonly #waiting = new Set<string>();
  #last: Promise<unknown> = Promise.resolve();

  /**
   * @param owner whose schema it is: one of each is compiled at a time
   * @returns why the schema cannot be used, worded to follow "the schema"; null if it can; 'busy' if too many wait
   */
  async prove({ text, digest }: SchemaText, owner: string): Promise<string | 'busy' | null> {
    if (this.#waiting.size >= MAX_WAITING || this.#waiting.has(owner)) return 'busy';
    this.#waiting.add(owner);
    const proof = this.#last.then(() =>
      this.#thread.run({ schemas: { [digest]: text }, items: [{ digest, payload: null }] }),
    );
    this.#last = proof;
    const outcome = await proof;
    this.#waiting.delete(owner);
    if (this.#waiting.size === 0) await this.close();
    const problem = 'checked' in outcome ? (outcome.checked[0]?.problem ?? null) : outcome.problem;
    return problem === null ? null : `cannot be used: ${problem}`;
  }

  async close(): Promise<void> {
    await this.#thread.close();
  }
}
