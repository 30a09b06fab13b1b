import { constants } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { InProcessMount } from '../harness/in-process-mount.ts';
import { SETTLE_MS, SyncedTower } from '../harness/synced-tower.ts';
import { MODEL_ROOT, MODEL_TRASH } from './model-service.ts';

/**
 * How programs save a file, as they call the system (taken from traces of them), one line per call. Whatever they do with names
 * on the way, the service is to see one file with one more version.
 */

const { O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY } = constants;
const F = 'report.txt';

type Step = (mount: InProcessMount, bytes: Buffer, before: Buffer) => Promise<unknown>;

interface Program {
  readonly name: string;
  readonly steps: readonly Step[];
  /** Whether it never leaves the name without a file: then a long pause in the middle of a save costs no history either. */
  readonly namesStay: boolean;
  /** What the program itself leaves beside the file. */
  readonly leaves?: readonly string[];
}

let fd = -1;
const open =
  (path: string, flags: number): Step =>
  async (mount) => {
    fd = await mount.open(path, flags, 0o644);
  };
const put: Step = (mount, bytes) => mount.write(fd, 0, bytes);
const putOld: Step = (mount, _bytes, before) => mount.write(fd, 0, before);
const empty: Step = (mount) => mount.ftruncate(fd, 0);
const fsync: Step = (mount) => mount.fsync(fd);
const close: Step = (mount) => mount.close(fd);
const rename =
  (from: string, to: string): Step =>
  (mount) =>
    mount.rename(from, to);
const unlink =
  (path: string): Step =>
  (mount) =>
    mount.unlink(path);
const chmod =
  (path: string): Step =>
  (mount) =>
    mount.chmod(path, 0o600);
const symlink =
  (target: string, path: string): Step =>
  (mount) =>
    mount.symlink(target, path);
const touch =
  (path: string): Step =>
  (mount) =>
    mount.utimes(path, 'omit', { sec: 1_700_000_000, nsec: 5 });
const NEW = O_WRONLY | O_CREAT | O_EXCL;

const SWAP = [open('.report.txt.swp', O_RDWR | O_CREAT | O_EXCL), put, close] as const;
const PROBE = [open('4913', NEW), close, unlink('4913')] as const;
const RENAMED_AWAY = [rename(F, `${F}~`), open(F, O_WRONLY | O_CREAT), put, fsync, close, chmod(F)] as const;

const PROGRAMS: readonly Program[] = [
  {
    name: 'vim, backupcopy=no',
    steps: [...SWAP, ...PROBE, ...RENAMED_AWAY, unlink(`${F}~`), unlink('.report.txt.swp')],
    namesStay: false,
  },
  {
    name: 'vim, backupcopy=auto (a second probe, then as no)',
    steps: [...SWAP, ...PROBE, ...PROBE, ...RENAMED_AWAY, unlink(`${F}~`), unlink('.report.txt.swp')],
    namesStay: false,
  },
  {
    name: 'vim, backupcopy=yes',
    steps: [
      ...SWAP,
      ...[open(`${F}~`, NEW), putOld, close, chmod(`${F}~`), touch(`${F}~`)],
      ...[open(F, O_WRONLY | O_CREAT), empty, put, fsync, close, unlink(`${F}~`), unlink('.report.txt.swp')],
    ],
    namesStay: true,
  },
  {
    name: 'emacs, the save that makes a backup',
    steps: [
      ...[symlink('someone@host.1:2', '.#report.txt'), open('#report.txt#', O_WRONLY | O_CREAT | O_TRUNC), put, close],
      ...RENAMED_AWAY,
      ...[unlink('#report.txt#'), unlink('.#report.txt')],
    ],
    namesStay: false,
    leaves: [`${F}~`],
  },
  {
    name: 'gedit (GIO)',
    steps: [open('.goutputstream-ABC123', NEW), put, fsync, close, rename('.goutputstream-ABC123', F)],
    namesStay: true,
  },
  {
    name: 'LibreOffice, with its lock file',
    steps: [
      ...[open('.~lock.report.txt#', NEW), put, close],
      ...[open('lu12abc.tmp', O_RDWR | O_CREAT | O_EXCL), put, close, rename('lu12abc.tmp', F)],
      unlink('.~lock.report.txt#'),
    ],
    namesStay: true,
  },
  { name: 'VS Code', steps: [open(F, O_WRONLY | O_CREAT | O_TRUNC), put, fsync, close], namesStay: true },
  {
    name: 'sed -i',
    steps: [open('sedk3JqLz', O_RDWR | O_CREAT | O_EXCL), put, close, chmod('sedk3JqLz'), rename('sedk3JqLz', F)],
    namesStay: true,
  },
  {
    name: 'rsync',
    steps: [
      ...[open('.report.txt.Xy12Zw', O_RDWR | O_CREAT | O_EXCL), put, close],
      ...[touch('.report.txt.Xy12Zw'), chmod('.report.txt.Xy12Zw'), rename('.report.txt.Xy12Zw', F)],
    ],
    namesStay: true,
  },
  {
    name: 'logrotate',
    steps: [rename(F, `${F}.1`), open(F, O_WRONLY | O_CREAT | O_EXCL), chmod(F), put, close],
    namesStay: false,
    leaves: [`${F}.1`],
  },
];

