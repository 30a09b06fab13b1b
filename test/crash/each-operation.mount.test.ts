import { afterAll, beforeAll, describe, expect, onTestFailed, test } from 'vitest';
import { O_APPEND, O_CREAT, O_EXCL, O_RDWR, O_TMPFILE, O_WRONLY } from '../conformance/file-api.ts';
import { tellFigures } from '../harness/figures.ts';
import { titled } from '../harness/requirement.ts';
import { SyscallProcess } from '../harness/syscall-process.ts';
import { MortalMount, missingForContinuity } from './killed-under-load.ts';

/** How often each operation meets each point; 0: a quarter of the operations meets one point each. `npm run soak -- continuity` sets it. */
const ROUNDS = Number(process.env.CFS_TEST_ROUNDS ?? '0');
const SEED = Number(process.env.CFS_CASES_SEED ?? '1');

/** Where the processes die before the call is answered (kill-points.mjs), one after the other. */
const DEATHS = {
  'before its record': ['journal-write before'],
  'in its record': ['journal-write torn'],
  'after its record': ['journal-write after'],
  'after its record, and before the takeover': ['journal-write after', 'takeover before'],
  'after its record, and after the takeover': ['journal-write after', 'takeover after'],
} as const;
type Death = keyof typeof DEATHS | 'after its reply';
const ALL_DEATHS: readonly Death[] = [...(Object.keys(DEATHS) as Death[]), 'after its reply'];

/** renameat2(2), setxattr(2) */
const RENAME_EXCHANGE = 2;
const XATTR_CREATE = 1;
const S_IFIFO = 0o010000;
const APPENDED = 100_000;
const ATTRIBUTE = 'user.made';

interface Operation {
  /** @returns what `act` and `check` get: a descriptor, or nothing */
  prepare?(api: SyscallProcess): Promise<number>;
  act(api: SyscallProcess, fd: number): Promise<unknown>;
  /** The names afterwards, and what else the operation made. */
  names: readonly string[];
  check?(api: SyscallProcess, fd: number): Promise<void>;
  /** It writes bytes, and no record. */
  writes?: true;
  /** While it runs, the disk is slow: the bytes are written in the pool. */
  onSlowDisk?: true;
}

const made = async (api: SyscallProcess, name: string, text = name): Promise<number> => {
  const fd = await api.open(name, O_CREAT | O_EXCL | O_RDWR);
  await api.write(fd, 0, Buffer.from(text));
  await api.close(fd);
  return fd;
};
const textOf = async (api: SyscallProcess, name: string): Promise<string> => {
  const fd = await api.open(name, O_RDWR);
  const text = Buffer.from(await api.read(fd, 0, 100)).toString();
  await api.close(fd);
  return text;
};

const APPEND: Operation = {
  async prepare(api) {
    const fd = await api.open('log', O_CREAT | O_WRONLY | O_APPEND);
    await api.process.writeHere(fd, Buffer.alloc(APPENDED, '1'));
    return fd;
  },
  act: (api, fd) => api.process.writeHere(fd, Buffer.alloc(APPENDED, '2')),
  names: ['log'],
  async check(api, fd) {
    await api.close(fd);
    expect((await api.stat('log')).sizeBytes).toBe(2 * APPENDED);
  },
  writes: true,
};

