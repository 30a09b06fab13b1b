import { constants } from 'node:fs';
import type { InProcessMount } from '../harness/in-process-mount.ts';

/** How programs save a file, as they call the system (taken from traces of them), one line per call. */

const { O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY } = constants;
/** The name of the file that is saved. */
export const F = 'report.txt';

export type Step = (mount: InProcessMount, bytes: Buffer, before: Buffer) => Promise<unknown>;

export interface Program {
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

export const PROGRAMS: readonly Program[] = [
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
    name: 'VS Code, atomic',
    steps: [open(`${F}.vsctmp`, O_WRONLY | O_CREAT | O_TRUNC), put, fsync, close, rename(`${F}.vsctmp`, F)],
    namesStay: true,
  },
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
  {
    name: 'delete and create',
    steps: [unlink(F), open(F, NEW), put, fsync, close],
    namesStay: false,
  },
];
