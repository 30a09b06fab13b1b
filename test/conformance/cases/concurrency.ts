import { expect } from 'vitest';
import {
  F_RDLCK,
  F_UNLCK,
  F_WRLCK,
  LOCK_EX,
  LOCK_NB,
  LOCK_SH,
  LOCK_UN,
  O_APPEND,
  O_CREAT,
  O_EXCL,
  O_RDONLY,
  O_RDWR,
  O_WRONLY,
} from '../file-api.ts';
import { type Scenario, scenario } from '../scenario.ts';
import { expectSameBytes, fails, pattern } from '../workplace.ts';

/** Several at once: appends, exclusive creation, readers beside writers, locks. */
export const concurrencyScenarios: readonly Scenario[] = [
  scenario('lines that four processes append at once are all there and whole', ['process'], async (fs) => {
    await fs.put('log');
    const writers = await Promise.all([0, 1, 2, 3].map(() => fs.another()));
    await Promise.all(
      writers.map(async (writer, who) => {
        const fd = await writer.open('log', O_WRONLY | O_APPEND);
        for (let line = 0; line < 100; line++) {
          await writer.process.writeHere(fd, Buffer.from(`${who}:${line} ${'x'.repeat(line)}\n`));
        }
        await writer.close(fd);
      }),
    );

    const lines = (await fs.text('log')).split('\n').filter((line) => line !== '');
    const wanted = [0, 1, 2, 3].flatMap((who) =>
      Array.from({ length: 100 }, (_, line) => `${who}:${line} ${'x'.repeat(line)}`),
    );
    expect(lines.sort()).toEqual(wanted.sort());
  }),
  scenario('exactly one of eight concurrent O_EXCL creations of a name succeeds', ['process'], async (fs) => {
    const processes = await Promise.all(Array.from({ length: 8 }, () => fs.another()));
    for (let round = 0; round < 20; round++) {
      const outcomes = await Promise.allSettled(
        processes.map((process) => process.open(`lock-${round}`, O_WRONLY | O_CREAT | O_EXCL)),
      );
      expect(outcomes.filter(({ status }) => status === 'fulfilled').length).toBe(1);
    }
  }),
  scenario('exactly one of eight concurrent mkdir of a name succeeds', async (fs) => {
    for (let round = 0; round < 20; round++) {
      const outcomes = await Promise.allSettled(Array.from({ length: 8 }, () => fs.mkdir(`folder-${round}`)));
      expect(outcomes.filter(({ status }) => status === 'fulfilled').length).toBe(1);
    }
  }),
  scenario('many calls at once on different files all succeed', async (fs) => {
    await Promise.all(
      Array.from({ length: 200 }, async (_, index) => {
        const name = `file-${index}`;
        await fs.put(name, pattern(index * 50, index));
        expectSameBytes(await fs.get(name), pattern(index * 50, index));
      }),
    );

    expect((await fs.names()).length).toBe(200);
  }),
  scenario('writers of different parts of one file do not undo each other', ['process'], async (fs) => {
    await fs.put('file', Buffer.alloc(400_000));
    const wanted = pattern(400_000);
    const writers = await Promise.all([0, 1, 2, 3].map(() => fs.another()));
    await Promise.all(
      writers.map(async (writer, who) => {
        const fd = await writer.open('file', O_RDWR);
        for (let at = who * 1000; at < 400_000; at += 4000) {
          await writer.write(fd, at, wanted.subarray(at, at + 1000));
        }
        await writer.close(fd);
      }),
    );

    expectSameBytes(await fs.get('file'), wanted);
  }),
  scenario('another process sees a change as soon as the call has returned', ['process'], async (fs) => {
    const other = await fs.another();
    for (let round = 0; round < 50; round++) {
      await fails('ENOENT', other.stat(`file-${round}`));
      await fs.put(`file-${round}`, `round ${round}`);
      expect(await other.text(`file-${round}`)).toBe(`round ${round}`);
      await fs.put(`file-${round}`, 'changed');
      expect(await other.text(`file-${round}`)).toBe('changed');
      await fs.rename(`file-${round}`, 'moved');
      await fails('ENOENT', other.stat(`file-${round}`));
      expect(await other.names()).toEqual(['moved']);
      await fs.unlink('moved');
      await fails('ENOENT', other.open('moved', O_RDONLY));
    }
  }),
  scenario('a reader beside renames over the file always finds one whole version', ['process'], async (fs) => {
    const other = await fs.another();
    const version = (number: number) => `${number} `.repeat(3000);
    await fs.put('file', version(0));
    let writing = true;
    const reading = (async () => {
      while (writing) {
        const text = await other.text('file');
        expect(new Set(text.trim().split(' ')).size).toBe(1);
      }
    })();
    for (let number = 1; number <= 200; number++) {
      await fs.put('next', version(number));
      await fs.rename('next', 'file');
    }
    writing = false;
    await reading;

    expect(await other.text('file')).toBe(version(200));
  }),
  scenario('flock excludes another process until it is released', ['process'], async (fs) => {
    await fs.put('file');
    const other = await fs.another();
    const [mine, theirs] = [await fs.open('file', O_RDWR), await other.open('file', O_RDWR)];

    await fs.process.flock(mine, LOCK_EX | LOCK_NB);
    await fails('EAGAIN', other.process.flock(theirs, LOCK_SH | LOCK_NB));
    await fs.process.flock(mine, LOCK_UN);

    await other.process.flock(theirs, LOCK_EX | LOCK_NB);
  }),
  scenario('a lock on a range excludes another process there and nowhere else', ['process'], async (fs) => {
    await fs.put('file', pattern(1000));
    const other = await fs.another();
    const [mine, theirs] = [await fs.open('file', O_RDWR), await other.open('file', O_RDWR)];

    await fs.process.setLock(mine, F_WRLCK, 0, 100);
    await fails(['EAGAIN', 'EACCES'], other.process.setLock(theirs, F_RDLCK, 50, 10));
    await other.process.setLock(theirs, F_WRLCK, 100, 100);
    await fs.process.setLock(mine, F_UNLCK, 0, 100);

    await other.process.setLock(theirs, F_RDLCK, 50, 10);
  }),
];