/** Each would fail, or do something else, if it were carried out twice. */
const OPERATIONS: Readonly<Record<string, Operation>> = {
  'open with O_EXCL': {
    act: async (api) => {
      const fd = await api.open('new', O_CREAT | O_EXCL | O_RDWR);
      await api.write(fd, 0, Buffer.from('written'));
      await api.close(fd);
    },
    names: ['new'],
    check: async (api) => expect(await textOf(api, 'new')).toBe('written'),
  },
  mkdir: { act: (api) => api.mkdir('new'), names: ['new'] },
  symlink: {
    act: (api) => api.symlink('target', 'new'),
    names: ['new'],
    check: async (api) => expect(await api.readlink('new')).toBe('target'),
  },
  mknod: {
    act: (api) => api.process.mknod('new', S_IFIFO | 0o644),
    names: ['new'],
    check: async (api) => expect((await api.lstat('new')).kind).toBe('fifo'),
  },
  'linkat of a nameless file': {
    async prepare(api) {
      const fd = await api.open('.', O_RDWR | O_TMPFILE);
      await api.write(fd, 0, Buffer.from('nameless'));
      return fd;
    },
    act: (api, fd) => api.process.linkOpen(fd, 'new'),
    names: ['new'],
    async check(api, fd) {
      await api.close(fd);
      expect(await textOf(api, 'new')).toBe('nameless');
    },
  },
  unlink: { prepare: (api) => made(api, 'old'), act: (api) => api.unlink('old'), names: [] },
  rmdir: { prepare: async (api) => Number(await api.mkdir('old')), act: (api) => api.rmdir('old'), names: [] },
  'rename over a file': {
    prepare: async (api) => (await made(api, 'one')) + (await made(api, 'two')),
    act: (api) => api.rename('one', 'two'),
    names: ['two'],
    check: async (api) => expect(await textOf(api, 'two')).toBe('one'),
  },
  'rename with RENAME_EXCHANGE': {
    prepare: async (api) => (await made(api, 'one')) + (await made(api, 'two')),
    act: (api) => api.rename('one', 'two', RENAME_EXCHANGE),
    names: ['one', 'two'],
    check: async (api) => expect([await textOf(api, 'one'), await textOf(api, 'two')]).toEqual(['two', 'one']),
  },
  'setxattr with XATTR_CREATE': {
    prepare: (api) => made(api, 'file'),
    act: (api) => api.setxattr('file', ATTRIBUTE, Buffer.from('value'), XATTR_CREATE),
    names: ['file'],
    check: async (api) => expect(Buffer.from(await api.getxattr('file', ATTRIBUTE)).toString()).toBe('value'),
  },
  removexattr: {
    async prepare(api) {
      const fd = await made(api, 'file');
      await api.setxattr('file', ATTRIBUTE, Buffer.from('value'));
      return fd;
    },
    act: (api) => api.removexattr('file', ATTRIBUTE),
    names: ['file'],
    check: async (api) => expect(await api.listxattr('file')).toEqual([]),
  },
  append: APPEND,
  'append on a slow disk': { ...APPEND, onSlowDisk: true },
};
const NAMES = Object.keys(OPERATIONS);

const missing = missingForContinuity();
describe.skipIf(missing !== null).each([
  { mode: 'resent', flags: ['--settle=1h'] },
  { mode: 'kept', flags: ['--settle=1h', '--mask-features=resend'] },
])(titled('each operation over deaths, requests are $mode', missing), ({ mode, flags }) => {
  let mortal: MortalMount;
  let api: SyscallProcess;
  let folders = 0;
  beforeAll(async () => {
    mortal = await MortalMount.start(flags);
  });
  afterAll(() => mortal?.dispose());

  // Another quarter in each mode; another commit has others.
  const quarter = (SEED + (mode === 'resent' ? 0 : 2)) % 4;
  test.each(ROUNDS > 0 ? NAMES : NAMES.filter((_, at) => at % 4 === quarter))(
    '%s takes effect once, wherever the process dies',
    { timeout: 120_000 + ROUNDS * 300_000 },
    async (name) => {
      const operation = OPERATIONS[name] as Operation;
      const deaths =
        ROUNDS > 0
          ? ALL_DEATHS
          : [ALL_DEATHS[(NAMES.indexOf(name) + Math.floor(SEED / 4)) % ALL_DEATHS.length] as Death];
      onTestFailed(() => mortal.mount.printLogs());
      for (let round = 0; round < Math.max(1, ROUNDS); round++)
        for (const death of deaths) await dieIn(operation, death);
      tellFigures(`${name}, requests are ${mode}: ${Math.max(1, ROUNDS) * deaths.length} deaths`);
    },
  );

  async function dieIn(operation: Operation, death: Death): Promise<void> {
    const { prepare, act, names, check, writes, onSlowDisk } = operation;
    const { mount } = mortal;
    mortal.isDiskSlow = onSlowDisk === true;
    await mount.run(`mkdir ${++folders}`);
    api = await SyscallProcess.start(`${mount.directory}/${folders}`);
    try {
      const fd = (await prepare?.(api)) ?? -1;
      const points = death === 'after its reply' ? [] : DEATHS[death];
      mortal.nextDeaths = writes === true ? points.map((point) => point.replace('journal', 'content')) : points;
      await act(api, fd);
      // Where a successor serves the request during its takeover, the call is answered before it dies.
      await expect.poll(() => mortal.nextDeaths, { message: `${death}: the process does not die there` }).toEqual([]);
      await mount.followed();
      if (death === 'after its reply') await mount.killAndContinue();
      expect((await api.readdir('.')).map((entry) => entry.name).sort(), death).toEqual(names);
      await check?.(api, fd);
    } finally {
      await api.dispose();
    }
  }
});
