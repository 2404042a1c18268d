/**
 * A disk that fails on demand and forgets at a power cut what was not synced: the bytes of files after their last sync, and
 * names that were made, changed or removed after the last sync of their folder.
 */
import { basename, dirname } from 'node:path';
import type { Claim } from '../../src/ingest/journal/claim.ts';
import type { Entry, JournalFile, JournalFiles } from '../../src/ingest/journal/files.ts';
import type { Owner, World } from './world.ts';

/** `failing`: any call may fail, and leave some of its work done. */
export type DiskState = 'well' | 'slow' | 'full' | 'failing';

const FAILURES_OF_A_FAILING_DISK = 0.3;
const FAILURES_OF_A_FULL_DISK = 0.8;

class Inode {
  readonly isFolder: boolean;
  bytes = Buffer.alloc(0);
  /** Durable bytes. */
  synced = 0;
  /** Where bytes begin of which a sync has failed: no later one makes them durable. */
  lostFrom = Number.POSITIVE_INFINITY;

  /** What durable bytes were before they were written over: a power cut leaves the old, the new, or some of both. */
  #writtenOver: { readonly position: number; readonly old: Buffer }[] = [];

  constructor(isFolder = false) {
    this.isFolder = isFolder;
  }

  write(bytes: Uint8Array, position: number): void {
    if (position + bytes.length <= this.synced) {
      const old = Buffer.from(this.bytes.subarray(position, position + bytes.length));
      this.#writtenOver.push({ position, old });
      this.bytes.set(bytes, position);
      return;
    }
    const end = Math.max(this.bytes.length, position + bytes.length);
    const grown = Buffer.alloc(end);
    this.bytes.copy(grown);
    grown.set(bytes, position);
    this.bytes = grown;
    this.synced = Math.min(this.synced, position);
  }

  sync(): void {
    this.synced = Math.min(this.bytes.length, this.lostFrom);
    this.#writtenOver = [];
  }

  /** @param kept how many of the bytes that were written over are on the disk, up to a number */
  cutPower(kept: (most: number) => number): void {
    for (const { position, old } of this.#writtenOver.reverse()) {
      const from = kept(old.length);
      this.bytes.set(old.subarray(from), position + from);
    }
    this.#writtenOver = [];
  }

  failToSync(): void {
    this.lostFrom = Math.min(this.lostFrom, this.synced);
  }

  truncate(length: number): void {
    this.bytes = Buffer.from(this.bytes.subarray(0, length));
    this.synced = Math.min(this.synced, length);
    if (this.lostFrom >= length) this.lostFrom = Number.POSITIVE_INFINITY;
  }
}

function failure(code: string): Error {
  return Object.assign(new Error(`${code}: simulated`), { code });
}

export class Disk {
  state: DiskState = 'well';
  readonly #world: World;
  /** Files by path, and folders, which have no bytes. */
  #names = new Map<string, Inode>();
  #durableNames = new Map<string, Inode>();
  readonly #claims = new Map<string, Owner>();
  /** Changes at a power cut: what was on its way to the disk never arrives. */
  #power = 0;

