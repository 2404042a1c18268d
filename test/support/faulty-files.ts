/** A journal's file system that fails on demand, over the real one. */
import { type JournalFile, type JournalFiles, SYSTEM_FILES } from '../../src/ingest/journal/files.ts';

export type FileCall = 'create' | 'write' | 'sync' | 'truncate' | 'read' | 'rename' | 'append' | 'syncFolder';

export class FaultyFiles implements JournalFiles {
  /** Asked before every call; what it returns is thrown. */
  fault: (call: FileCall, path: string) => Error | null = () => null;
  /** Calls in their order. */
  readonly calls: FileCall[] = [];
  /** Bytes of a write that fails that reach the file all the same. */
  partial = 0;
  /** Waited for before each sync. */
  beforeSync: () => Promise<void> = async () => undefined;

  /** The next `times` of a call fail as the system would say it. */
  failNext(call: FileCall, code: 'EIO' | 'ENOSPC', times = 1): void {
    let left = times;
    this.fault = (made) => {
      if (made !== call || left === 0) return null;
      left -= 1;
      return Object.assign(new Error(`${code}: injected`), { code });
    };
  }

  readonly makeFolder = SYSTEM_FILES.makeFolder;
  readonly list = SYSTEM_FILES.list;
  readonly remove = SYSTEM_FILES.remove;
  readonly cut = SYSTEM_FILES.cut;
  readonly inspect = SYSTEM_FILES.inspect;
  readonly lines = SYSTEM_FILES.lines;
  readonly claim = SYSTEM_FILES.claim;

  async create(path: string): Promise<JournalFile> {
    this.#meet('create', path);
    const file = await SYSTEM_FILES.create(path);
    return {
      write: async (bytes, position) => {
        try {
          this.#meet('write', path);
        } catch (error) {
          await file.write(bytes.subarray(0, this.partial), position);
          throw error;
        }
        await file.write(bytes, position);
      },
      sync: async () => {
        await this.beforeSync();
        this.#meet('sync', path);
        await file.sync();
      },
      truncate: async (length) => {
        this.#meet('truncate', path);
        await file.truncate(length);
      },
      close: () => file.close(),
    };
  }

  async read(path: string): Promise<Buffer> {
    this.#meet('read', path);
    return await SYSTEM_FILES.read(path);
  }

  async append(path: string, lines: string): Promise<void> {
    this.#meet('append', path);
    await SYSTEM_FILES.append(path, lines);
  }

  async rename(from: string, to: string): Promise<void> {
    this.#meet('rename', from);
    await SYSTEM_FILES.rename(from, to);
  }

  async syncFolder(folder: string): Promise<void> {
    this.#meet('syncFolder', folder);
    await SYSTEM_FILES.syncFolder(folder);
  }

  #meet(call: FileCall, path: string): void {
    this.calls.push(call);
    const error = this.fault(call, path);
    if (error !== null) throw error;
  }
}
