/** What the journal asks of the file system: syncs after writes, and writes that the system does in parts. */
import { type FileHandle, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { SYSTEM_FILES } from '../../../src/ingest/journal/files.ts';

let folder: string;
/** The methods of all handles. */
let handles: FileHandle;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tidemark-files-'));
  const handle = await open(folder);
  handles = Object.getPrototypeOf(handle);
  await handle.close();
});
afterEach(() => {
  vi.restoreAllMocks();
});
afterAll(() => rm(folder, { recursive: true }));

/** Names of the calls on handles, in order. */
function callsOf(
  ...methods: readonly ('write' | 'writeFile' | 'truncate' | 'sync' | 'datasync')[]
): string[] {
  const calls: string[] = [];
  for (const method of methods) {
    const original = handles[method] as (...args: unknown[]) => Promise<unknown>;
    vi.spyOn(handles, method).mockImplementation(async function (this: FileHandle, ...args: unknown[]) {
      const result = await original.apply(this, args);
      calls.push(method);
      return result as never;
    });
  }
  return calls;
}

test('what has to be durable is synced after it was written', async () => {
  const calls = callsOf('write', 'writeFile', 'truncate', 'sync', 'datasync');
  const path = join(folder, 'a segment');
  const file = await SYSTEM_FILES.create(path);
  await file.write(Buffer.from('0123456789'), 0);
  await file.sync();
  await file.truncate(8);
  await file.close();
  expect(calls.splice(0)).toEqual(['write', 'datasync', 'truncate', 'sync']);
  await SYSTEM_FILES.cut(path, 5);
  expect(calls.splice(0)).toEqual(['truncate', 'sync']);
  await SYSTEM_FILES.append(path, 'ab');
  expect(calls.splice(0).filter((call) => call !== 'write')).toEqual(['writeFile', 'sync']);
  await SYSTEM_FILES.syncFolder(folder);
  expect(calls).toEqual(['sync']);
  expect(await readFile(path, 'utf8')).toBe('01234ab');
});

test('a write that the system does in parts is completed at its place', async () => {
  const original = handles.write as (...args: unknown[]) => Promise<unknown>;
  vi.spyOn(handles, 'write').mockImplementation(function (
    this: FileHandle,
    ...[bytes, from, length, position]: unknown[]
  ) {
    return original.call(this, bytes, from, Math.min(Number(length), 3), position) as never;
  });
  const path = join(folder, 'parts');
  const file = await SYSTEM_FILES.create(path);
  await file.write(Buffer.from('0123456789'), 0);
  await file.write(Buffer.from('abcdefgh'), 10);
  await file.close();
  expect(await readFile(path, 'utf8')).toBe('0123456789abcdefgh');
});

test('a block that the disk cannot read is zeros, and what is around it is read', async () => {
  const path = join(folder, 'bad sector');
  const bytes = Buffer.alloc(1_500_000, 'a');
  const [from, until] = [409_600, 413_696];
  await writeFile(path, bytes);
  const original = handles.read as (...args: unknown[]) => Promise<unknown>;
  vi.spyOn(handles, 'read').mockImplementation(function (this: FileHandle, ...args: unknown[]) {
    const [, , length, position] = args as [Buffer, number, number, number];
    if (position < until && position + length > from)
      return Promise.reject(Object.assign(new Error('EIO: injected'), { code: 'EIO' }));
    return original.apply(this, args) as never;
  });
  // toEqual compares byte by byte, for seconds.
  expect((await SYSTEM_FILES.read(path))?.equals(bytes.fill(0, from, until))).toBe(true);
});

test('a write of nothing is an error, and no endless loop', async () => {
  const file = await SYSTEM_FILES.create(join(folder, 'nothing'));
  vi.spyOn(handles, 'write').mockResolvedValue({ bytesWritten: 0, buffer: Buffer.alloc(0) } as never);
  await expect(file.write(Buffer.from('x'), 0)).rejects.toThrow(/wrote no bytes/);
  await file.close();
});

test('a file that is there is not made again, and one that cannot be looked at is not taken for missing', async () => {
  const path = join(folder, 'there');
  await (await SYSTEM_FILES.create(path)).close();
  await expect(SYSTEM_FILES.create(path)).rejects.toMatchObject({ code: 'EEXIST' });
  expect(await SYSTEM_FILES.inspect(path)).toEqual({ kind: 'file', size: 0 });
  expect(await SYSTEM_FILES.inspect(join(folder, 'missing'))).toBeNull();
  await expect(SYSTEM_FILES.inspect(join(path, 'below a file'))).rejects.toMatchObject({ code: 'ENOTDIR' });
});
