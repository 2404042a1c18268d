/**
 * A disk that forgets what was not synced, as a power cut does: LazyFS (https://github.com/dsrhaslab/lazyfs), in FUSE. It
 * keeps the bytes of files in its own memory until they are synced. Names (made, renamed, removed) are kept at once: that
 * they are synced too is not shown here. Only root may mount it for others, and it knows no sockets.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './service.ts';

/** The folder of its program `lazyfs`, in the environment as LAZYFS_HOME. */
const HOME = process.env.LAZYFS_HOME ?? '';

export const hasLazyDisk = HOME !== '' && existsSync(join(HOME, 'lazyfs'));

export class LazyDisk {
  /** Where it is mounted. */
  readonly path: string;
  readonly #folder: string;
  #program: ChildProcess | null = null;
  #said = '';

  private constructor(folder: string) {
    this.#folder = folder;
    this.path = join(folder, 'disk');
  }

  static async make(): Promise<LazyDisk> {
    const folder = await mkdtemp(join(tmpdir(), 'tidemark-lazy-'));
    await chmod(folder, 0o755);
    const disk = new LazyDisk(folder);
    await Promise.all([mkdir(disk.#kept), mkdir(disk.path)]);
    const settings = `[faults]\nfifo_path="${disk.#commands}"\n[cache]\napply_eviction=false\n[cache.simple]\ncustom_size="2gb"\nblocks_per_page=1\n`;
    await writeFile(disk.#config, settings);
    await disk.#mount();
    return disk;
  }

  /** What was not synced is gone. Whoever used it has to be dead by now, as after a power cut. */
  async cutPower(): Promise<void> {
    this.#said = '';
    await writeFile(this.#commands, 'lazyfs::clear-cache\n');
    await until(() => this.#said.includes('cache is cleared'), 'the disk has forgotten');
    // The system has its own memory of the files, which goes with the mount.
    await this.#unmount();
    await this.#mount();
  }

  async remove(): Promise<void> {
    await this.#unmount();
    await rm(this.#folder, { recursive: true, force: true });
  }

  get #kept(): string {
    return join(this.#folder, 'kept');
  }

  get #commands(): string {
    return join(this.#folder, 'commands');
  }

  get #config(): string {
    return join(this.#folder, 'lazyfs.toml');
  }

  async #mount(): Promise<void> {
    const { dev } = await stat(this.path);
    const options = ['-o', 'allow_other', '-o', 'modules=subdir', '-o', `subdir=${this.#kept}`, '-f'];
    const program = spawn(join(HOME, 'lazyfs'), [this.path, '--config-path', this.#config, ...options], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    const hear = (text: Buffer): void => {
      this.#said = (this.#said + text).slice(-10_000);
    };
    program.stdout.on('data', hear);
    program.stderr.on('data', hear);
    this.#program = program;
    await until(async () => {
      if (program.exitCode !== null) throw new Error(`LazyFS has ended: ${this.#said}`);
      return (await stat(this.path)).dev !== dev && this.#said.includes('waiting for fault commands');
    }, 'LazyFS is mounted');
  }

  async #unmount(): Promise<void> {
    const program = this.#program;
    if (program === null) return;
    const ended = once(program, 'exit');
    await until(() => spawnSync('umount', [this.path]).status === 0, 'nobody uses the disk any more');
    // Its thread for commands would keep it.
    program.kill('SIGKILL');
    await ended;
    this.#program = null;
  }
}
