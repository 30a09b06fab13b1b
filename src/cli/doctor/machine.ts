import { lookup } from 'node:dns/promises';
import { readFileSync, statfsSync } from 'node:fs';
import { release } from 'node:os';
import type { Clock } from '../../base/clock.ts';
import { systemClock } from '../../base/clock.ts';
import { loadAddon } from '../../base/native.ts';
import { type SystemKind, systemKind } from '../../base/supported-system.ts';
import { type Fusermount, findFusermount } from '../../kernel/fusermount.ts';
import { keeperProgram } from '../../kernel/keeper.ts';
import type { MountEntry } from '../../kernel/mount-table.ts';
import { type MountState, stateOf } from '../../mount/mount-state.ts';

/** The system that `cfs doctor` checks: the paths and answers of its parts. Tests break one part at a time. */
export interface Machine {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly uid: number;
  readonly clock: Clock;
  /** Limit of each request, ms. */
  readonly limits: {
    readonly lookupMs: number;
    readonly answerMs: number;
    readonly signInMs: number;
    readonly statusMs: number;
  };
  readonly devicePath: string;
  readonly fuseConfPath: string;
  /** The file systems that the kernel knows (proc(5)). */
  readonly filesystemsPath: string;
  /** The directory of the kernel's settings for FUSE; missing before Linux 6.13. */
  readonly fuseSettingsPath: string;
  /** The mount table that fusermount3 reads. */
  readonly mtabPath: string;
  /** The fusermount3 that a mount would run; null: none. */
  fusermount(): Fusermount | null;
  /** The text of /proc/self/mountinfo. */
  mountTable(): string;
  /** Whether a mount answers. This process does not access it. */
  probe(mount: MountEntry): Promise<MountState>;
  /** @throws NodeJS.ErrnoException ENOTFOUND, EAI_AGAIN */
  lookup(host: string): Promise<unknown>;
  /** Space of the file system of `path`. @throws NodeJS.ErrnoException */
  disk(path: string): { readonly freeBytes: number; readonly totalBytes: number };
  readonly fstabPath: string;
  /** Where a helper of mount(8) finds programs: mount(8) passes no PATH on, so it is the default of sh. */
  readonly helperPath: string;
  system(): SystemKind;
  /** As uname(2): `6.1.0-28-amd64`. */
  kernelRelease(): string;
  /** The program that keeps a mount over the death of its process; null: it was not built. */
  keeperProgram(): string | null;
  /** @throws Error when the addon cannot be loaded */
  loadAddon(): void;
}

export function systemMachine(env: Readonly<Record<string, string | undefined>>): Machine {
  return {
    env,
    uid: process.getuid?.() ?? 0,
    clock: systemClock,
    // A sign-in has its own retries and needs time for them.
    limits: { lookupMs: 5_000, answerMs: 10_000, signInMs: 15_000, statusMs: 5_000 },
    devicePath: '/dev/fuse',
    fuseConfPath: '/etc/fuse.conf',
    filesystemsPath: '/proc/filesystems',
    fuseSettingsPath: '/proc/sys/fs/fuse',
    mtabPath: '/etc/mtab',
    fusermount: () => findFusermount(),
    mountTable: () => readFileSync('/proc/self/mountinfo', 'utf8'),
    probe: stateOf,
    lookup: (host) => lookup(host),
    disk: (path) => {
      const { bavail, bsize, blocks } = statfsSync(path);
      return { freeBytes: bavail * bsize, totalBytes: blocks * bsize };
    },
    fstabPath: '/etc/fstab',
    helperPath: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
    system: systemKind,
    kernelRelease: release,
    keeperProgram,
    loadAddon: () => void loadAddon<unknown>(),
  };
}
