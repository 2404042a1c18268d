/** A pipe whose reader reads when the test says so. */
import { execFileSync } from 'node:child_process';
import { closeSync, constants, mkdtempSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const { O_RDONLY, O_WRONLY, O_NONBLOCK } = constants;

export class StoppedReader {
  /** The end to write to, as a shell would hand it to a program: its writes block. */
  readonly writeFd: number;
  readonly #folder = mkdtempSync(join(tmpdir(), 'tidemark-pipe-'));
  readonly #path = join(this.#folder, 'pipe');
  readonly #readFd: number;

  constructor() {
    execFileSync('mkfifo', [this.#path]);
    this.#readFd = openSync(this.#path, O_RDONLY | O_NONBLOCK);
    this.writeFd = openSync(this.#path, O_WRONLY);
  }

  /** Another writer's end, which does not block. */
  open(): number {
    return openSync(this.#path, O_WRONLY | O_NONBLOCK);
  }

  /** Fills the pipe with empty lines, so that the next write finds no room. */
  fill(): void {
    const fd = this.open();
    try {
      for (const size of [4_096, 1]) writeUntilFull(fd, Buffer.alloc(size, '\n'));
    } finally {
      closeSync(fd);
    }
  }

  /** Takes what the pipe has now. */
  read(): string {
    const buffer = Buffer.alloc(1_048_576);
    let text = '';
    for (let length = this.#take(buffer); length > 0; length = this.#take(buffer))
      text += buffer.toString('utf8', 0, length);
    return text;
  }

  #take(buffer: Buffer): number {
    try {
      return readSync(this.#readFd, buffer);
    } catch (error) {
      if (isEmptyOrFull(error)) return 0;
      throw error;
    }
  }

  close(): void {
    closeSync(this.writeFd);
    closeSync(this.#readFd);
    rmSync(this.#folder, { recursive: true });
  }
}

function writeUntilFull(fd: number, bytes: Buffer): void {
  try {
    for (;;) writeSync(fd, bytes);
  } catch (error) {
    if (!isEmptyOrFull(error)) throw error;
  }
}

function isEmptyOrFull(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EAGAIN';
}
