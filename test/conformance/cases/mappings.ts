import { expect } from 'vitest';
import { MAP_PRIVATE, MAP_SHARED, O_APPEND, O_CREAT, O_RDONLY, O_RDWR, PROT_READ, PROT_WRITE } from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { expectSameBytes, fails, pattern } from '../workplace.ts';

const MIB = 1024 * 1024;

/** mmap(2): readers, shared writers also after the descriptor is closed, and coherence with read(2) and write(2). */
export const mappingScenarios: readonly Scenario[] = [
  scenario('a mapping for reading shows the bytes of the file', ['process'], async (fs) => {
    await fs.put('file', pattern(300_000));
    const fd = await fs.open('file', O_RDONLY);
    const mapping = await fs.process.mmap(fd, 0, 300_000, PROT_READ, MAP_SHARED);

    expectSameBytes(await fs.process.peek(mapping, 0, 300_000), pattern(300_000));
    await fs.process.munmap(mapping);
  }),
  scenario('a mapping at an offset shows those bytes', ['process'], async (fs) => {
    await fs.put('file', pattern(3 * MIB));
    const fd = await fs.open('file', O_RDONLY);
    const mapping = await fs.process.mmap(fd, 2 * MIB, MIB, PROT_READ, MAP_PRIVATE);

    expectSameBytes(await fs.process.peek(mapping, 0, MIB), pattern(3 * MIB).subarray(2 * MIB));
    await fs.process.munmap(mapping);
  }),
  scenario('a mapping stays readable after its descriptor is closed and the name is gone', ['process'], async (fs) => {
    await fs.put('file', pattern(500_000));
    const fd = await fs.open('file', O_RDONLY);
    const mapping = await fs.process.mmap(fd, 0, 500_000, PROT_READ, MAP_SHARED);
    await fs.close(fd);
    await fs.unlink('file');

    expectSameBytes(await fs.process.peek(mapping, 0, 500_000), pattern(500_000));
    await fs.process.munmap(mapping);
  }),
  scenario('the page behind the end of the file reads as zeros', ['process'], async (fs) => {
    await fs.put('file', 'short');
    const fd = await fs.open('file', O_RDONLY);
    const mapping = await fs.process.mmap(fd, 0, 4096, PROT_READ, MAP_SHARED);

    expectSameBytes(await fs.process.peek(mapping, 0, 4096), Buffer.concat([Buffer.from('short'), Buffer.alloc(4091)]));
    await fs.process.munmap(mapping);
  }),
  scenario('what is written into a shared mapping is in the file after msync', ['process'], async (fs) => {
    await fs.put('file', pattern(300_000));
    const fd = await fs.open('file', O_RDWR);
    const mapping = await fs.process.mmap(fd, 0, 300_000, PROT_READ | PROT_WRITE, MAP_SHARED);

    await fs.process.poke(mapping, 140_000, Buffer.from('through the mapping'));
    await fs.process.msync(mapping);

    const wanted = pattern(300_000);
    Buffer.from('through the mapping').copy(wanted, 140_000);
    expectSameBytes(await fs.get('file'), wanted);
    await fs.process.munmap(mapping);
  }),
  scenario('what is written into a shared mapping is in the file after munmap and close', ['process'], async (fs) => {
    await fs.put('file', pattern(50_000));
    const fd = await fs.open('file', O_RDWR);
    const mapping = await fs.process.mmap(fd, 0, 50_000, PROT_READ | PROT_WRITE, MAP_SHARED);
    await fs.process.poke(mapping, 0, Buffer.from('first'));

    await fs.process.munmap(mapping);
    await fs.close(fd);

    expectSameBytes(await fs.get('file'), Buffer.concat([Buffer.from('first'), pattern(50_000).subarray(5)]));
  }),
  scenario('a shared mapping is written on after its descriptor is closed', ['process'], async (fs) => {
    await fs.put('file', pattern(50_000));
    const fd = await fs.open('file', O_RDWR);
    const mapping = await fs.process.mmap(fd, 0, 50_000, PROT_READ | PROT_WRITE, MAP_SHARED);
    await fs.close(fd);

    await fs.process.poke(mapping, 20_000, Buffer.from('after close'));
    await fs.process.munmap(mapping);

    const wanted = pattern(50_000);
    Buffer.from('after close').copy(wanted, 20_000);
    expectSameBytes(await fs.get('file'), wanted);
  }),
  scenario('a shared mapping is written to its place also where a descriptor appends', ['process'], async (fs) => {
    await fs.put('file', pattern(50_000));
    const appender = await fs.open('file', O_RDWR | O_APPEND);
    const mapping = await fs.process.mmap(appender, 0, 50_000, PROT_READ | PROT_WRITE, MAP_SHARED);

    await fs.process.poke(mapping, 20_000, Buffer.from('in the middle'));
    await fs.process.msync(mapping);
    await fs.process.munmap(mapping);
    await fs.close(appender);

    const wanted = pattern(50_000);
    Buffer.from('in the middle').copy(wanted, 20_000);
    expectSameBytes(await fs.get('file'), wanted);
  }),
  scenario('a shared mapping of a removed file is written on', ['process'], async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.ftruncate(fd, 8192);
    const mapping = await fs.process.mmap(fd, 0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED);
    await fs.unlink('file');

    await fs.process.poke(mapping, 5000, Buffer.from('nameless'));
    await fs.process.msync(mapping);

    expect(Buffer.from(await fs.read(fd, 5000, 8)).toString()).toBe('nameless');
    await fs.process.munmap(mapping);
  }),
  scenario('a private mapping never changes the file', ['process'], async (fs) => {
    await fs.put('file', 'untouched');
    const fd = await fs.open('file', O_RDWR);
    const mapping = await fs.process.mmap(fd, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE);

    await fs.process.poke(mapping, 0, Buffer.from('CHANGED'));
    await fs.process.munmap(mapping);

    expect(await fs.text('file')).toBe('untouched');
  }),
  scenario('write(2) shows in a shared mapping at once, and the other way round', ['process'], async (fs) => {
    await fs.put('file', pattern(20_000));
    const fd = await fs.open('file', O_RDWR);
    const mapping = await fs.process.mmap(fd, 0, 20_000, PROT_READ | PROT_WRITE, MAP_SHARED);
    await fs.process.peek(mapping, 0, 20_000);

    await fs.write(fd, 10_000, 'by write');
    expect(Buffer.from(await fs.process.peek(mapping, 10_000, 8)).toString()).toBe('by write');
    await fs.process.poke(mapping, 15_000, Buffer.from('by store'));

    expect(Buffer.from(await fs.read(fd, 15_000, 8)).toString()).toBe('by store');
    await fs.process.munmap(mapping);
  }),
  scenario('two processes share a mapping', ['process'], async (fs) => {
    await fs.put('file', Buffer.alloc(8192));
    const other = await fs.another();
    const [mine, theirs] = [await fs.open('file', O_RDWR), await other.open('file', O_RDWR)];
    const here = await fs.process.mmap(mine, 0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED);
    const there = await other.process.mmap(theirs, 0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED);

    await fs.process.poke(here, 100, Buffer.from('hello'));

    expect(Buffer.from(await other.process.peek(there, 100, 5)).toString()).toBe('hello');
    await fs.process.munmap(here);
    await other.process.munmap(there);
  }),
  scenario('a file made by ftruncate and a mapping alone has its bytes after close', ['process'], async (fs) => {
    const fd = await fs.open('file', O_RDWR | O_CREAT);
    await fs.ftruncate(fd, 2 * MIB);
    const mapping = await fs.process.mmap(fd, 0, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED);
    for (let at = 0; at < 2 * MIB; at += 256 * 1024) {
      await fs.process.poke(mapping, at, pattern(2 * MIB).subarray(at, at + 256 * 1024));
    }
    await fs.process.munmap(mapping);
    await fs.close(fd);

    expectSameBytes(await fs.get('file'), pattern(2 * MIB));
  }),
  scenario('bytes cut by truncate do not come back through a mapping', ['process'], async (fs) => {
    await fs.put('file', pattern(12_288));
    const fd = await fs.open('file', O_RDWR);
    const mapping = await fs.process.mmap(fd, 0, 12_288, PROT_READ, MAP_SHARED);
    await fs.process.peek(mapping, 0, 12_288);

    await fs.ftruncate(fd, 5000);
    await fs.ftruncate(fd, 12_288);

    expectSameBytes(await fs.process.peek(mapping, 5000, 7288), Buffer.alloc(7288));
    await fs.process.munmap(mapping);
  }),
  scenario('a writable shared mapping of a read-only descriptor is EACCES', ['process'], async (fs) => {
    await fs.put('file', 'bytes');
    const fd = await fs.open('file', O_RDONLY);

    await fails('EACCES', fs.process.mmap(fd, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED));
  }),
];
