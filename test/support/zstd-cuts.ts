/** Bodies in Zstandard that are cut off. A program of its own too, for a Node that has Zstandard where that of the tests lacks it. */
import { existsSync } from 'node:fs';
import { argv, env, stdout } from 'node:process';
import { fileURLToPath } from 'node:url';
import * as zlib from 'node:zlib';
import { CompressedBody } from '../../src/http/compressed-body.ts';

/** What the types of the oldest supported Node lack. */
const { constants, zstdCompressSync } = zlib as unknown as {
  readonly constants: { readonly ZSTD_c_checksumFlag: number };
  readonly zstdCompressSync?: (bytes: string, options?: object) => Buffer;
};

const hasZstd = zstdCompressSync !== undefined;
/** The program of a Node from 22.18 on. */
export const ZSTD_NODE = env.ZSTD_NODE ?? '';
export const hasZstdNode = ZSTD_NODE !== '' && existsSync(ZSTD_NODE);

/** What is skipped where no Node has it. */
export function missingZstd(): string[] {
  return hasZstd || hasZstdNode
    ? []
    : ['Zstandard: this Node lacks it, and ZSTD_NODE names no other (22.18 or later)'];
}

/** What is wrong with a body, as it is told; null if nothing is. */
function problemOf(bytes: Uint8Array): Promise<string | null> {
  return new Promise((resolve) => {
    const ignore = (): void => undefined;
    const onWindow = (): boolean => true;
    const body = new CompressedBody('zstd', { onWindow, onTaken: ignore, onBytes: ignore, onEnd: resolve });
    body.write(bytes, true);
  });
}

/** Cuts that are taken for whole bodies, and whole bodies that are not: there should be none. */
export async function mistakenCuts(): Promise<string[]> {
  if (zstdCompressSync === undefined) throw new Error('This Node lacks Zstandard.');
  const numbers = Array.from({ length: 100_000 }, (_, n) => (n * 7_919) % 100_003).join();
  const mistaken: string[] = [];
  for (const [name, text] of [
    ['short', '{"a":1}'],
    ['long', numbers],
  ] as const)
    for (const checksum of [0, 1]) {
      const whole = zstdCompressSync(text, { params: { [constants.ZSTD_c_checksumFlag]: checksum } });
      if ((await problemOf(whole)) !== null) mistaken.push(`${name}, whole, checksum ${checksum}`);
      for (const cut of [1, 2, 3, 4, 5, 7, whole.length >> 1, whole.length - 6, whole.length - 1]) {
        const problem = await problemOf(whole.subarray(0, whole.length - cut));
        if (problem?.includes('cut off') !== true)
          mistaken.push(`${name}, without ${cut}, checksum ${checksum}`);
      }
    }
  return mistaken;
}

if (argv[1] === fileURLToPath(import.meta.url)) stdout.write(JSON.stringify(await mistakenCuts()));