const text = (save: number): Buffer => Buffer.from(`the text as of save ${save}, ${'x'.repeat(save * 3)}`);

let world: SyncedTower;
let file: string;
beforeEach(async () => {
  world = await SyncedTower.build();
  // Somebody wrote it elsewhere, long ago.
  file = world.service.add('file', MODEL_ROOT, F, text(0));
  expect((await world.mount.readFile(F)).toString()).toBe(text(0).toString());
});
afterEach(() => world.close());

/** Runs a save; before the step `at` (or before each) some time passes. */
async function save(program: Program, number: number, pauseMs: number, at: number | 'each'): Promise<void> {
  for (const [index, step] of program.steps.entries()) {
    if (pauseMs > 0 && (at === 'each' || at === index)) await world.pass(pauseMs);
    await step(world.mount, text(number), text(number - 1));
  }
}

function bytesOnService(): Record<string, string> {
  const shown: Record<string, string> = {};
  for (const { name, url } of world.service.childrenOf(MODEL_ROOT))
    shown[name] = world.service.bytesOf(url)?.toString() ?? 'stub';
  return shown;
}

async function expectOneFile(program: Program, saves: number): Promise<void> {
  await world.converge();
  const resource = world.service.childrenOf(MODEL_ROOT).find(({ name }) => name === F);
  expect(resource?.url).toBe(file);
  const history = resource?.versions.map(({ bytes }) => bytes.toString()) ?? [];
  expect(history[0]).toBe(text(saves).toString());
  expect(history.at(-1)).toBe(text(0).toString());
  const inOrder = Array.from({ length: saves + 1 }, (_, at) => text(saves - at).toString());
  expect(inOrder.filter((bytes) => history.includes(bytes))).toEqual(history);
  const left = program.leaves ?? [];
  expect(Object.keys(bytesOnService()).sort()).toEqual([F, ...left].sort());
  for (const name of left) expect(bytesOnService()[name]).toBe(text(saves - 1).toString());
  expect((await world.mount.readFile(F)).toString()).toBe(text(saves).toString());
  expect(world.service.violations).toEqual([]);
}

describe.each(PROGRAMS)('$name', (program) => {
  test.each([
    ['at once', 0, 0],
    ['slowly, within the settle time', 100, 300],
    ['with the next save at the end of the settle time', 0, SETTLE_MS],
    ['with a minute and more between saves', 0, 70_000],
  ])('saves three times %s: one file with its history, and nothing beside it', async (_how, stepMs, betweenMs) => {
    for (let number = 1; number <= 3; number++) {
      await save(program, number, stepMs, 'each');
      await world.pass(betweenMs);
    }

    await expectOneFile(program, 3);
    expect(world.service.childrenOf(MODEL_TRASH)).toEqual([]);
  });

  test('a pause longer than the settle time, before any of its calls, loses nothing', async () => {
    for (const at of program.steps.keys()) {
      await world.close();
      world = await SyncedTower.build();
      file = world.service.add('file', MODEL_ROOT, F, text(0));
      await world.mount.readFile(F);

      await save(program, 1, 5 * SETTLE_MS, at);

      if (program.namesStay) await expectOneFile(program, 1);
      else {
        await world.converge();
        const names = [F, ...(program.leaves ?? [])].sort();
        expect(Object.keys(bytesOnService()).sort()).toEqual(names);
        expect(bytesOnService()[F]).toBe(text(1).toString());
        expect([...world.service.allBytes()]).toContain(text(0).toString());
      }
    }
  });
});