  constructor(world: World) {
    this.#world = world;
    for (const names of [this.#names, this.#durableNames]) names.set('/journal', new Inode(true));
  }

  /** Its paths and bytes now. */
  *files(): Iterable<readonly [path: string, bytes: Buffer]> {
    for (const [path, { bytes }] of this.#names) yield [path, bytes];
  }

  /** What a process that has ended held. */
  release(owner: Owner): void {
    for (const [folder, by] of this.#claims) if (by === owner) this.#claims.delete(folder);
  }

  /** Forgets what is not durable, or keeps some of it. */
  cutPower(): void {
    const { random } = this.#world;
    this.#power += 1;
    this.#claims.clear();
    for (const path of new Set([...this.#names.keys(), ...this.#durableNames.keys()])) {
      const [now, durable] = [this.#names.get(path), this.#durableNames.get(path)];
      if (now === durable || random.chance(0.3)) continue;
      if (durable === undefined) this.#names.delete(path);
      else this.#names.set(path, durable);
    }
    for (const path of [...this.#names.keys()])
      if (path !== '/journal' && !this.#names.has(dirname(path))) this.#names.delete(path);
    for (const inode of new Set(this.#names.values())) {
      inode.cutPower((most) => random.int(0, most));
      const written = inode.bytes.length;
      if (inode.synced < written) {
        const kept = random.int(inode.synced, written);
        const bytes = Buffer.alloc(random.chance(0.5) ? kept : written);
        inode.bytes.copy(bytes, 0, 0, kept);
        inode.bytes = bytes;
      }
      inode.synced = inode.bytes.length;
      inode.lostFrom = Number.POSITIVE_INFINITY;
    }
    this.#durableNames = new Map(this.#names);
  }

  /** The disk as a process uses it. */
  filesOf(owner: Owner): JournalFiles {
    return {
      makeFolder: (path) => this.#do('makeFolder', path, () => this.#makeFolder(path)),
      create: (path) => this.#do('create', path, () => this.#create(path)),
      read: (path) => this.#do('read', path, () => Buffer.from(this.#at(path).bytes)),
      lines: (path) => this.#lines(path),
      append: (path, lines) => this.#append(path, Buffer.from(lines)),
      list: (folder) => this.#do(null, folder, () => this.#list(folder)),
      rename: (from, to) =>
        this.#do('rename', from, () => {
          this.#names.set(to, this.#at(from));
          this.#names.delete(from);
        }),
      cut: (path, length) => this.#do('cut', path, () => this.#at(path).truncate(length)),
      inspect: (path) => this.#do(null, path, () => this.#inspect(path)),
      remove: (path) =>
        this.#do('remove', path, () => {
          this.#at(path);
          this.#names.delete(path);
        }),
      syncFolder: (folder) => this.#do('syncFolder', folder, () => this.#syncFolder(folder), true),
      claim: (folder) => this.#do(null, folder, () => this.#claim(folder, owner)),
    };
  }

  /**
   * One call. Its work is done even if its process is killed meanwhile, unless the power is cut.
   * @param call null: it never fails
   */
  async #do<Result>(call: string | null, path: string, work: () => Result, isSync = false): Promise<Result> {
    const { random } = this.#world;
    const power = this.#power;
    const why = call === null ? null : this.#failureOf(call);
    return await new Promise<Result>((resolve, reject) => {
      const owner = this.#world.owner;
      const answer = (say: () => void): void => void this.#world.after(0, say, owner);
      const happen = (): void => {
        if (power !== this.#power) return;
        try {
          if (why !== null) throw why;
          const result = work();
          answer(() => resolve(result));
        } catch (error) {
          this.#world.note(() => `disk: ${call} ${path}: ${String(error)}`);
          answer(() => reject(error));
        }
      };
      const slow = this.state === 'slow' ? random.between(20, 300) : 0;
      this.#world.after(slow + (isSync ? random.between(0.5, 6) : random.between(0.02, 0.3)), happen, null);
    });
  }

  #failureOf(call: string): Error | null {
    const { random } = this.#world;
    if (this.state === 'failing' && random.chance(FAILURES_OF_A_FAILING_DISK)) return failure('EIO');
    const takesRoom = ['create', 'write', 'append', 'makeFolder'].includes(call);
    if (this.state === 'full' && takesRoom && random.chance(FAILURES_OF_A_FULL_DISK))
      return failure('ENOSPC');
    return null;
  }

  #at(path: string): Inode {
    const inode = this.#names.get(path);
    if (inode === undefined) throw failure('ENOENT');
    return inode;
  }

  #makeFolder(path: string): void {
    if (!this.#names.has(path)) this.#names.set(path, new Inode(true));
  }

  #list(folder: string): string[] {
    this.#at(folder);
    return [...this.#names.keys()]
      .filter((path) => path !== folder && dirname(path) === folder)
      .map((path) => basename(path));
  }

  #inspect(path: string): Entry | null {
    const inode = this.#names.get(path);
    if (inode === undefined) return null;
    return { kind: inode.isFolder ? 'folder' : 'file', size: inode.bytes.length };
  }

  #syncFolder(folder: string): void {
    this.#at(folder);
    for (const path of [...this.#durableNames.keys()])
      if (dirname(path) === folder && path !== folder) this.#durableNames.delete(path);
    for (const [path, inode] of this.#names)
      if (dirname(path) === folder && path !== folder) this.#durableNames.set(path, inode);
  }

  #claim(folder: string, owner: Owner): Claim | null {
    if (this.#claims.has(folder)) return null;
    this.#claims.set(folder, owner);
    return {
      release: () =>
        this.#do(null, folder, () => {
          if (this.#claims.get(folder) === owner) this.#claims.delete(folder);
        }),
    };
  }

  #create(path: string): JournalFile {
    if (this.#names.has(path)) throw failure('EEXIST');
    this.#at(dirname(path));
    const inode = new Inode();
    this.#names.set(path, inode);
    return {
      write: (bytes, position) => this.#write(path, inode, bytes, position),
      sync: () => this.#sync(path, inode),
      truncate: (length) => this.#do('truncate', path, () => inode.truncate(length), true),
      close: () => this.#do(null, path, () => undefined),
    };
  }

  async #write(path: string, inode: Inode, bytes: Uint8Array, position: number): Promise<void> {
    const why = this.#failureOf('write');
    const written = why === null ? bytes.length : this.#world.random.int(0, bytes.length);
    await this.#do(null, path, () => inode.write(bytes.subarray(0, written), position));
    if (why !== null) throw why;
  }

  async #sync(path: string, inode: Inode): Promise<void> {
    const why = this.#failureOf('sync');
    await this.#do(null, path, () => (why === null ? inode.sync() : inode.failToSync()), true);
    if (why !== null) throw why;
  }

  async #append(path: string, bytes: Buffer): Promise<void> {
    const inode = await this.#do(null, path, () => {
      if (!this.#names.has(path)) this.#names.set(path, new Inode());
      return this.#at(path);
    });
    await this.#write(path, inode, bytes, inode.bytes.length);
    await this.#sync(path, inode);
  }

  async *#lines(path: string): AsyncIterable<string> {
    const bytes = await this.#do(null, path, () => Buffer.from(this.#at(path).bytes));
    for (const line of bytes.toString().split('\n')) if (line !== '') yield line;
  }
}
