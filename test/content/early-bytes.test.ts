import { afterEach, beforeEach, expect, test } from 'vitest';
import { BLOCK_BYTES } from '../../src/base/vocabulary.ts';
import { FileSystemSide } from '../harness/file-system-side.ts';
import { InProcessMount } from '../harness/in-process-mount.ts';
import { VersionService } from './version-service.ts';

const MIB = 1024 * 1024;

let service: VersionService;
let side: FileSystemSide;
let mount: InProcessMount;

beforeEach(async () => {
  service = new VersionService();
  service.namesVersionOf = () => {};
  side = await FileSystemSide.build({ listing: service, source: service });
  mount = new InProcessMount(side.fileSystem);
});

afterEach(() => side.close());

function bytesOf(length: number, seed = 1): Buffer {
  const words = new Uint32Array(Math.ceil(length / 4));
  for (let at = 0; at < words.length; at++) words[at] = Math.imul(at, 0x9e3779b1) + seed;
  return Buffer.from(words.buffer, 0, length);
}

async function readOnce(name: string, at: number, length: number): Promise<Buffer> {
  const fd = await mount.open(name, 'r');
  try {
    return await mount.read(fd, at, length);
  } finally {
    await mount.close(fd);
  }
}

test.each([10, 20_000, 300_000, MIB])('a small file of %i bytes needs no request after its version', async (length) => {
  const bytes = bytesOf(length);
  service.put('file', bytes);

  expect(Buffer.compare(await mount.readFile('file'), bytes)).toBe(0);
  expect({ pins: service.pins, early: service.early, fetches: service.fetches }).toEqual({
    pins: 1,
    early: [{ start: 0, end: length }],
    fetches: [],
  });
  expect(Buffer.compare(await mount.readFile('file'), bytes)).toBe(0);
  expect(service.fetches).toEqual([]); // it is kept
});

test('the first read of a large file needs no request after its version, and the bytes are kept', async () => {
  const bytes = bytesOf(8 * MIB + 5);
  service.put('large', bytes);
  const at = 5 * MIB + 10;

  const read = await readOnce('large', at, 4096);

  expect(Buffer.compare(read, bytes.subarray(at, at + 4096))).toBe(0);
  expect(service.early).toEqual([{ start: 5 * MIB, end: 5 * MIB + BLOCK_BYTES }]);
  expect(service.fetches).toEqual([]);
  expect(Buffer.compare(await readOnce('large', at, 4096), read)).toBe(0);
  expect(service.fetches).toEqual([]);
});

test('bytes of another version than the history names are not used', async () => {
  const [older, newer] = [bytesOf(3 * MIB, 1), bytesOf(3 * MIB, 2)];
  service.put('file', older);
  await mount.stat('file');
  // The bytes are read first, then the file is replaced, then the history answers.
  const ask = service.newestVersion.bind(service);
  let isReplaced = () => {};
  const replaced = new Promise<void>((resolve) => {
    isReplaced = resolve;
  });
  service.namesVersionOf = () => {
    service.put('file', newer);
    isReplaced();
  };
  service.newestVersion = async (...asked) => {
    await replaced;
    return await ask(...asked);
  };

  const read = await readOnce('file', MIB, 4096);

  expect(Buffer.compare(read, newer.subarray(MIB, MIB + 4096))).toBe(0);
  expect(service.early).toHaveLength(1);
  expect(service.fetches).toHaveLength(1);
});

test('a file whose bytes do not come with its version is fetched in the ordinary way', async () => {
  const bytes = bytesOf(3 * MIB);
  service.put('file', bytes);
  service.namesVersionOf = () => {
    throw new Error('the line is cut');
  };

  const read = await readOnce('file', MIB, 4096);

  expect(Buffer.compare(read, bytes.subarray(MIB, MIB + 4096))).toBe(0);
  expect(service.fetches).toHaveLength(1);
});

test('a file that is changed requests no bytes with its version', async () => {
  service.put('file', bytesOf(3 * MIB));
  const fd = await mount.open('file', 'r+');
  await mount.write(fd, 0, Buffer.from('changed'));
  await mount.close(fd);

  expect(service.early).toEqual([]);
});
