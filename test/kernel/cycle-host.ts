/** Mounts and unmounts again and again in one process, and prints what it held early and at the end as JSON. Argument: directory. */
import { readdirSync, readFileSync } from 'node:fs';
import { systemClock } from '../../src/base/clock.ts';
import { FsError } from '../../src/base/errors.ts';
import { silentLogger } from '../../src/base/log.ts';
import { mountLinux } from '../../src/kernel/linux.ts';
import { MemoryFileSystem } from './memory-file-system.ts';

export interface Held {
  readonly descriptors: number;
  readonly threads: number;
  readonly residentKiB: number;
}

const CYCLES = 200;
const WARM = 40;
const directory = process.argv[2] as string;

function held(): Held {
  const status = readFileSync('/proc/self/status', 'latin1');
  const field = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1]);
  return { descriptors: readdirSync('/proc/self/fd').length, threads: field('Threads'), residentKiB: field('RssAnon') };
}

/** Another program may look at a new mount for a moment, as the daemons of a desktop do: it is busy then. */
async function unmount(mount: Awaited<ReturnType<typeof mountLinux>>): Promise<void> {
  for (const end = performance.now() + 20_000; ; ) {
    try {
      return await mount.unmount('orderly');
    } catch (error) {
      if (!(error instanceof FsError) || error.errno !== 'EBUSY' || performance.now() > end) throw error;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}

let early: Held | null = null;
for (let i = 1; i <= CYCLES; i++) {
  const mount = await mountLinux(
    {
      ...{ directory, fsname: 'cfs-test', subtype: 'cfs-test', readOnly: false, allowOther: false },
      ...{ defaultPermissions: false, flags: [], allowNonEmpty: false, maskedFeatures: [] },
    },
    new MemoryFileSystem(),
    { log: silentLogger, clock: systemClock },
  );
  mount.invalidator.entry(1 as never, 'x'); // starts a notifying thread
  await (i % 2 === 0 ? unmount(mount) : mount.unmount('lazily'));
  await mount.ended;
  await mount.unmount('orderly'); // once more: nothing happens
  if (i === WARM) early = held();
}
globalThis.gc?.();
if (early === null) throw new Error('too few cycles');
// The threads of the last mounts end by themselves, a moment after them, and keep their descriptors until then.
let late = held();
for (const end = performance.now() + 20_000; performance.now() < end; late = held()) {
  if (late.threads <= early.threads && late.descriptors <= early.descriptors) break;
  await new Promise((resolve) => setImmediate(resolve));
}
process.stdout.write(JSON.stringify({ early, late }));
